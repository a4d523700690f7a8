"""Law: no row has nearly all of what sums by fold disclose, by themselves or by differencing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lying_server import ACTIONS, LyingServer, rows, study_with

import fedopl
from fedopl.client.disk import passes
from fedopl.client.rows.dominated_by_fold import dominated_by_fold
from fedopl.messages.learning.score_sums import SumScores
from fedopl.messages.learning.score_sums_by_fold import SumByFold
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.policies.basis import Basis

KNOTS = (-0.5, 0.0, 0.5)
HINGE = 6  # x0 above 0.5: four features come first
FOLDS = 5


def beyond_the_last_knot(far=0.9, near=0.52, n_near=300, n_rows=2000):
    """Many rows just beyond the last knot, and one of them much further out."""
    rng = np.random.default_rng(0)
    data = rows(n_rows)
    contexts = data.contexts.copy()
    contexts[:, 0] = rng.uniform(-1, 0.5, n_rows)
    contexts[:n_near, 0] = near
    contexts[0, 0] = far
    return data.with_contexts(contexts)


def asked(data, dominance=0.8, **changes):
    """The server, and the answers to both questions that sums of scores are about."""
    basis = Basis(kind="hinges", knots={"x0": KNOTS})
    study = study_with(**{"basis": basis, "evaluation": 0, **changes})
    server = LyingServer(data, study, limits=fedopl.Limits(dominance=dominance))
    models = np.zeros((study.n_outcome_models, len(ACTIONS), study.n_terms + 1))
    total = server.ask(SumScores, models=models, supported=np.ones(models.shape[:2]))
    return server, total, server.ask(SumByFold)


def shares(columns):
    """The largest share that one row has of each column's sum of squares."""
    squares = columns**2
    sums = squares.sum(axis=0)
    return np.divide(squares.max(axis=0), sums, out=np.zeros_like(sums), where=sums > 0)


def told_of(server):
    """Each row's terms as sums over all folds have them, as sums by fold do, and its fold."""
    rows_of_study = server.door._space.study_rows
    (before,), (after,) = rows_of_study.chunks_in_terms(), rows_of_study.chunks_by_fold()
    return before.data.contexts, after.data.contexts, before.folds.of_row


def test_a_term_that_one_row_dominates_in_a_fold_is_zero_there_and_the_rest_is_told():
    server, total, by_fold = asked(beyond_the_last_knot())
    assert not isinstance(total, Refusal)
    assert not isinstance(by_fold, Refusal)
    before, after, folds = told_of(server)
    (far,) = np.flatnonzero(before[:, 0] == 0.9)
    assert shares(before[folds == folds[far]])[HINGE] > 0.8
    in_fold = by_fold.grams[:, 0, HINGE, HINGE]
    assert in_fold[folds[far]] == 0
    assert (in_fold > 0).sum() >= 2  # where nobody is far out, the hinge is summed
    assert np.array_equal(before[:, :HINGE], after[:, :HINGE])


def test_what_differs_from_sums_over_all_folds_does_not_tell_that_row():
    """The server subtracts sums by fold from those over all folds, and has what was left out."""
    server, total, by_fold = asked(beyond_the_last_knot())
    apart = total.grams[0] - np.einsum("f,fij->ij", by_fold.weights, by_fold.grams[:, 0])
    before, _, _ = told_of(server)
    (far,) = np.flatnonzero(before[:, 0] == 0.9)
    assert 0 < before[far, HINGE] ** 2 <= 0.8 * apart[HINGE, HINGE] * len(before)


@settings(max_examples=15, deadline=None)
@given(far=st.floats(0.55, 1.4), near=st.floats(0.501, 0.6), n_near=st.integers(20, 150))
def test_no_row_has_more_than_its_share_wherever_rows_lie(far, near, n_near):
    server, _, by_fold = asked(beyond_the_last_knot(far, near, n_near, n_rows=1000))
    if isinstance(by_fold, Refusal):
        return
    before, after, folds = told_of(server)
    for fold in range(FOLDS):
        assert shares(after[folds == fold])[HINGE] <= 0.8
    assert shares(before - after).max() <= 0.8


@pytest.mark.parametrize("changes", [{}, {"basis": None, "evaluation": "cross-fitted"}])
def test_sums_by_fold_are_refused_where_a_row_dominates_a_feature_or_the_outcome(changes):
    plain = beyond_the_last_knot()
    for column in ("feature", "outcome"):
        contexts, rewards = plain.contexts.copy(), plain.rewards.copy()
        # Over all folds the others have squares enough, in one fold they do not.
        (contexts[:, 1] if column == "feature" else rewards)[0] = 60.0
        data = fedopl.LoggedData(contexts, plain.actions, rewards, action_names=ACTIONS)
        _, total, by_fold = asked(data, **changes)
        assert not isinstance(total, Refusal)
        assert by_fold.reason is RefusalCode.DOMINATED


def test_whoever_sets_no_limit_releases_all():
    server, _, _ = asked(beyond_the_last_knot(), dominance=1.0)
    before, after, _ = told_of(server)
    assert np.array_equal(before, after)


def test_rows_in_parts_are_judged_as_rows_at_once(monkeypatch):
    monkeypatch.setattr(passes, "CHUNKS_PER_PARTITION", 1)
    server, _, _ = asked(beyond_the_last_knot())
    rows_of_study = server.door._space.study_rows
    (whole,), every = rows_of_study.chunks_in_terms(), np.arange(2000)
    parts = [whole.taken(every[start::3]) for start in range(3)]
    one_by_one = passes.Pass(
        chunks=[slice(place, place + 1) for place in range(3)],
        read=lambda place: [(parts[place.start], parts[place.start])],
    )
    found = dominated_by_fold(one_by_one, FOLDS, 4, 0.8)
    expected = rows_of_study.dominated_by_fold
    assert not found.any
    (own,), (same,) = found.zeroed.rare, expected.zeroed.rare
    assert own.feature == same.feature == HINGE
    assert np.array_equal(own.masked, same.masked)
