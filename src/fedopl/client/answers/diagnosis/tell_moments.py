"""How large scores are: their mean squares, which bounds on regret are made of (Theorem 1)."""

from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.answers.diagnosis.declared_bounds import beyond_declared
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.local.score_means import effective_rows_behind
from fedopl.client.scoring.values import joint_estimate
from fedopl.client.workspace import Workspace
from fedopl.messages.diagnosis.score_moments import ScoreMoments, TellMoments
from fedopl.messages.refusal import RefusalCode


def answer(space: Workspace, _query: TellMoments) -> ScoreMoments:
    """Mean squares; one that rests on a few rows is suppressed."""
    space.check_rows_for_sums()
    if beyond_declared(space):
        raise RefusedError(RefusalCode.BEYOND_DECLARED)
    rows, data = space.training, space.data
    squares = space.scores[rows] ** 2  # (n_training, n_actions)
    weights = np.ones(len(squares)) if data.weights is None else data.weights[rows]
    groups = None if data.groups is None else data.groups[rows]
    largest = _largest(squares)
    found = [
        _moment(largest, weights, groups, _discloses_few(largest, squares, weights, space)),
        *(_moment(own, weights, groups, _rests_on_few(own * weights, space)) for own in squares.T),
    ]
    fields: dict[str, Any] = {name: np.array([one[name] for one in found]) for name in found[0]}
    return ScoreMoments(**fields)


def _largest(squares: FloatArray) -> FloatArray:  # (n_rows,)
    """The largest of each row's squares that are known, NaN where none is."""
    known = np.isfinite(squares)
    largest = np.where(known, squares, 0.0).max(axis=1)
    return np.where(known.any(axis=1), largest, np.nan)


def _discloses_few(
    largest: FloatArray, squares: FloatArray, weights: FloatArray, space: Workspace
) -> bool:
    """Whether the mean, or what is left of it less an action's, rests on a few rows.

    Where one action has the largest score in all rows but a few, the difference would be theirs.
    """
    left = np.column_stack([largest, largest[:, None] - np.nan_to_num(squares)])
    return _rests_on_few(left * weights[:, None], space)


def _rests_on_few(pulls: FloatArray, space: Workspace) -> bool:
    """Whether any column effectively rests on fewer rows than a sum needs."""
    columns = np.nan_to_num(pulls).reshape(len(pulls), -1)
    return not effective_rows_behind(columns) >= space.rows_needed


def _moment(
    squares: FloatArray, weights: FloatArray, groups: Any, suppressed: bool
) -> dict[str, float]:
    """The mean of known squares, with its variance and what it rests on."""
    found = None if suppressed else joint_estimate(squares[:, None], weights, groups)
    if found is None:
        return dict.fromkeys(("told", "rows", "degrees_of_freedom", "means", "variances"), 0.0)
    return {
        "told": 1.0,
        "rows": float(found.n_rows),
        "degrees_of_freedom": float(found.degrees_of_freedom),
        "means": float(found.means[0]),
        "variances": float(found.covariances[0, 0]),
    }
