"""What is expected in each leaf of a finished tree, on rows that had no part in it."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.asked_policies import Decides, deciders, tree_of
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.scoring.net_scores import net_rewards
from fedopl.client.scoring.values import JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.message import RowSplit
from fedopl.messages.trees.leaf_values import N_BY_FOLD, LeafValues, ValueLeaves
from fedopl.policies.kinds import KINDS
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import leaf_positions, leaves_of
from fedopl.solvers.fold_variances import OF_JUMPS


def answer(space: Workspace, query: ValueLeaves) -> LeafValues:
    """Shares and values of leaves; those with few rows are left out."""
    study, needed = space.study, max(space.limits.minimum_cell, 1)
    root = tree_of(space, query.trees[-1], range(study.n_actions))
    field = KINDS[TreePolicy.kind].message_field
    by_fold = deciders(space, [{field: numbers} for numbers in query.trees[:-1]])
    split = RowSplit.TRAINING if by_fold else RowSplit.EVALUATION
    if not by_fold:
        space.check_held_out()
    actions = np.array([leaf.action for leaf in leaves_of(root)])
    found = _Leaves(len(actions), N_BY_FOLD if by_fold else study.n_actions)
    for chunk in space.scored.evaluated(space.unscored_chunks()) if by_fold else space.chunks():
        rows = chunk.rows(split)
        contexts = chunk.data.contexts[rows]
        leaf = leaf_positions(root, study.columns, contexts)
        if by_fold:
            numbers, apart = _across_folds(space, chunk, by_fold, actions[leaf])
            found.apart += np.bincount(leaf, apart, minlength=len(actions))
        else:
            numbers = space.obeyed.effective(contexts, chunk.scores[rows])
        found.add(leaf, numbers, chunk.weights(rows), chunk.data.groups_of(rows))
    enough = found.counts >= needed
    counts = np.where(enough, found.counts, 0).astype(np.float64)
    shares = np.where(enough, found.weights / found.weights.sum(), 0.0)
    return LeafValues(counts=counts, shares=shares, **found.fields(needed))


def _across_folds(
    space: Workspace, chunk: ScoredChunk, by_fold: Sequence[Decides], given: IntArray
) -> tuple[FloatArray, FloatArray]:  # (n_rows, 3), (n_rows,)
    """The numbers of each row, and how many pairs of trees decide differently about it.

    The score of what the tree without its fold decides, the gain of this over what was done, and
    whether that tree decides as the leaf does.
    """
    rows = chunk.training
    decisions = np.stack([decide(chunk.data.contexts[rows]) for decide in by_fold])
    place = np.arange(decisions.shape[1])
    decided = decisions[chunk.folds.of_row[rows], place]
    scores = chunk.scores[rows][place, decided]
    gains = scores - net_rewards(chunk.data, rows, space.study)
    alike = np.where(np.isfinite(scores), decided == given, np.nan)
    pairs = [one != other for one, other in combinations(decisions, 2)]
    return np.column_stack([scores, gains, alike]), np.mean(pairs, axis=0)


class _Leaves:
    """Sums over the rows of each leaf, and over those that have each number."""

    def __init__(self, n_leaves: int, n_numbers: int) -> None:
        self._shape = (n_leaves, n_numbers)
        self.counts: IntArray = np.zeros(n_leaves, np.int64)
        self.weights = np.zeros(n_leaves)
        # How many rows two of the trees by fold decide differently, on average.
        self.apart = np.zeros(n_leaves)
        self._known = np.zeros(self._shape, np.int64)
        self._sums = [[JointSums() for _ in range(n_numbers)] for _ in range(n_leaves)]

    def add(
        self,
        leaf: IntArray,
        numbers: FloatArray,
        weights: FloatArray | None,
        groups: IntArray | None,
    ) -> None:
        """Add rows, each in its leaf."""
        n_leaves, n_numbers = self._shape
        self.counts += np.bincount(leaf, minlength=n_leaves)
        self.weights += np.bincount(leaf, weights, minlength=n_leaves)
        for place in range(n_leaves):
            own = leaf == place
            weight = None if weights is None else weights[own]
            group = None if groups is None else groups[own]
            for number in range(n_numbers):
                column = numbers[own, number, None]
                self._known[place, number] += np.count_nonzero(np.isfinite(column))
                self._sums[place][number].add(column, weight, group)

    def fields(self, needed: int) -> dict[str, Any]:
        """Each number of each leaf that has enough rows for it, zeros elsewhere.

        Variances are larger where the trees by fold decide differently, as those of all rows are.
        """
        names = ("rows", "degrees_of_freedom", "means", "variances")
        numbers = np.zeros((len(names), *self._shape))
        for place, number in np.argwhere(self._known >= needed):
            found = self._sums[place][number].estimate()
            if found is not None:
                numbers[:, place, number] = found.first_column
        numbers[-1] *= (1 + OF_JUMPS * self.apart / np.maximum(self.counts, 1))[:, None]
        return dict(zip(names, numbers, strict=True))
