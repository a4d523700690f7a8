"""What candidates are worth in each leaf of a finished tree, on rows that had no part in it."""

from itertools import combinations

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.asked_policies import deciders, policies_in, tree_of
from fedopl.client.answers.valuing.estimate_values import by_part, valued_chunks
from fedopl.client.answers.valuing.versions import of_own_folds
from fedopl.client.scoring.net_scores import net_rewards
from fedopl.client.scoring.values import JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.policy_values import Value, ValuesByPart
from fedopl.policies.trees.nodes import leaf_positions, leaves_of
from fedopl.solvers.fold_variances import OF_JUMPS


def values_in_leaves(space: Workspace, query: Value) -> ValuesByPart:
    """Values of candidates in leaves; leaves and candidates with few rows are left out.

    Variances are larger where versions of a candidate decide differently, as those of all rows are.
    """
    study, needed = space.study, max(space.limits.minimum_cell, 1)
    root = tree_of(space, query.tree, range(study.n_actions))
    given = np.array([leaf.action for leaf in leaves_of(root)])
    candidates = query.of_candidates(deciders(space, policies_in(query)))
    sums = [[JointSums() for _ in candidates] for _ in given]
    counts, weights = np.zeros((2, len(given)))
    apart = np.zeros((len(given), len(candidates)))
    for chunk in valued_chunks(space, query.split):
        rows = chunk.rows(query.split)
        contexts, scores = chunk.data.contexts[rows], chunk.scores[rows]
        weight, groups = chunk.weights(rows), chunk.data.groups_of(rows)
        done = net_rewards(chunk.data, rows, study)
        leaf = leaf_positions(root, study.columns, contexts)
        counts += np.bincount(leaf, minlength=len(given))
        weights += np.bincount(leaf, weight, minlength=len(given))
        for place, versions in enumerate(candidates):
            decisions = [decide(contexts) for decide in versions]
            decided = of_own_folds(chunk, decisions)
            worth = scores[np.arange(len(scores)), decided]
            columns = np.column_stack([worth, worth - done, decided == given[leaf]])
            for own, of_leaf in enumerate(sums):
                inside = np.where((leaf == own)[:, None], columns, np.nan)
                of_leaf[place].add(inside, weight, groups)
            apart[:, place] += np.bincount(leaf, _share_apart(decisions), minlength=len(given))
    enough = counts >= needed
    return by_part(
        [[own.estimate() for own in of_leaf] for of_leaf in sums],
        of_rows=np.where(enough, counts, 0.0),
        shares=np.where(enough, weights / weights.sum(), 0.0),
        wider=1 + OF_JUMPS * apart / np.maximum(counts, 1)[:, None],
        needed=needed,
    )


def _share_apart(decisions: list[IntArray]) -> FloatArray:  # (n_rows,)
    """In which share of every two versions these decide differently about a row."""
    pairs = [one != other for one, other in combinations(decisions, 2)]
    return np.mean(pairs, axis=0) if pairs else np.zeros(len(decisions[0]))
