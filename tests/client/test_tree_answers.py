from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from test_door import ask, decoded, door_to, encoded_query, reason, scored, study_of

import fedopl
from fedopl.client.disclosure.held_values import merged_bins
from fedopl.client.disclosure.limits import Limits
from fedopl.messages.evaluation.policy_values import Value, ValuesByPart
from fedopl.messages.refusal import Refusal
from fedopl.messages.trees.bin_counts import N_FINE_BINS, BinCounts, CountBins
from fedopl.messages.trees.cell_sums import CellSums, SumCells
from fedopl.policies.kinds import packed
from fedopl.policies.linear import constant_policy
from fedopl.policies.trees.grid import agreed_grid
from fedopl.policies.trees.growing import DONE
from fedopl.policies.trees.nodes import Branch, Leaf, as_array
from fedopl.policies.trees.search import ROWS, WEIGHT

GUARDED = Limits()
EVERYBODY = as_array(Leaf(0))
CUTS = {"x0": (-0.5, 0.5), "x1": (0.0,)}


def tree_study(depth=2, cuts=CUTS, **changes):
    """A study whose tree asks about the first two features, cut where it says."""
    plan = fedopl.Tree(depth=depth, cuts=cuts, columns=tuple(CUTS))
    return study_of(policy=plan, **changes)


def open_tree_study(depth=2):
    """A study whose thresholds have yet to be agreed."""
    return study_of(policy=fedopl.Tree(depth=depth, columns=tuple(CUTS)))


def sum_cells(door, partition=EVERYBODY, grid=CUTS, **changes):
    own = [grid.get(name, ()) for name in door.study.features]
    fields = {
        "partitions": partition[None],
        "n_cuts": np.array([len(one) for one in own], float),
        "cuts": np.array([cut for one in own for cut in one], float),
    }
    return ask(door, SumCells, **{**fields, **changes})


def value_leaves(door, root, **changes):
    """What every action is worth in the leaves of this tree."""
    study = door.study
    arms = [constant_policy(arm, study.actions, study.features) for arm in study.actions]
    tree = root if isinstance(root, np.ndarray) else as_array(root)
    return ask(door, Value, tree=tree, **{**packed(arms, study), **changes})


def placed(first, second, *, n_actions=3):
    """Data with these numbers in the first two features."""
    rng = np.random.default_rng(len(first))
    contexts = np.column_stack([first, second, rng.standard_normal((len(first), 3))])
    names = tuple(f"a{a}" for a in range(n_actions))
    return fedopl.LoggedData(
        contexts,
        rng.integers(n_actions, size=len(first)),
        rng.standard_normal(len(first)),
        action_names=names,
    )


def training_of(door):
    """The training rows and their scores, which the door keeps to itself."""
    space = door._space
    return space.data.contexts[space.training], space.scores[space.training]


def with_scores(door, change):
    """The door, once `change` was made to its scores."""
    kept = door._space._archive.get()
    values = kept.values.copy()
    change(values, door._space)
    door._space.keep(replace(kept, values=values))
    return door


# --- sums over cells ----------------------------------------------------------------------------


def test_without_limits_the_cells_are_sums_of_scores_as_shares(draw):
    door = scored(door_to(draw(), tree_study()))
    told = sum_cells(door)
    contexts, scores = training_of(door)
    bins = np.searchsorted(CUTS["x0"], contexts[:, 0])
    line = told.cells[0, :3]
    for place in range(3):
        own = bins == place
        expected = [own.sum(), own.mean(), *(scores[own].sum(axis=0) / len(scores))]
        assert line[place] == pytest.approx(expected)


def merged(told, counts):
    """The same with the bins of few rows added to others."""
    found = np.zeros_like(told)
    np.add.at(found, merged_bins(counts.astype(int), GUARDED.minimum_cell), told)
    return found


def test_bins_of_few_rows_are_merged_and_totals_stay(draw):
    cuts = {name: tuple(np.linspace(-2, 2, 15)) for name in CUTS}
    data, study = draw(), tree_study(cuts=cuts)
    every, some = (
        sum_cells(scored(door_to(data, study, limits=own)), grid=cuts).cells[0]
        for own in (Limits.open(), GUARDED)
    )
    tables = agreed_grid(study.tree, study.columns, {}).tables
    for start in (tables[0, 0].start, tables[1, 1].start):
        own = slice(start, start + 16)
        rows = some[own, ROWS]
        assert (every[own, ROWS] < 5).sum() > (rows < 5).sum() == (rows == 0).sum()
        np.testing.assert_allclose(some[own], merged(every[own], every[own, ROWS]))


