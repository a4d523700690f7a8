"""A second look at a tree's thresholds discloses no few rows, not even beside the cells."""

import numpy as np
import pytest
from lying_server import ACTIONS, N_FEATURES, LyingServer, rows, study_with

import fedopl
from fedopl.messages.trees.cell_sums import SumCells
from fedopl.messages.trees.threshold_gains import SumNearThresholds
from fedopl.policies.trees.nodes import Branch, Leaf, as_array
from fedopl.policies.trees.second_look import NEAR_BINS

CUTS = ((0.0, 1.0), (0.0, 0.5, 1.0), (0.0,), (0.0,))
N_CUTS = np.array([len(own) for own in CUTS], float)
FLAT = np.array([cut for own in CUTS for cut in own])


def rows_with_an_exception(n_rows=1200):
    """Where x0 is between 0 and 1, x1 says whether it is above 0.5, but for one person."""
    data = rows(n_rows)
    rng = np.random.default_rng(1)
    contexts = rng.uniform(-1, 2, (n_rows, N_FEATURES))
    between = (contexts[:, 0] > 0) & (contexts[:, 0] <= 1)
    beyond = np.where(between, contexts[:, 0], contexts[:, 1]) > 0.5
    contexts[:, 1] = np.where(beyond, 0.75, 0.25)
    contexts[0, :2] = 0.3, 0.75
    return fedopl.LoggedData(contexts, data.actions, data.rewards, action_names=ACTIONS)


def near(cut, *more):
    """Thresholds of a question: its own, and some close to it."""
    return np.sort([*more, *[cut] * (NEAR_BINS - 1 - len(more))])


def asked(root, *thresholds):
    return {"tree": as_array(root), "n_cuts": N_CUTS, "cuts": FLAT, "near": np.array(thresholds)}


def scored_server(data):
    study = study_with(policy=fedopl.Tree(bins=8), evaluation=0)
    return LyingServer(data, study).score()


def test_a_narrow_bin_less_a_cell_does_not_leave_one_person():
    """Those with x0 from 0 to 0.5, less those of the cell with x1 below 0.5, are one person."""
    server = scored_server(rows_with_an_exception())
    cells = server.ask(SumCells, partition=as_array(Leaf(0)), n_cuts=N_CUTS, cuts=FLAT).cells[0]
    table = cells[3:15].reshape(3, 4, -1)[..., 2:]  # by x0 and x1, behind the line of x0
    stump = Branch(0, 0.0, Leaf(1), Leaf(0))
    gains = server.ask(SumNearThresholds, **asked(stump, near(0.0, 0.5))).gains
    found = gains[0, 1:-1].sum() - (table[1, 1, 1] - table[1, 1, 0])
    space = server.door._space
    (person,) = np.flatnonzero(space.data.contexts[:, 0] == 0.3)
    sought = (space.scores[person, 1] - space.scores[person, 0]) / space.n_training
    assert not np.isclose(found, sought)
    # What is known of x0 from 0 to 1 as a whole is told, so that the test is not about zeros.
    assert np.isclose(gains[0, 1:].sum(), (table[1, :, 1] - table[1, :, 0]).sum())


def test_thresholds_that_no_honest_search_could_ask_about_are_not_answered():
    server = scored_server(rows_with_an_exception())
    stump, other = Branch(0, 0.0, Leaf(1), Leaf(0)), Branch(0, 0.5, Leaf(1), Leaf(0))
    for asking in (
        asked(stump, near(0.0, 1.5)),  # beyond the next threshold of the grid
        asked(stump, near(0.1, 0.5)),  # without the question's own
        asked(other, near(0.5)),  # off the grid
        asked(stump, near(0.0), near(0.0)),  # of two questions, where there is one
        asked(stump, near(0.0, 0.5)[::-1]),  # falling
    ):
        assert server.ask(SumNearThresholds, **asking).reason.name == "MALFORMED"


def test_two_second_looks_are_not_differenced():
    """Narrow bins with borders to either side of one person would differ by that person."""
    server = scored_server(rows_with_an_exception())
    stump = Branch(0, 0.0, Leaf(1), Leaf(0))
    first = server.ask(SumNearThresholds, **asked(stump, near(0.0, 0.3 - 1e-9)))
    assert first.gains.any()
    again = server.ask(SumNearThresholds, **asked(stump, near(0.0, 0.3 + 1e-9)))
    assert again.reason.name == "BUDGET_SPENT"
    other = server.ask(SumCells, partition=as_array(Leaf(0)), n_cuts=N_CUTS, cuts=FLAT + 0.01)
    assert other.reason.name == "BUDGET_SPENT"  # the grid is that of the first question


@pytest.mark.parametrize("plan", [{"refine": False}, {"depth": 3}, {"cuts": {"x0": (0.0, 1.0)}}])
def test_only_what_the_study_lets_move_is_asked_about(plan):
    study = study_with(policy=fedopl.Tree(bins=8, **plan), evaluation=0)
    server = LyingServer(rows_with_an_exception(), study).score()
    stump = Branch(0, 0.0, Leaf(1), Leaf(0))
    answer = server.ask(SumNearThresholds, **asked(stump, near(0.0, 0.5)))
    assert answer.reason.name == ("MALFORMED" if "cuts" in plan else "NOT_IN_STUDY")
