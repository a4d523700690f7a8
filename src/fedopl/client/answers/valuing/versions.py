"""A candidate's versions: one policy for all rows, or one for each fold, learned without it.

Folds are not independent: each contributes to the policies that value the others. The less stable
these policies are, the more it contributes. So variances exceed those of independent rows. By up to
what factor, was measured on made-up rows, with and without effects, with and without groups: by a
number below times how often two versions decide differently. For differences, versions of either
side count.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, combinations_with_replacement

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.answers.asked_policies import Decides
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.scoring.values import JointEstimate
from fedopl.client.workspace import Workspace

# Linear policies change little by little; trees and candidates are others all at once.
OF_VALUES, OF_JUMPS, OF_DIFFERENCES = 1.5, 2.0, 2.0

Versions = Sequence[Decides]


def decided_in(chunk: ScoredChunk, rows: slice, versions: Versions) -> IntArray:  # (n_rows,)
    """What a candidate decides in these rows; with a version for each fold, these are training."""
    contexts = chunk.data.contexts
    if len(versions) == 1:
        return versions[0](contexts[rows])
    pairs = zip(chunk.fold_slices, versions, strict=True)
    return np.concatenate([decide(contexts[fold]) for fold, decide in pairs])


def with_wider_variances(
    space: Workspace, found: JointEstimate, candidates: Sequence[Versions]
) -> JointEstimate:
    """The same with variances of values, and of differences of two, as large as they should be.

    A candidate without versions, such as what was done, is the same in every fold. Contrasts of
    more than two values have no meaning then.
    """
    wider = _wider(space, candidates)
    if wider.max() == 1:
        return found
    own = np.diagonal(found.covariances)
    apart = own + own[:, None] - 2 * found.covariances
    own = np.diagonal(wider) * own
    return replace(found, covariances=(own + own[:, None] - wider * apart) / 2)


def _wider(
    space: Workspace, candidates: Sequence[Versions]
) -> FloatArray:  # (n_candidates, n_candidates)
    """By what factor the variances of values, and of their differences, are larger."""
    apart = np.zeros((len(candidates), len(candidates)))
    for chunk in space.unscored_chunks():
        contexts = chunk.data.contexts[chunk.training]
        differ = [_differ([decide(contexts) for decide in own]) for own in candidates]
        counts = [np.count_nonzero(own) for own in differ]
        for first, second in combinations_with_replacement(range(len(differ)), 2):
            either = counts[first] + counts[second]
            if counts[first] and counts[second]:
                either -= np.count_nonzero(differ[first] & differ[second])
            apart[first, second] += either
    apart += np.triu(apart, 1).T
    folds = space.study.nuisances.folds
    apart /= folds * (folds - 1) / 2 * space.n_training
    is_linear = space.study.policy.kind == "linear"
    factors = np.full_like(apart, OF_DIFFERENCES)
    np.fill_diagonal(factors, OF_VALUES if is_linear else OF_JUMPS)
    return 1 + factors * apart


def _differ(decided: Sequence[IntArray]) -> BoolArray:  # (n_pairs, n_rows), or none
    """Where each two versions decide differently."""
    pairs = [one != other for one, other in combinations(decided, 2)]
    return np.stack(pairs) if pairs else np.zeros((1, 1), dtype=bool)
