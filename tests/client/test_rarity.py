"""No sum singles out the rows that have a rare value."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedopl
from fedopl.client.door import Door
from fedopl.client.guards import large_enough
from fedopl.client.limits import Limits
from fedopl.client.rarity import Groups, groups_of, without_rare_values
from fedopl.study import NuisancePlan, Study
from fedopl.wire import codec
from fedopl.wire.vocabulary import Enrol, OutcomeSums, Refusal, SumOutcomes, axis_sizes

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


def told_by(data, limits):
    door = Door("north", data, STUDY, limits=limits)
    query = codec.encode(SumOutcomes(study=STUDY.digest, exchange=0))
    return door, codec.decode(door.handle(query), axis_sizes(STUDY))


def cells_with_few(door, sums):
    """Told cells whose sum of the flag is that of a few rows."""
    told = sums.sums[..., -2, -2] > 0
    flags = sums.sums[..., 2, -2]
    return told & (flags > 0) & (flags < MINIMUM)


@pytest.mark.parametrize("n_rare", [1, 2, 4])
def test_a_value_of_a_few_rows_is_taken_for_the_usual_one(n_rare):
    data = logged(np.arange(n_rare))
    training = np.ones(data.n_rows, bool)
    assert not without_rare_values(data, training, MINIMUM).contexts[:, 2].any()
    _, sums = told_by(data, Limits())
    assert isinstance(sums, OutcomeSums)
    assert not sums.sums[..., 2, :].any()


def test_a_value_of_enough_rows_stays_and_so_does_everything_where_limits_are_open():
    data = logged(np.arange(150))
    training = np.ones(data.n_rows, bool)
    assert without_rare_values(data, training, MINIMUM) is data
    assert without_rare_values(logged([0]), training, 0).contexts[0, 2] == 1
    _, sums = told_by(logged([0]), Limits.open())
    assert sums.sums[..., 2, -2].sum() in (0, 1)


def test_rows_set_apart_keep_their_values():
    data = logged([0])
    training = np.arange(data.n_rows) > 0
    assert without_rare_values(data, training, MINIMUM).contexts[0, 2] == 1


@pytest.mark.parametrize("n_flagged", [6, 9, 14, 30])
@pytest.mark.parametrize("seed", range(5))
def test_no_told_cell_holds_just_a_few_rows_of_a_value(n_flagged, seed):
    flags = np.random.default_rng(seed).choice(400, n_flagged, replace=False)
    door, sums = told_by(logged(flags, seed=seed), Limits())
    if isinstance(sums, Refusal):
        return
    assert not cells_with_few(door, sums).any()
    n_training = door._space.n_training
    assert (
        codec.decode(
            door.handle(codec.encode(Enrol(study=STUDY.digest, exchange=0))), axis_sizes(STUDY)
        ).n_rows
        == n_training
    )
    all_flags = door._space.data.contexts[door._space.training, 2].sum()
    left_out = all_flags - sums.sums[..., 2, -2].sum()
    assert left_out == 0 or left_out >= MINIMUM


def test_ordinary_features_are_told_as_they_are():
    guarded, opened = (
        told_by(logged(np.arange(0, 400, 2)), x)[1] for x in (Limits(), Limits.open())
    )
    assert np.array_equal(guarded.sums, opened.sums)


def test_rows_that_differ_from_what_most_have_are_a_group_and_numbers_are_not():
    data = logged(np.arange(40))
    contexts = np.array(data.contexts)
    contexts[:7, 2] = 3.5
    changed = fedopl.LoggedData(
        contexts, data.actions, data.rewards, action_names=ACTIONS, feature_names=FEATURES
    )
    everybody = np.ones(400, bool)
    groups = groups_of(changed, everybody, np.zeros(400, np.int64), (1, 1), MINIMUM)
    assert groups.counts.tolist() == [[[40]]]


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_neither_what_is_told_nor_what_is_left_out_holds_a_few_rows_of_a_group(seed, n_groups):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 40, (4, 3))
    counts = np.minimum(rng.integers(0, 12, (n_groups, 4, 3)), rows)
    groups = Groups(counts=counts, minimum=MINIMUM)
    told = large_enough(rows, 10, groups)
    for group in counts:
        assert all(n == 0 or n >= MINIMUM for n in group[told])
        left_out = group[~told].sum()
        assert left_out == 0 or left_out >= MINIMUM or not told.any()
    left = rows[~told].sum()
    assert left == 0 or left >= 10 or not told.any()
