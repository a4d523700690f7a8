"""Every answer has a rule by which several become one, or a reason why they cannot."""

from dataclasses import replace

import numpy as np
import pytest

from fedopl.messages.combining import PerClient, combinations_of
from fedopl.messages.evaluation.policy_values import ValuesByPart
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.messages.pooling import NOT_POOLED, POOLED, is_pooled, pooled_answer, why_not_pooled
from fedopl.messages.trees.cell_sums import CellSums
from fedopl.messages.vocabulary import QUERIES, is_private
from fedopl.study.policy_plans import Tree
from fedopl.study.study import Study

STUDY = Study(actions=("a", "b"), features=("x",))


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.__name__)
def test_every_answer_is_pooled_or_says_why_not(query):
    answer = query.answer
    has_total = PerClient not in combinations_of(answer).values()
    # With differential privacy nothing is pooled, for one reason.
    ways = [answer in POOLED, answer in NOT_POOLED, has_total or is_private(query)]
    assert any(ways), answer
    assert not (answer in POOLED and answer in NOT_POOLED)
    assert is_pooled(answer) == (answer in POOLED or has_total)


def test_reasons_name_what_to_set():
    assert all("[" in instead for _, instead in NOT_POOLED.values())
    assert why_not_pooled(STUDY.model_copy(update={"aggregators": ("n",)})) is None


def score_sums(n_grams, share, size):
    return ScoreSums(
        grams=np.full((n_grams, 2, 2), size),
        products=np.full((2, 2), 2 * size),
        squares=np.full(2, 3 * size),
        shares=np.array([1.0, share]),
    )


def test_scores_that_some_rows_lack_count_by_the_rows_that_have_one():
    all_rows, some = score_sums(1, 1.0, 1.0), score_sums(2, 0.5, 4.0)
    total = pooled_answer({"m": all_rows, "n": some}, {"m": 30, "n": 10}, STUDY)
    assert total.shares.tolist() == [1.0, 0.875]
    assert total.grams[:, 0, 0].tolist() == pytest.approx([1.75, (0.75 + 4 / 8) / 0.875])
    assert total.squares.tolist() == pytest.approx(3 * total.grams[:, 0, 0])


def test_cells_with_and_without_shares_of_scored_rows_fit_together():
    study = STUDY.model_copy(update={"policy": Tree(depth=1)})
    plain = CellSums(cells=np.array([[[4.0, 0.4, 1.0, 2.0]]]))
    scored = CellSums(cells=np.array([[[6.0, 0.6, 1.0, 2.0, 0.6, 0.3]]]))
    total = pooled_answer({"m": plain, "n": scored}, {"m": 1, "n": 1}, study)
    assert total.cells.ravel().tolist() == pytest.approx([10, 0.5, 1.0, 2.0, 0.5, 0.35])


def values(**more):
    counts = {"n_rows": 10, "of_rows": 12, "degrees_of_freedom": 9} | more
    return ValuesByPart(
        of_rows=np.array([counts["of_rows"]]),
        shares=np.ones(1),
        n_rows=np.array([[counts["n_rows"]]]),
        degrees_of_freedom=np.array([[counts["degrees_of_freedom"]]]),
        means=np.array([[[1.0, 2.0]]]),
        covariances=np.eye(2)[None, None],
    )


def test_values_are_means_with_the_variance_of_means():
    total = pooled_answer({"m": values(), "n": values()}, {"m": 5, "n": 5}, STUDY).together()
    assert (total.n_rows, total.of_rows) == (20, 24)
    assert total.means.tolist() == [1.0, 2.0]
    assert total.covariances.tolist() == (np.eye(2) / 2).tolist()
    assert total.degrees_of_freedom == 18
    with_one_row = values(n_rows=1, of_rows=1, degrees_of_freedom=0)
    with_it = pooled_answer({"m": values(), "n": with_one_row}, {"m": 5, "n": 5}, STUDY)
    assert with_it.together().degrees_of_freedom == 0


def test_leaves_count_by_their_rows_and_what_is_suppressed_counts_nowhere():
    told = ValuesByPart(
        of_rows=np.array([10.0, 10.0]),
        shares=np.array([0.5, 0.5]),
        n_rows=np.full((2, 2), 10.0),
        degrees_of_freedom=np.full((2, 2), 9.0),
        means=np.full((2, 2, 1), 1.0),
        covariances=np.full((2, 2, 1, 1), 0.1),
    )
    hidden = np.array([[10.0, 10.0], [0.0, 0.0]])
    shown = (hidden > 0)[..., None]
    other = replace(told, n_rows=hidden, means=3 * shown, covariances=0.1 * shown[..., None])
    total = pooled_answer({"m": told, "n": other}, {"m": 1, "n": 1}, STUDY)
    assert total.means[..., 0].tolist() == [[2.0, 2.0], [1.0, 1.0]]
    assert total.covariances.ravel().tolist() == pytest.approx([0.05, 0.05, 0.1, 0.1])
    assert total.n_rows.tolist() == [[20, 20], [10, 10]]
    assert total.degrees_of_freedom.tolist() == [[18, 18], [9, 9]]


def test_the_answer_of_one_is_that_answer():
    only = values()
    assert pooled_answer({"m": only}, {"m": 7}, STUDY) is only
