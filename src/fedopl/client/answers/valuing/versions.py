"""A candidate's versions: one policy for all rows, or one for each fold, learned without it.

How often versions decide differently says how much larger variances are (`fold_variances`).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.asked_policies import Decides
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.scoring.values import ROWS_AT_ONCE, JointEstimate
from fedopl.client.workspace import Workspace
from fedopl.solvers.fold_variances import enlarged

Versions = Sequence[Decides]


def decided_in(chunk: ScoredChunk, rows: slice, versions: Versions) -> IntArray:  # (n_rows,)
    """What a candidate decides in these rows; with a version for each fold, these are training."""
    contexts = chunk.data.contexts
    if len(versions) == 1:
        return versions[0](contexts[rows])
    pairs = zip(chunk.fold_slices, versions, strict=True)
    return np.concatenate([decide(contexts[fold]) for fold, decide in pairs])


def of_own_folds(chunk: ScoredChunk, decided: Sequence[IntArray]) -> IntArray:  # (n_rows,)
    """In each row, what the version for its fold decides, or the only one."""
    if len(decided) == 1:
        return decided[0]
    pairs = zip(decided, chunk.fold_slices, strict=True)
    return np.concatenate([codes[fold] for codes, fold in pairs])


def with_wider_variances(
    space: Workspace, found: JointEstimate, candidates: Sequence[Versions]
) -> JointEstimate:
    """The same with variances of values, and of differences of two, as large as they should be.

    A candidate without versions, such as what was done, is the same in every fold.
    """
    apart, are_linear = _apart(space, candidates), space.study.policy.kind == "linear"
    return replace(found, covariances=enlarged(found.covariances, apart, are_linear=are_linear))


def _apart(
    space: Workspace, candidates: Sequence[Versions]
) -> FloatArray:  # (n_candidates, n_candidates)
    """How often two versions decide differently, of a candidate or of either of two."""
    apart = np.zeros((len(candidates), len(candidates)))
    for chunk in space.unscored_chunks():
        training = chunk.data.contexts[chunk.training]
        for start in range(0, len(training), ROWS_AT_ONCE):
            differ = _differ(training[start : start + ROWS_AT_ONCE], candidates)
            both = differ @ differ.T  # whole numbers
            apart += np.diagonal(both) + np.diagonal(both)[:, None] - both
    folds = space.study.nuisances.folds
    apart /= folds * (folds - 1) / 2 * space.n_training
    return apart


def _differ(
    contexts: FloatArray, candidates: Sequence[Versions]
) -> NDArray[np.float32]:  # (n_candidates, n_pairs * n_rows)
    """One where two versions of a candidate decide differently, for each two versions."""
    n_pairs = math.comb(max(map(len, candidates)), 2)
    differ = np.zeros((len(candidates), n_pairs, len(contexts)), np.float32)
    for own, versions in zip(differ, candidates, strict=True):
        if len(versions) < 2:
            continue  # an arm is the same in every fold
        decided = [decide(contexts) for decide in versions]
        for place, (one, other) in enumerate(combinations(decided, 2)):
            own[place] = one != other
    return differ.reshape(len(candidates), -1)
