"""The value of each action in each leaf of a finished tree, on held-out rows."""

from typing import Any

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.answers.released_groups import tree_of
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.scoring.values import JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.trees.leaf_values import LeafValues, ValueLeaves
from fedopl.policies.trees.nodes import leaf_positions, leaves_of


def answer(space: Workspace, query: ValueLeaves) -> LeafValues:
    """Shares and values of leaves; those with few rows are suppressed.

    The suppressed leaves together never hold just a few rows.
    """
    study = space.study
    needed = space.limits.rows_needed(2 * study.n_actions)  # a mean and a variance each
    root = tree_of(space, query.tree, range(study.n_actions))
    if not space.n_rows(RowSplit.EVALUATION):
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if needed > 1:  # leaves of several trees could be differenced
        space.history.require_first("leaves", tree=query.tree)
    decided = np.array([leaf.action for leaf in leaves_of(root)])
    found = _Leaves(len(decided), study.n_actions)
    for chunk in space.chunks():
        rows = chunk.rows(RowSplit.EVALUATION)
        contexts = chunk.data.contexts[rows]
        leaf = leaf_positions(root, study.columns, contexts)
        scores = space.obeyed.effective(contexts, chunk.scores[rows])
        found.add(leaf, scores, chunk.weights(rows), chunk.data.groups_of(rows))
    released = _released_leaves(found.counts, decided, needed)
    counts = space.noisy(found.counts.astype(np.float64), "leaves", query.tree)
    shares = np.where(released, found.weights / found.weights.sum(), 0.0)
    return LeafValues(counts=counts, shares=shares, **found.fields(released, needed))


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

    def fields(self, released: BoolArray, needed: int) -> dict[str, Any]:
        """The value of each action in each leaf that has enough rows, zeros elsewhere."""
        names = ("rows", "degrees_of_freedom", "means", "variances")
        numbers = np.zeros((len(names), *self._shape))
        for action, known in enumerate(self._known.T):
            alike = np.zeros_like(known)
            for place in np.flatnonzero(_released_leaves(known, alike, needed, released)):
                found = self._sums[place][action].estimate()
                if found is not None:
                    numbers[:, place, action] = found.first_column
        return dict(zip(names, numbers, strict=True))


def _released_leaves(
    counts: IntArray, decided: IntArray, needed: int, among: BoolArray | None = None
) -> BoolArray:  # (n_leaves,)
    """Leaves with enough rows, except those that would disclose the others by differencing.

    The sum over suppressed leaves follows from totals: for each action, and for the tree's
    decisions. These sums differ in the rows for which the tree decides on another action. There
    must be no such rows, or enough of them. If it is enough to suppress one more leaf, that is the
    smallest such leaf.
    """
    released: BoolArray = (counts >= needed) & (counts > 0)
    released &= True if among is None else among
    places = np.arange(len(counts))

    def disclose_few(released: BoolArray) -> bool:
        left = np.bincount(decided, np.where(released, 0, counts))
        others = np.append(left.sum() - left, left.sum())
        return bool(released.any() and ((others > 0) & (others < needed)).any())

    while disclose_few(released):
        more = np.flatnonzero(released).tolist()
        alone = [place for place in more if not disclose_few(released & (places != place))]
        released &= places != min(alone or more, key=lambda place: counts[place])
    return released
