"""The value of each action in each leaf of a finished tree, on held-out rows."""

from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.asked_policies import tree_of
from fedopl.client.scoring.values import JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.message import RowSplit
from fedopl.messages.trees.leaf_values import LeafValues, ValueLeaves
from fedopl.policies.trees.nodes import leaf_positions, leaves_of


def answer(space: Workspace, query: ValueLeaves) -> LeafValues:
    """Shares and values of leaves; those with few rows are left out."""
    study, needed = space.study, max(space.limits.minimum_cell, 1)
    root = tree_of(space, query.tree, range(study.n_actions))
    space.check_held_out()
    found = _Leaves(len(leaves_of(root)), study.n_actions)
    for chunk in space.chunks():
        rows = chunk.rows(RowSplit.EVALUATION)
        contexts = chunk.data.contexts[rows]
        leaf = leaf_positions(root, study.columns, contexts)
        scores = space.obeyed.effective(contexts, chunk.scores[rows])
        found.add(leaf, scores, chunk.weights(rows), chunk.data.groups_of(rows))
    enough = found.counts >= needed
    counts = np.where(enough, found.counts, 0).astype(np.float64)
    shares = np.where(enough, found.weights / found.weights.sum(), 0.0)
    return LeafValues(counts=counts, shares=shares, **found.fields(needed))


class _Leaves:
    """Sums over the rows of each leaf, and over those that have each action's score."""

    def __init__(self, n_leaves: int, n_actions: int) -> None:
        self._shape = (n_leaves, n_actions)
        self.counts: IntArray = np.zeros(n_leaves, np.int64)
        self.weights = np.zeros(n_leaves)
        self._known = np.zeros(self._shape, np.int64)
        self._sums = [[JointSums() for _ in range(n_actions)] for _ in range(n_leaves)]

    def add(
        self,
        leaf: IntArray,
        scores: FloatArray,
        weights: FloatArray | None,
        groups: IntArray | None,
    ) -> None:
        """Add rows, each in its leaf."""
        n_leaves, n_actions = self._shape
        self.counts += np.bincount(leaf, minlength=n_leaves)
        self.weights += np.bincount(leaf, weights, minlength=n_leaves)
        for place in range(n_leaves):
            own = leaf == place
            weight = None if weights is None else weights[own]
            group = None if groups is None else groups[own]
            for action in range(n_actions):
                score = scores[own, action, None]
                self._known[place, action] += np.count_nonzero(np.isfinite(score))
                self._sums[place][action].add(score, weight, group)

    def fields(self, needed: int) -> dict[str, Any]:
        """The value of each action in each leaf that has enough rows, zeros elsewhere."""
        names = ("rows", "degrees_of_freedom", "means", "variances")
        numbers = np.zeros((len(names), *self._shape))
        for place, action in np.argwhere(self._known >= needed):
            found = self._sums[place][action].estimate()
            if found is not None:
                numbers[:, place, action] = found.first_column
        return dict(zip(names, numbers, strict=True))