def test_with_many_rows_in_every_cell_limits_change_nothing(draw):
    data, study = draw(2000), tree_study()
    answers = [
        sum_cells(scored(door_to(data, study, limits=limits)))
        for limits in (Limits.open(), GUARDED)
    ]
    assert answers[0].cells.tobytes() == answers[1].cells.tobytes()


def test_weights_are_shares_and_rows_are_counted():
    rng = np.random.default_rng(0)
    data = placed(rng.standard_normal(400), rng.standard_normal(400))
    weighted = fedopl.LoggedData(
        data.contexts,
        data.actions,
        data.rewards,
        weights=rng.uniform(1, 3, 400),
        action_names=data.action_names,
    )
    told = sum_cells(scored(door_to(weighted, tree_study(), limits=GUARDED)))
    assert told.cells[0, :3, WEIGHT].sum() == pytest.approx(1)
    assert told.cells[0, :3, ROWS].sum() == 300


# --- partitions and grids -----------------------------------------------------------------------

BELOW = Branch(0, -0.5, Leaf(0), Leaf(1))
NO_PARTITIONS = {
    "a node that leads to itself": [[0, -0.5, 0, 1], [-1, 0, 0, 0]],
    "a node that leads back": [[0, -0.5, 1, 2], [0, 0.5, 0, 2], [-1, 0, 0, 0]],
    "two that lead to one": [[0, -0.5, 1, 1], [-1, 0, 0, 0]],
    "a node nowhere leads to": [[-1, 0, 0, 0], [-1, 1, 0, 0]],
    "a node that is not there": [[0, -0.5, 1, 7], [-1, 0, 0, 0]],
    "half a node": [[0, -0.5, 1.5, 2], [-1, 0, 0, 0], [-1, 1, 0, 0]],
    "a node far away": [[0, -0.5, 1e300, 2], [-1, 0, 0, 0], [-1, 1, 0, 0]],
    "nothing": [[-2, 0, 0, 0]],
    "a column that is not there": [[5, -0.5, 1, 2], [-1, 0, 0, 0], [-1, 1, 0, 0]],
    "a column below all": [[-3, -0.5, 1, 2], [-1, 0, 0, 0], [-1, 1, 0, 0]],
    "a column that may not be asked about": [[2, 0.0, 1, 2], [-1, 0, 0, 0], [-1, 1, 0, 0]],
    "a threshold that is not of the grid": as_array(Branch(0, -0.4, Leaf(0), Leaf(1))),
    "parts with a gap": as_array(Branch(0, -0.5, Leaf(0), Leaf(2))),
    "no part zero": as_array(Branch(0, -0.5, Leaf(1), Leaf(DONE))),
    "two leaves with one number": as_array(Branch(0, -0.5, Leaf(0), Leaf(0))),
    "nothing that is open": as_array(Branch(0, -0.5, Leaf(DONE), Leaf(DONE))),
    "half a part": [[0, -0.5, 1, 2], [-1, 0, 0, 0], [-1, 0.5, 0, 0]],
    "more questions than were looked ahead": as_array(
        Branch(0, -0.5, Leaf(0), Branch(1, 0.0, Leaf(1), Leaf(2)))
    ),
}


@pytest.mark.parametrize("numbers", NO_PARTITIONS.values(), ids=NO_PARTITIONS)
def test_what_is_no_partition_of_this_study_is_malformed(draw, numbers):
    door = scored(door_to(draw(), tree_study(depth=3), limits=GUARDED))
    assert reason(sum_cells(door, np.array(numbers, float))) == "MALFORMED"
    assert isinstance(sum_cells(door, as_array(BELOW)), CellSums)


