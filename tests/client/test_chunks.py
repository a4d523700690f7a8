"""Rows in the order of folds and actions: every split of them is a slice."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedopl
from fedopl.client.disclosure.private_draws import SEED_ALONE, PrivateDraws
from fedopl.client.door import Door
from fedopl.client.rows.chunks import Chunk, sorted_order
from fedopl.client.rows.folds import Folds
from fedopl.client.rows.study_rows import StudyRows
from fedopl.client.scoring.outcome import GivenModels
from fedopl.messages.message import RowSplit
from fedopl.study.plans import NuisancePlan
from fedopl.study.study import Study

N_FOLDS, N_ACTIONS = 3, 3


def chunk_of(cells):
    """Rows that took these actions in these folds, and where each was."""
    folds, actions = np.array(cells).T
    n_rows = len(folds)
    data = fedopl.LoggedData(
        np.arange(2.0 * n_rows).reshape(-1, 2),
        actions,
        np.arange(n_rows),
        action_names=["a", "b", "c"],
        weights=np.arange(1, n_rows + 1),
        groups=np.arange(n_rows) // 2,
    )
    dealt = Folds(of_row=folds.astype(np.uint16), n_folds=N_FOLDS, reason="drawn")
    chunk = Chunk(data=data, folds=dealt)
    order = sorted_order(dealt.of_row, data.actions, N_FOLDS, N_ACTIONS)
    return data, dealt, order, chunk.taken(order)


CELLS = st.lists(
    st.tuples(st.integers(0, N_FOLDS), st.integers(0, N_ACTIONS - 1)), min_size=1, max_size=40
)


@given(CELLS)
def test_every_split_is_the_rows_of_its_folds(cells):
    _, dealt, order, chunk = chunk_of(cells)
    expected = {
        RowSplit.TRAINING: dealt.of_row < N_FOLDS,
        RowSplit.EVALUATION: dealt.of_row == N_FOLDS,
        RowSplit.VALIDATION: dealt.of_row == 0,
        RowSplit.FITTING: (dealt.of_row > 0) & (dealt.of_row < N_FOLDS),
    }
    for split, rows in expected.items():
        assert set(order[chunk.rows(split)]) == set(np.flatnonzero(rows)), split


@given(CELLS, st.integers(0, N_FOLDS - 1))
def test_without_a_fold_the_first_other_one_is_kept_back(cells, without):
    _, dealt, order, chunk = chunk_of(cells)
    left = np.flatnonzero(chunk.folds.of_row != without)
    kept = 1 if without == 0 else 0
    trains = (dealt.of_row != without) & (dealt.of_row < N_FOLDS)
    expected = {
        RowSplit.TRAINING: trains,
        RowSplit.VALIDATION: dealt.of_row == kept,
        RowSplit.FITTING: trains & (dealt.of_row != kept),
    }
    for split, rows in expected.items():
        own = order[left][chunk.taken(left).rows(split, without)]
        assert set(own) == set(np.flatnonzero(rows)), split


@given(CELLS)
def test_a_row_keeps_all_it_has(cells):
    data, dealt, order, chunk = chunk_of(cells)
    assert sorted(order) == list(range(data.n_rows))
    for name in ("contexts", "actions", "rewards", "weights", "groups"):
        np.testing.assert_array_equal(getattr(chunk.data, name), getattr(data, name)[order])
    np.testing.assert_array_equal(chunk.folds.of_row, dealt.of_row[order])
    assert (np.diff(chunk.fold_actions) >= 0).all()


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_counts_and_squares_are_those_of_training_rows(draw, weighted):
    weights = np.random.default_rng(5).uniform(0.5, 2, 300) if weighted else None
    data = draw(300, weights=weights)
    study = Study(actions=data.action_names, features=data.feature_names)
    rows = StudyRows(data, study, 0, PrivateDraws(study.seed, "", SEED_ALONE))
    counts = np.zeros((study.nuisances.folds + 1, 3))
    weighed = np.zeros_like(counts)
    squares = np.zeros((study.nuisances.folds, *[data.n_features + 1] * 2))
    for row, (fold, action) in enumerate(
        zip(rows.folds_as_given.of_row, data.actions, strict=True)
    ):
        weight, x = weights[row] if weighted else 1.0, np.append(data.contexts[row], 1.0)
        counts[fold, action] += 1
        weighed[fold, action] += weight
        if fold < study.nuisances.folds:
            squares[fold] += weight * np.outer(x, x)
    np.testing.assert_array_equal(rows.rows_by_fold_action, counts)
    np.testing.assert_allclose(rows.weight_by_fold_action, weighed)
    np.testing.assert_allclose(rows.squares_by_fold, squares)


@pytest.mark.parametrize("clip", [None, 0.3])
def test_alone_with_own_models_is_what_the_server_finds_for_one_client(draw, clip):
    """The local policy is made as the study says, clipped where the study clips."""
    data = draw(400, known=True, confounded=True)
    plan = NuisancePlan(kind="local", propensity="known", clip=clip)
    run = fedopl.learn({"only": data}, basis="linear", nuisances=plan, evaluation=0.25)
    alone = (
        Door("only", data, run.study, secret=SEED_ALONE)
        ._space.scored_with(GivenModels(np.empty((0, 3, 7))))
        .local
    )
    assert np.allclose(run.policy.parameters, alone, rtol=1e-12)
