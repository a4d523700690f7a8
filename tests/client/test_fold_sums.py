import numpy as np
import pytest

import fedopl
from fedopl.base.errors import OptionError
from fedopl.client.local import score_means as means
from fedopl.client.local.score_means import ScoreTotals
from fedopl.client.rows import fold_sums as sums
from fedopl.client.rows.chunks import Chunk, sorted_order
from fedopl.client.rows.fold_sums import fold_sums, measured_from_zero, predict, squares_by_fold
from fedopl.client.rows.folds import Folds
from fedopl.client.scoring.outcome import action_blocks, linear_outcomes, pooled_parameters
from fedopl.policies.linear import constant_policy
from fedopl.solvers.least_squares import LinearModels, equal_blocks, own_sums

N_ROWS, N_FEATURES, N_ACTIONS, N_FOLDS = 300, 6, 3, 4


def logged(weighted, far=0.0):
    rng = np.random.default_rng(0)
    return fedopl.LoggedData(
        rng.normal(far, 1, (N_ROWS, N_FEATURES)),
        rng.integers(0, N_ACTIONS, N_ROWS),
        rng.normal(5, 1, N_ROWS),
        weights=rng.uniform(0.5, 2, N_ROWS) if weighted else None,
    )


def folds():
    of_row = np.random.default_rng(1).integers(0, N_FOLDS + 1, N_ROWS).astype(np.uint16)
    return Folds(of_row=of_row, n_folds=N_FOLDS, reason="drawn")  # the last are set apart


def in_order(data, split):
    """The order by fold and action, and the rows in it."""
    chunk = Chunk(data=data, folds=split)
    order = sorted_order(split.of_row, data.actions, N_FOLDS, N_ACTIONS)
    return order, chunk.taken(order)


def plainly(data, split, origin, columns=None):
    """Σ w·z zᵀ row by row."""
    width = N_FEATURES if columns is None else len(columns[0])
    found = np.zeros((N_FOLDS, N_ACTIONS, width + 2, width + 2))
    for row in np.flatnonzero(split.of_row < N_FOLDS):
        action = data.actions[row]
        x = data.contexts[row] - origin[:-1]
        x = x if columns is None else x[columns[action]]
        z = np.concatenate([x, [1.0, data.rewards[row] - origin[-1]]])
        weight = 1.0 if data.weights is None else data.weights[row]
        found[split.of_row[row], action] += weight * np.outer(z, z)
    return found


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("far", [0.0, 100.0])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("at_once", [20, 90, 10_000])
@pytest.mark.parametrize("ordered", [False, True], ids=["as logged", "ordered"])
def test_sums_are_those_of_single_rows(monkeypatch, ordered, at_once, weighted, far, blocks):
    """Sorted by cell within blocks, or, where a block has few rows of a cell, in the whole."""
    monkeypatch.setattr(sums, "ROWS_SUMMED_AT_ONCE", at_once)
    data, split = logged(weighted, far), folds()
    if ordered:
        chunk = in_order(data, split)[1]
        data, split = chunk.data, chunk.folds
    columns = [np.arange(2 * a, 2 * a + 2) for a in range(N_ACTIONS)] if blocks else None
    found = fold_sums(data, split, columns)
    expected = plainly(data, split, found.origin, columns)
    np.testing.assert_allclose(found.sums, expected, rtol=1e-9, atol=1e-9)


def test_many_cells_are_summed_one_after_the_other(monkeypatch):
    """So that a cell's sum is added to once and not once for every block."""
    monkeypatch.setattr(sums, "ROWS_SUMMED_AT_ONCE", 40)
    blocks = list(sums._augmented(logged(False), np.zeros(7), np.arange(300) % 9, 8))
    parts = [np.flatnonzero(np.diff(edges)) for _, edges in blocks]
    assert sum(map(len, parts)) <= 8 + len(blocks) - 1
    assert sum(len(rows) for rows, _ in blocks) == np.sum(np.arange(300) % 9 < 8)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("far", [0.0, 100.0])
def test_squares_of_a_fold_come_from_those_of_its_actions(weighted, far):
    data, split = logged(weighted, far), folds()
    x = np.column_stack([data.contexts, np.ones(N_ROWS)])
    weights = np.ones(N_ROWS) if data.weights is None else data.weights
    found = squares_by_fold(fold_sums(data, split))
    for fold, squares in enumerate(found):
        own = split.of_row == fold
        expected = (x[own] * weights[own, None]).T @ x[own]
        np.testing.assert_allclose(squares, expected, rtol=1e-9, atol=1e-9)
    assert len(found) == split.n_folds


def test_rows_in_order_are_predicted_as_they_are_in_any_order():
    data, split = logged(False), folds()
    rng = np.random.default_rng(3)
    models = LinearModels(
        coefficients=rng.standard_normal((split.n_parts, N_ACTIONS, data.n_features)),
        intercepts=rng.standard_normal((split.n_parts, N_ACTIONS)),
        penalties=np.zeros((split.n_parts, N_ACTIONS)),
    )
    order, chunk = in_order(data, split)
    assert (order != np.arange(N_ROWS)).any()
    found = predict(chunk.data, chunk.folds, models)
    np.testing.assert_allclose(found, predict(data, split, models)[order], rtol=1e-12)