def test_numbers_that_are_not_finite_are_malformed(draw):
    door = scored(door_to(draw(), tree_study(depth=3), limits=GUARDED))
    for value in (np.nan, np.inf):
        for changes in (
            {"partitions": as_array(Branch(0, value, Leaf(0), Leaf(1)))[None]},
            {"cuts": np.array([-0.5, value, 0.0])},
            {"n_cuts": np.array([2, value, 0, 0, 0])},
        ):
            assert reason(sum_cells(door, **changes)) == "MALFORMED"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_partition_comes_the_door_answers(draw, data):
    nodes = data.draw(st.integers(1, 7))
    entry = st.one_of(
        st.integers(-3, 8).map(float),
        st.sampled_from([-0.5, 0.5]),
        st.floats(allow_nan=False, allow_infinity=False),
    )
    numbers = data.draw(arrays(np.float64, (nodes, 4), elements=entry))
    door = scored(door_to(draw(), tree_study(depth=4), limits=GUARDED))
    assert isinstance(sum_cells(door, numbers), CellSums | Refusal)
    assert isinstance(value_leaves(door, Leaf(0), study=door.study.digest), ValuesByPart | Refusal)
    assert isinstance(value_leaves(door, numbers), ValuesByPart | Refusal)


NO_GRIDS = {
    "other thresholds than were agreed": {"cuts": np.array([-0.5, 0.6, 0.0])},
    "thresholds that fall": {"cuts": np.array([0.5, -0.5, 0.0])},
    "too few thresholds": {"cuts": np.array([-0.5, 0.5])},
    "counts that do not add up": {"n_cuts": np.array([2.0, 2, 0, 0, 0])},
    "a count below zero": {"n_cuts": np.array([4.0, -1, 0, 0, 0])},
    "half a count": {"n_cuts": np.array([2.5, 0.5, 0, 0, 0])},
    "a huge count": {"n_cuts": np.array([1e300, 0, 0, 0, 0])},
    "another column's thresholds": {"n_cuts": np.array([1.0, 2, 0, 0, 0])},
    "a column that may not be asked about": {"n_cuts": np.array([2.0, 0, 1, 0, 0])},
}


@pytest.mark.parametrize("changes", NO_GRIDS.values(), ids=NO_GRIDS)
def test_what_is_not_the_agreed_grid_is_malformed(draw, changes):
    door = scored(door_to(draw(), tree_study(), limits=GUARDED))
    assert reason(sum_cells(door, **changes)) == "MALFORMED"


def test_once_a_grid_was_used_there_is_no_other(draw):
    limits = {"guarded": GUARDED, "open": Limits.open()}
    other = {"x0": (-0.5, 0.5001), "x1": (0.0,)}
    for name, own in limits.items():
        door = scored(door_to(draw(), open_tree_study(depth=4), limits=own))
        assert isinstance(sum_cells(door), CellSums)
        second = sum_cells(door, grid=other)
        if name == "open":
            assert isinstance(second, CellSums)
        else:
            assert reason(second) == "ASKED_ALREADY"


def test_there_is_an_answer_for_every_level_of_the_tree_and_no_more(draw):
    door = scored(door_to(draw(2000), tree_study(depth=3), limits=GUARDED))
    first, second = sum_cells(door), sum_cells(door, as_array(BELOW))
    assert second.cells.shape[0] == 2
    np.testing.assert_allclose(second.cells.sum(axis=0), first.cells[0], atol=1e-12)
    other = as_array(Branch(0, 0.5, Leaf(0), Leaf(1)))
    assert reason(sum_cells(door, other)) == "ASKED_ALREADY"
    assert sum_cells(door).cells.tobytes() == first.cells.tobytes()


def test_a_part_of_a_few_rows_is_left_out(draw):
    cuts = {"x0": (-2.3, 0.5), "x1": (0.0,)}
    door = scored(door_to(draw(), tree_study(depth=3, cuts=cuts), limits=GUARDED))
    assert 0 < (training_of(door)[0][:, 0] <= -2.3).sum() < GUARDED.minimum_cell
    few, others = sum_cells(door, as_array(Branch(0, -2.3, Leaf(0), Leaf(1))), cuts).cells
    assert others.any()
    assert not few.any()


def test_there_are_no_cells_before_scores(draw):
    assert reason(sum_cells(door_to(draw(), tree_study()))) == "NOTHING_TO_SAY"


# --- counts in bins -----------------------------------------------------------------------------


