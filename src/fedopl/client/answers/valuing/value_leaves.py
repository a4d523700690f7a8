"""What is expected in each leaf of a finished tree, on rows that had no part in it."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.asked_policies import Decides, deciders, tree_of
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.scoring.net_scores import net_rewards
from fedopl.client.scoring.values import TOLD, ColumnSums
from fedopl.client.workspace import Workspace
from fedopl.messages.message import RowSplit
from fedopl.messages.trees.leaf_values import N_BY_FOLD, LeafValues, ValueLeaves
from fedopl.policies.kinds import KINDS
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import leaf_positions, leaves_of
from fedopl.solvers.fold_variances import OF_JUMPS


def answer(space: Workspace, query: ValueLeaves) -> LeafValues:
    """Shares and values of leaves; those with few rows, and numbers of few rows, are left out.

    Variances are larger where the trees by fold decide differently, as those of all rows are.
    """
    study, needed = space.study, max(space.limits.minimum_cell, 1)
    root = tree_of(space, query.trees[-1], range(study.n_actions))
    field = KINDS[TreePolicy.kind].message_field
    by_fold = deciders(space, [{field: numbers} for numbers in query.trees[:-1]])
    split = RowSplit.TRAINING if by_fold else RowSplit.EVALUATION
    if not by_fold:
        space.check_held_out()
    actions = np.array([leaf.action for leaf in leaves_of(root)])
    sums = [ColumnSums(N_BY_FOLD if by_fold else study.n_actions) for _ in actions]
    counts, weights, apart = np.zeros((3, len(actions)))  # of leaves
    for chunk in space.scored.evaluated(space.unscored_chunks()) if by_fold else space.chunks():
        rows = chunk.rows(split)
        contexts, weight = chunk.data.contexts[rows], chunk.weights(rows)
        leaf = leaf_positions(root, study.columns, contexts)
        if by_fold:
            numbers, differ = _across_folds(space, chunk, by_fold, actions[leaf])
            apart += np.bincount(leaf, differ, minlength=len(actions))
        else:
            numbers = space.obeyed.effective(contexts, chunk.scores[rows])
        counts += np.bincount(leaf, minlength=len(actions))
        weights += np.bincount(leaf, weight, minlength=len(actions))
        for place, own in enumerate(sums):
            inside = np.where((leaf == place)[:, None], numbers, np.nan)
            own.add(inside, weight, chunk.data.groups_of(rows))
    told = np.stack([own.told(needed) for own in sums], axis=1)
    told[-1] *= (1 + OF_JUMPS * apart / np.maximum(counts, 1))[:, None]
    enough = counts >= needed
    return LeafValues(
        counts=np.where(enough, counts, 0.0),
        shares=np.where(enough, weights / weights.sum(), 0.0),
        **dict(zip(TOLD, told, strict=True)),
    )


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
