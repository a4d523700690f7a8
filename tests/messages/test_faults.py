"""What cannot be true of an answer is named, field by field; an honest answer has no fault."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedopl.messages.evaluation.policy_values import N_TREES, Value, ValuesByPart
from fedopl.messages.learning.outcome_sums import OutcomeSums, SumOutcomes
from fedopl.messages.message import RowSplit
from fedopl.messages.trees.bin_counts import BinCounts, CountBins
from fedopl.messages.trees.cell_sums import CellSums
from fedopl.messages.trees.threshold_gains import SumNearThresholds, ThresholdGains
from fedopl.policies.kinds import packed
from fedopl.policies.linear import constant_policy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.grid import agreed_grid
from fedopl.policies.trees.nodes import Branch, Leaf, as_array
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
    "values": Value(
        split=RowSplit.EVALUATION, **packed([constant_policy("a", ("a", "b"), ("x", "y"))], STUDY)
    ),
    "spending": Value(split=RowSplit.EVALUATION, against=0, **packed([TREE] * N_TREES, STUDY)),
    "bins": CountBins(cuts=np.zeros((2, 255))),
    "cells": asking_for_cells(STUDY, GRID),
    "gains": SumNearThresholds(
        trees=TREE.numbers()[None],
        n_cuts=np.zeros(2),
        cuts=np.zeros(0),
        near=np.zeros((1, NEAR_BINS - 1)),
    ),
    "leaves": Value(
        split=RowSplit.EVALUATION,
        tree=as_array(TREE.root),
        **packed([constant_policy(arm, ("a", "b"), ("x", "y")) for arm in "ab"], STUDY),
    ),
}


def told(n_leaves, n_parts, n_columns):
    """Values of nine rows in each leaf; every variance is 1, and nothing varies together."""
    shape = n_leaves, n_parts
    return ValuesByPart(
        of_rows=9 * ones(n_leaves),
        shares=ones(n_leaves) / n_leaves,
        n_rows=9 * ones(*shape),
        degrees_of_freedom=8 * ones(*shape),
        means=ones(*shape, n_columns),
        covariances=np.tile(np.eye(n_columns), (*shape, 1, 1)),
    )


HONEST = {
    "outcomes": OutcomeSums(sums=np.ones((5, 2, 4, 4)), squared_weights=ones(5, 2)),
    "values": told(1, 1, 3),
    "spending": told(1, N_TREES + 3, 2),
    "bins": BinCounts(counts=np.full((2, 256), 0.0)),
    "cells": CellSums(cells=cells()),
    "gains": ThresholdGains(gains=np.zeros((1, NEAR_BINS))),
    "leaves": told(2, 2, 3),
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
        ("values", {"means": ones(1, 1, 4)}, "told 1 × 1 × 4 values of 1 × 1 × 3"),
        ("values", {"means": ones(1, 2, 3)}, "told 1 × 2 × 3 values of 1 × 1 × 3"),
        ("values", {"n_rows": np.zeros((1, 1))}, "values of 0 of 9 rows"),
        ("values", {"n_rows": 9 * ones(1, 2)}, "counts are not those of the leaves"),
        ("values", {"of_rows": 8 * ones(1)}, "values of 9 of 8 rows"),
        ("values", {"shares": ones(2)}, "counts are not those of the leaves"),
        ("values", {"covariances": np.eye(2)[None, None]}, "values of 1 × 1 × 3"),
        ("values", {"degrees_of_freedom": -ones(1, 1)}, "degrees of freedom are negative"),
        ("values", {"degrees_of_freedom": 9 * ones(1, 1)}, "more degrees of freedom than rows"),
        ("values", {"covariances": -np.eye(3)[None, None]}, "a square is negative"),
        ("spending", {"means": ones(1, 3, 2)}, "told 1 × 3 × 2 values of 1 × 19 × 2"),
        ("spending", {"n_rows": np.zeros((1, 19))}, "values of 0 of 9 rows"),
        ("spending", {"n_rows": 999 * ones(1, 19), "of_rows": 999 * ones(1)}, "it has fewer"),
        ("spending", {"covariances": -ones(1, 19, 2, 2)}, "a square is negative"),
        (
            "spending",
            {"covariances": np.tile([[1, 2], [2, 1]], (1, 19, 1, 1))},
            "squares allow",
        ),
        ("bins", {"counts": np.full((2, 256), 0.5)}, "not a whole number"),
        ("bins", {"counts": np.full((2, 256), 1e4)}, "more rows than there are"),
        ("cells", {"cells": cells()[:, :-1]}, "not those of the grid"),
        ("cells", {"cells": np.zeros((1, GRID.n_cells, 5))}, "not those of the actions"),
        ("cells", {"cells": np.cumsum(cells(), axis=1)}, "divide different rows"),
        ("cells", {"cells": 2 * cells()}, "more rows than there are"),
        ("gains", {"gains": np.zeros((2, NEAR_BINS))}, "not those of the questions"),
        ("gains", {"gains": ones(1, NEAR_BINS)}, "a threshold that stays gains something"),
        ("leaves", {"means": ones(3, 2, 3)}, "told 3 × 2 × 3 values of 2 × 2 × 3"),
        ("leaves", {"shares": ones(3)}, "counts are not those of the leaves"),
        ("leaves", {"shares": ones(2)}, "outside 0 to 1"),
        ("leaves", {"shares": np.array([-0.5, 0.5])}, "outside 0 to 1"),
        ("leaves", {"means": 2 * ones(2, 2, 3)}, "outside 0 to 1"),
        ("leaves", {"of_rows": np.array([9.0, 0.0])}, "of which it has fewer"),
        ("leaves", {"covariances": -ones(2, 2, 3, 3)}, "a square is negative"),
    ],
)
def test_what_cannot_be_true_is_named(name, changes, fault):
    found = ASKED[name].fault_in(replace(HONEST[name], **changes), _study(name), N_ROWS)
    assert fault in found