def fine_cuts(low=-4.0, high=4.0):
    return np.tile(np.linspace(low, high, N_FINE_BINS - 1), (2, 1))


def test_counts_are_exact_and_bins_of_few_rows_are_merged(draw):
    every, some = (
        ask(door_to(draw(), open_tree_study(), limits=own), CountBins, cuts=fine_cuts()).counts
        for own in (Limits.open(), GUARDED)
    )
    assert every.sum(axis=1).tolist() == some.sum(axis=1).tolist() == [151, 151]
    assert some.tolist() == [merged(own, own).tolist() for own in every]
    assert not ((some > 0) & (some < 5)).any()


def test_asking_for_the_same_counts_again_is_free_and_tells_nothing_new(draw):
    door = door_to(draw(), open_tree_study(), limits=GUARDED)
    query = encoded_query(door, CountBins, cuts=fine_cuts())
    assert len({door.handle(query) for _ in range(5)}) == 1
    assert isinstance(ask(door, CountBins, cuts=fine_cuts(high=3.0)), BinCounts)
    assert reason(ask(door, CountBins, cuts=fine_cuts(high=2.0))) == "ASKED_ALREADY"
    assert isinstance(decoded(door, door.handle(query)), BinCounts)


def test_cuts_that_fall_are_malformed(draw):
    door = door_to(draw(), open_tree_study(), limits=GUARDED)
    assert reason(ask(door, CountBins, cuts=-fine_cuts())) == "MALFORMED"


def test_counts_are_not_asked_for_where_thresholds_are_agreed(draw):
    door = door_to(draw(), tree_study(), limits=GUARDED)
    cuts = np.empty((0, N_FINE_BINS - 1))
    assert reason(ask(door, CountBins, cuts=cuts)) == "NOT_IN_STUDY"


# --- leaves -------------------------------------------------------------------------------------


def held_out(door):
    space = door._space
    return space.data.contexts[space.folds.held_out]


def test_leaves_are_told_as_they_are_without_limits(draw):
    door = scored(door_to(draw(), tree_study()))
    told = value_leaves(door, Branch(0, -1.5, Leaf(0), Leaf(1)))
    low = held_out(door)[:, 0] <= -1.5
    scores = door._space.scores[door._space.folds.held_out]
    assert told.shares == pytest.approx([low.mean(), 1 - low.mean()])
    assert told.n_rows[:, 0].tolist() == [low.sum(), (~low).sum()]
    assert told.means[0, :, 0] == pytest.approx(scores[low].mean(axis=0))


def test_a_leaf_of_few_rows_is_left_out_and_so_is_an_action_with_few_scores_in_it(draw):
    def leave_three(values, space):
        low = (space.data.contexts[:, 0] <= 0) & space.folds.held_out
        values[np.flatnonzero(low)[3:], 2] = np.nan

    root = Branch(0, -2.0, Leaf(0), Branch(0, 0.0, Leaf(0), Leaf(1)))
    door = with_scores(scored(door_to(draw(400), tree_study(), limits=GUARDED)), leave_three)
    assert 0 < (held_out(door)[:, 0] <= -2).sum() < GUARDED.minimum_cell
    told = value_leaves(door, root)
    assert (told.shares > 0).tolist() == (told.of_rows > 0).tolist() == [False, True, True]
    assert (told.n_rows > 0).tolist() == [[False] * 3, [True, True, False], [True] * 3]


def test_leaves_are_not_valued_where_values_are_forbidden_or_nothing_is_held_out(draw):
    root = Branch(0, 0.0, Leaf(0), Leaf(1))
    silent = scored(door_to(draw(), tree_study(), limits=Limits(values=False)))
    assert reason(value_leaves(silent, root)) == "VALUES_FORBIDDEN"
    nobody = scored(door_to(draw(), tree_study(evaluation=0.0), limits=GUARDED))
    assert reason(value_leaves(nobody, root)) == "MALFORMED"


def test_a_leaf_that_decides_on_no_action_is_malformed(draw):
    door = scored(door_to(draw(), tree_study(), limits=GUARDED))
    for action in (-1, 3, 0.5):
        tree = np.array([[-1, action, 0, 0]])
        assert reason(value_leaves(door, tree)) == "MALFORMED"