@pytest.mark.parametrize("far", [0.0, 100.0])
def test_sums_can_be_measured_from_zero(far):
    data, split = logged(True, far), folds()
    found = fold_sums(data, split)
    assert found.origin[-1] != 0
    assert (found.origin[0] != 0) == (far > 0)
    expected = plainly(data, split, np.zeros(N_FEATURES + 1))
    np.testing.assert_allclose(measured_from_zero(found), expected, rtol=1e-9)


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("missing", ["nothing", "an action", "rows", "the same rows"])
def test_score_means_are_those_of_the_rows_that_have_a_score(
    monkeypatch, missing, weighted, blocks
):
    monkeypatch.setattr(means, "ROWS_VALUED_AT_ONCE", 64)
    data, rng = logged(weighted), np.random.default_rng(2)
    scores, rows = rng.standard_normal((N_ROWS, N_ACTIONS)), np.arange(N_ROWS) >= 30
    some = rng.random(N_ROWS) < 0.5
    if missing == "an action":
        scores[:, 1] = np.nan
    if missing == "rows":
        scores[some, 0], scores[~some, 2] = np.nan, np.nan
    if missing == "the same rows":
        scores[some, 0], scores[some, 1] = np.nan, np.nan
    columns = [np.arange(2 * a, 2 * a + 2) for a in range(N_ACTIONS)] if blocks else None
    totals = ScoreTotals(
        N_ACTIONS, N_FEATURES, columns, complete=bool(np.isfinite(scores[30:]).all())
    )
    totals.add(data, scores, slice(30, N_ROWS))
    found = totals.means()
    assert len(found.grams) == (1 if missing == "nothing" and not blocks else N_ACTIONS)
    weights = np.ones(N_ROWS) if data.weights is None else data.weights
    features = np.column_stack([data.contexts, np.ones(N_ROWS)])
    for action in range(N_ACTIONS):
        known = rows & np.isfinite(scores[:, action])
        own = features if columns is None else features[:, [*columns[action], -1]]
        x, y, w = own[known], scores[known, action], weights[known]
        total = w.sum() or 1.0
        gram = found.grams[min(action, len(found.grams) - 1)]
        np.testing.assert_allclose(gram, (x * w[:, None]).T @ x / total, atol=1e-12)
        np.testing.assert_allclose(found.products[action], (w * y) @ x / total, atol=1e-12)
        assert found.squares[action] == pytest.approx(w @ y**2 / total)
        assert found.shares[action] == pytest.approx(w.sum() / weights[rows].sum())


def test_a_constant_arm_is_what_multiplying_by_nothing_gives():
    contexts = np.random.default_rng(0).standard_normal((7, 2))
    arm = constant_policy("b", ("a", "b", "c"), ("x", "y"))
    assert arm.linear(contexts).tolist() == [[0.0, 1.0, 0.0]] * 7
    assert arm.decide(contexts).tolist() == [1] * 7


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"policy": fedopl.Linear(oracle="wap"), "nuisances": "local"}, "use csoaa-exact"),
        ({"nuisances": {"folds": 20}}, "use local ones, or fewer folds"),
    ],
    ids=["wap", "outcome sums"],
)
def test_sums_that_no_message_could_hold_are_refused_with_a_remedy(options, remedy):
    wide = {"actions": [f"a{i}" for i in range(200)], "features": [f"x{i}" for i in range(300)]}
    with pytest.raises(OptionError, match=remedy) as refused:
        fedopl.Study(**wide, **options)
    assert "134,216,704" in str(refused.value)
    fedopl.Study(**wide)
    fedopl.Study(**{**wide, "actions": wide["actions"][:40]}, **options)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("far", [0.0, 1e4])
def test_sums_of_own_features_are_cut_out_of_all_sums_as_if_there_were_no_others(weighted, far):
    data, split = logged(weighted, far), folds()
    whole, own = fold_sums(data, split), fold_sums(data, split, action_blocks(data))
    cut = own_sums(whole.sums, equal_blocks(N_FEATURES, N_ACTIONS))
    np.testing.assert_allclose(cut, own.sums, rtol=1e-9, atol=1e-9)
    for made in (
        lambda sums: pooled_parameters(sums, "block-ridge"),
        lambda sums: linear_outcomes(sums, "block-ols", None, held_out=True).of(
            Chunk(data=data, folds=split)
        ),
    ):
        np.testing.assert_allclose(made(whole), made(own), rtol=1e-6, atol=1e-9)
    others = np.ones((N_ACTIONS, N_FEATURES + 1), bool)
    for action, mine in enumerate(equal_blocks(N_FEATURES, N_ACTIONS)):
        others[action, [*mine, -1]] = False
    assert not pooled_parameters(whole, "block-ridge")[:, others].any()
