"""What cannot be true of an answer is named, field by field; an honest answer has no fault."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedopl.messages.evaluation.policy_values import N_TREES, EstimateValues, Values
from fedopl.messages.learning.outcome_sums import OutcomeSums, SumOutcomes
from fedopl.messages.message import RowSplit
from fedopl.messages.trees.bin_counts import BinCounts, CountBins
from fedopl.messages.trees.cell_sums import CellSums
from fedopl.messages.trees.leaf_values import LeafValues, ValueLeaves
from fedopl.messages.trees.threshold_gains import SumNearThresholds, ThresholdGains
from fedopl.policies.kinds import packed
from fedopl.policies.linear import constant_policy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.grid import agreed_grid
from fedopl.policies.trees.nodes import Branch, Leaf
from fedopl.policies.trees.second_look import NEAR_BINS
from fedopl.server.oracles.tree_search import asking_for_cells
from fedopl.study.policy_plans import Tree
from fedopl.study.spending import Budget
from fedopl.study.study import Study

CUTS = {"x": (0.0,), "y": (0.0, 1.0)}
STUDY = Study(actions=("a", "b"), features=("x", "y"), policy=Tree(cuts=CUTS), evaluation=0.25)
WITHIN = STUDY.model_copy(update={"budget": Budget(shares={"a": 0.5})})
N_ROWS = 30
GRID = agreed_grid(STUDY.tree, STUDY.columns, {})


def cells():
    """By cell: rows and weight as if rows lay evenly in every table, and scores of zero."""
    numbers = np.zeros((1, GRID.n_cells, 2 + STUDY.n_actions))
    for table in GRID.tables.values():
        n_cells = table.stop - table.start
        numbers[0, table, 0], numbers[0, table, 1] = N_ROWS / n_cells, 1 / n_cells
    return numbers


def ones(*shape):
    return np.ones(shape)


TREE = TreePolicy(Branch(0, 0.0, Leaf(0), Leaf(1)), STUDY.actions, STUDY.features)
ASKED: dict[str, Any] = {
    "outcomes": SumOutcomes(),
    "values": EstimateValues(
        split=RowSplit.EVALUATION, **packed([constant_policy("a", ("a", "b"), ("x", "y"))], STUDY)
    ),
    "spending": EstimateValues(
        split=RowSplit.EVALUATION, against=0, **packed([TREE] * N_TREES, STUDY)
    ),
    "bins": CountBins(cuts=np.zeros((2, 255))),
    "cells": asking_for_cells(STUDY, GRID),
    "gains": SumNearThresholds(
        trees=TREE.numbers()[None],
        n_cuts=np.zeros(2),
        cuts=np.zeros(0),
        near=np.zeros((1, NEAR_BINS - 1)),
    ),
    "leaves": ValueLeaves(trees=TREE.numbers()[None]),
}
HONEST = {
    "outcomes": OutcomeSums(sums=np.ones((5, 2, 4, 4)), squared_weights=ones(5, 2)),
    "values": Values(
        n_rows=9, of_rows=9, degrees_of_freedom=8, means=ones(3), covariances=np.eye(3)
    ),
    "spending": Values(
        n_rows=9,
        of_rows=9,
        degrees_of_freedom=8,
        means=ones(0),
        covariances=ones(0, 0),
        points=ones(N_TREES + 3, 2),
        squares=np.tile(np.eye(2), (N_TREES + 3, 1, 1)),
    ),
    "bins": BinCounts(counts=np.full((2, 256), 0.0)),
    "cells": CellSums(cells=cells()),
    "gains": ThresholdGains(gains=np.zeros((1, NEAR_BINS))),
    "leaves": LeafValues(
        counts=ones(2),
        shares=np.full(2, 0.5),
        rows=2 * ones(2, 2),
        degrees_of_freedom=ones(2, 2),
        means=ones(2, 2),
        variances=ones(2, 2),
    ),
}


def _study(name):
    return WITHIN if name == "spending" else STUDY


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_answer_has_no_fault(name):
    assert ASKED[name].fault_in(HONEST[name], _study(name), N_ROWS) is None


@pytest.mark.parametrize(
    ("name", "changes", "fault"),
    [
        ("outcomes", {"squared_weights": -ones(5, 2)}, "squared weights is not above 0"),
        ("values", {"means": ones(4)}, "valued 4 policies of 3"),
        ("values", {"n_rows": 0}, "values of 0 of 9 rows"),
        ("values", {"points": ones(1, 2)}, "told what 1 policies and actions of 0 spend"),
        ("values", {"of_rows": 8}, "values of 9 of 8 rows"),
        ("values", {"covariances": np.eye(2)}, "covariances do not fit"),
        ("values", {"degrees_of_freedom": -1}, "degrees of freedom are negative"),
        ("values", {"covariances": -np.eye(3)}, "a square is negative"),
        ("spending", {"points": ones(3, 2)}, "told what 3 policies and actions of 19 spend"),
        ("spending", {"means": ones(2)}, "values were not asked for"),
        ("spending", {"n_rows": 1000, "of_rows": 1000}, "of which it has fewer"),
        ("spending", {"squares": -ones(19, 2, 2)}, "a square is negative"),
        ("spending", {"squares": np.tile([[1, 2], [2, 1]], (19, 1, 1))}, "squares allow"),
        ("bins", {"counts": np.full((2, 256), 0.5)}, "not a whole number"),
        ("bins", {"counts": np.full((2, 256), 1e4)}, "more rows than there are"),
        ("cells", {"cells": cells()[:, :-1]}, "not those of the grid"),
        ("cells", {"cells": np.zeros((1, GRID.n_cells, 5))}, "not those of the actions"),
        ("cells", {"cells": np.cumsum(cells(), axis=1)}, "divide different rows"),
        ("cells", {"cells": 2 * cells()}, "more rows than there are"),
        ("gains", {"gains": np.zeros((2, NEAR_BINS))}, "not those of the questions"),
        ("gains", {"gains": ones(1, NEAR_BINS)}, "a threshold that stays gains something"),
        ("leaves", {"shares": ones(3)}, "not those of the tree"),
        ("leaves", {"shares": ones(2)}, "outside 0 to 1"),
        ("leaves", {"shares": np.array([-0.5, 0.5])}, "outside 0 to 1"),
        ("leaves", {"variances": -ones(2, 2)}, "a variance is negative"),
    ],
)
def test_what_cannot_be_true_is_named(name, changes, fault):
    found = ASKED[name].fault_in(replace(HONEST[name], **changes), _study(name), N_ROWS)
    assert fault in found
