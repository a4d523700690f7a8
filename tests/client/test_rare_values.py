"""No sum singles out the rows that have a rare value."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.masking import find_mask
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.client.rows.chunk_reader import with_rare_masked
from fedopl.messages import codec
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.learning.outcome_sums import OutcomeSums, SumOutcomes
from fedopl.study.plans import NuisancePlan
from fedopl.study.study import Study

ACTIONS, FEATURES, MINIMUM = ("a", "b"), ("x", "y", "flag"), 5
STUDY = Study(actions=ACTIONS, features=FEATURES, nuisances=NuisancePlan(folds=2))


def logged(flags, n_rows=400, seed=0):
    """Two ordinary features and a flag that is 1 in these rows."""
    rng = np.random.default_rng(seed)
    contexts = np.column_stack([rng.standard_normal((n_rows, 2)), np.zeros(n_rows)])
    contexts[flags, 2] = 1.0
    return fedopl.LoggedData(
        contexts,
        rng.integers(0, 2, n_rows),
        rng.standard_normal(n_rows),
        action_names=ACTIONS,
        feature_names=FEATURES,
    )


def with_rare_masked_cells(data, rows, cells, minimum):
    """What is rare in a cell is changed; found in parts as well as in one go."""
    contexts = data.contexts[rows]
    n_cells = int(cells.max()) + 1
    mask = find_mask(lambda: [(contexts, cells)], n_cells, minimum)
    halves = [(contexts[k::2], cells[k::2]) for k in (0, 1)]
    again = find_mask(lambda: halves, n_cells, minimum)
    assert np.array_equal(mask(contexts, cells), again(contexts, cells))
    return with_rare_masked(data, rows, mask, cells)


def with_rare_masked_values(data, rows, minimum):
    return with_rare_masked_cells(data, rows, np.zeros(int(rows.sum()), np.int64), minimum)


def told_by(data, limits):
    door = Door("north", data, STUDY, limits=limits, secret=SEED_ALONE)
    query = codec.encode(SumOutcomes(study=STUDY.digest, exchange=0))
    return door, codec.decode(door.handle(query), axis_sizes(STUDY))


@pytest.mark.parametrize("n_rare", [1, 2, 4])
def test_a_value_of_a_few_rows_is_taken_for_the_usual_one(n_rare):
    data = logged(np.arange(n_rare))
    training = np.ones(data.n_rows, bool)
    assert not with_rare_masked_values(data, training, MINIMUM).contexts[:, 2].any()
    _, sums = told_by(data, Limits())
    assert isinstance(sums, OutcomeSums)
    assert not sums.sums[..., 2, :].any()


def test_a_value_of_enough_rows_stays_and_so_does_everything_where_limits_are_open():
    data = logged(np.arange(150))
    training = np.ones(data.n_rows, bool)
    assert with_rare_masked_values(data, training, MINIMUM) is data
    assert with_rare_masked_values(logged([0]), training, 0).contexts[0, 2] == 1
    _, sums = told_by(logged([0]), Limits.open())
    assert sums.sums[..., 2, -2].sum() in (0, 1)


def test_rows_set_apart_keep_their_values():
    data = logged([0])
    training = np.arange(data.n_rows) > 0
    assert with_rare_masked_values(data, training, MINIMUM).contexts[0, 2] == 1


@pytest.mark.parametrize("n_flagged", [6, 9, 14, 30, 370, 394])
@pytest.mark.parametrize("seed", range(5))
def test_no_told_cell_and_no_difference_holds_just_a_few_rows_of_a_value(n_flagged, seed):
    flags = np.random.default_rng(seed).choice(400, n_flagged, replace=False)
    door, sums = told_by(logged(flags, seed=seed), Limits())
    rows, flagged = sums.sums[..., -2, -2], sums.sums[..., 2, -2]
    for few in (flagged, rows - flagged):
        assert ((few == 0) | (few >= MINIMUM)).all()
    in_all = door._space.data.contexts[door._space.training, 2].sum()
    changed = abs(in_all - flagged.sum())
    assert changed == 0 or changed >= MINIMUM


def test_ordinary_features_are_told_as_they_are():
    guarded, opened = (
        told_by(logged(np.arange(0, 400, 2)), x)[1] for x in (Limits(), Limits.open())
    )
    assert np.array_equal(guarded.sums, opened.sums)


def test_rows_that_differ_from_what_most_have_are_taken_for_it_and_numbers_are_not():
    data = logged(np.arange(40))
    contexts = np.array(data.contexts)
    contexts[:3, 2] = 3.5
    contexts[3:40, 2] = 0.0
    changed = fedopl.LoggedData(
        contexts, data.actions, data.rewards, action_names=ACTIONS, feature_names=FEATURES
    )
    kept = with_rare_masked_values(changed, np.ones(400, bool), MINIMUM)
    assert not kept.contexts[:, 2].any()
    assert np.array_equal(kept.contexts[:, :2], contexts[:, :2])


def test_actions_whose_names_are_numbers_stay_what_they_are():
    data = logged([0])
    named = fedopl.LoggedData(
        data.contexts,
        np.array(["1", "0"])[data.actions],
        data.rewards,
        action_names=("1", "0"),
        feature_names=FEATURES,
    )
    kept = with_rare_masked_values(named, np.ones(400, bool), MINIMUM)
    assert kept is not named
    assert np.array_equal(kept.actions, data.actions)


@given(st.integers(0, 2**32), st.floats(0, 1))
def test_in_every_cell_a_value_is_that_of_none_or_of_enough_rows(seed, share):
    rng = np.random.default_rng(seed)
    data = logged(np.flatnonzero(rng.random(300) < share), n_rows=300, seed=seed % 1000)
    cells = rng.integers(0, 6, 300)
    everybody = np.ones(300, bool)
    data = with_rare_masked_values(data, everybody, MINIMUM)
    kept = with_rare_masked_cells(data, everybody, cells, MINIMUM)
    changed = int((kept.contexts != data.contexts).sum())
    assert changed == 0 or changed >= MINIMUM
    for cell in range(6):
        flags = kept.contexts[cells == cell, 2]
        assert all(n == 0 or n >= MINIMUM for n in (flags.sum(), (1 - flags).sum()))


def test_what_is_common_in_one_part_only_is_not_common():
    """Two values in each part may be four in all, and most rows of a part a minority of all."""
    first, second = np.arange(100.0), np.arange(200.0, 300.0)
    first[:60], second[:60] = 0.0, 1.0
    pairs = np.repeat([[0.0, 1.0], [2.0, 3.0]], 50, axis=1)
    columns = [np.column_stack([first, pairs[0]]), np.column_stack([second, pairs[1]])]
    parts = [(contexts, np.zeros(100, np.int64)) for contexts in columns]
    assert not find_mask(lambda: parts, 1, MINIMUM)


# --- flags that leave a few rows over -------------------------------------------------------------


def on_wards(wards, n_flags):
    """A flag for each ward but the first, beside a number."""
    numbers = np.random.default_rng(0).standard_normal(len(wards))
    flags = wards[:, None] == np.arange(1, n_flags + 1)
    return np.column_stack([flags, numbers]).astype(float)


@given(st.integers(0, 2**32), st.lists(st.floats(0.01, 1), min_size=2, max_size=5))
def test_in_every_cell_a_ward_has_no_rows_or_enough_though_one_has_no_flag(seed, shares):
    rng = np.random.default_rng(seed)
    wards = rng.choice(len(shares), 300, p=np.array(shares) / sum(shares))
    contexts, cells = on_wards(wards, len(shares) - 1), rng.integers(0, 6, 300)
    everybody = np.zeros(300, np.int64)
    contexts = find_mask(lambda: [(contexts, everybody)], 1, MINIMUM)(contexts, everybody)
    mask = find_mask(lambda: [(contexts, cells)], 6, MINIMUM)
    masked = mask(contexts, cells)
    for cell in range(6):
        flags = masked[cells == cell, :-1]
        assert flags.sum(axis=1).max(initial=0) <= 1
        counts = [*flags.sum(axis=0), (flags.sum(axis=1) == 0).sum()]
        assert all(n == 0 or n >= MINIMUM for n in counts)
    changed = (masked != contexts).any(axis=1).sum()
    assert changed == 0 or changed >= MINIMUM


def test_of_two_flags_that_differ_in_a_few_rows_one_is_taken_for_the_other():
    flag = np.random.default_rng(0).random(300) < 0.5
    other = flag.copy()
    other[np.flatnonzero(flag)[:3]] = False  # who has the other has the first
    contexts, cells = np.column_stack([flag, other]).astype(float), np.zeros(300, np.int64)
    masked = find_mask(lambda: [(contexts, cells)], 1, MINIMUM)(contexts, cells)
    assert np.array_equal(masked[:, 0], masked[:, 1])
    other[np.flatnonzero(flag)[:40]] = False
    many = np.column_stack([flag, other]).astype(float)
    assert not find_mask(lambda: [(many, cells)], 1, MINIMUM)
