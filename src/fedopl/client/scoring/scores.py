"""Score matrices: one row for each logged row, one column for each action.

Policies are learned from `aipw_scores`. The others are here for comparison. The direct method
trusts the outcome model alone. Inverse propensity weighting trusts the propensities alone. The
self-normalised kinds trade a little bias for less variance.

A score without any data is NaN: that of an action never taken in the rows a fold learns from.
"""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray, check_length, check_probability, frozen
from fedopl.base.errors import refuse_to_leave
from fedopl.client.scoring.cross_fit import Nuisances
from fedopl.client.table.logged_data import LoggedData


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Scores:
    """A score for each action in each row; the mean over a policy's decisions is its value."""

    values: FloatArray  # (n_rows, n_actions), NaN where there are no data about the action
    kind: str
    action_names: tuple[str, ...]
    clipped_rows: IntArray  # (n_actions,)  rows that took the action with a clipped propensity
    weights: FloatArray | None  # (n_rows,)
    groups: IntArray | None  # (n_rows,)

    __reduce_ex__ = refuse_to_leave

    @property
    def n_rows(self) -> int:
        """The number of scored rows."""
        return len(self.values)

    def __repr__(self) -> str:
        n_rows, n_actions = self.values.shape
        clipped = f", {self.clipped_rows.sum():,} clipped" if self.clipped_rows.any() else ""
        return f"Scores({self.kind}, {n_rows:,} rows, {n_actions:,} actions{clipped})"


def aipw_scores(data: LoggedData, nuisances: Nuisances, *, clip: float | None = None) -> Scores:
    """Γ̂(a) = μ̂(x; a) + 1{A = a}·(Y − μ̂(x; a))·ŵ(x; a), Algorithm 3.

    With `clip`, propensities below it are raised to it, and `clipped_rows` counts them.
    """
    inverse, clipped = _inverse_propensities(data, nuisances, clip)
    return _scores(data, nuisances.outcome_means, inverse, clipped, "aipw")


def self_normalised_aipw_scores(
    data: LoggedData, nuisances: Nuisances, *, clip: float | None = None
) -> Scores:
    """AIPW with each action's inverse propensities scaled to their expected sum."""
    inverse, clipped = _inverse_propensities(data, nuisances, clip)
    inverse = _normalised(data, inverse)
    return _scores(data, nuisances.outcome_means, inverse, clipped, "self-normalised aipw")


def dm_scores(data: LoggedData, nuisances: Nuisances) -> Scores:
    """μ̂(x; a): the direct method, right only if the outcome model is right."""
    none = np.zeros(data.n_actions, np.int64)
    return _scores(data, nuisances.outcome_means, None, none, "direct method")


def ipw_scores(data: LoggedData, nuisances: Nuisances, *, clip: float | None = None) -> Scores:
    """1{A = a}·Y·ŵ(x; a): right only if the propensities are right."""
    inverse, clipped = _inverse_propensities(data, nuisances, clip)
    return _scores(data, None, inverse, clipped, "ipw")


def self_normalised_ipw_scores(
    data: LoggedData, nuisances: Nuisances, *, clip: float | None = None
) -> Scores:
    """IPW with each action's inverse propensities scaled to their expected sum."""
    inverse, clipped = _inverse_propensities(data, nuisances, clip)
    return _scores(data, None, _normalised(data, inverse), clipped, "self-normalised ipw")


def _inverse_propensities(
    data: LoggedData, nuisances: Nuisances, clip: float | None
) -> tuple[FloatArray, IntArray]:
    """ŵ(X; A) of the logged action, NaN where not supported, and counts of clipped rows."""
    check_length(nuisances.outcome_means, "nuisances", data.n_rows)
    logged = nuisances.propensities.reshape(-1).take(_logged_places(data))
    clipped = np.zeros(data.n_actions, np.int64)
    if clip is not None:
        check_probability(clip, "clip")
        clipped = np.bincount(data.actions[logged < clip], minlength=data.n_actions)
        logged = np.maximum(logged, clip)
    inverse = np.empty_like(logged)
    inverse.fill(np.nan)
    return np.divide(1.0, logged, out=inverse, where=logged > 0), clipped


def _normalised(data: LoggedData, inverse: FloatArray) -> FloatArray:
    """Inverse propensities, scaled so that 1{A = a}·ŵ has mean one over rows for each action."""
    weights = data.weights_of()
    total = np.bincount(data.actions, weights * inverse, data.n_actions)
    scale: FloatArray = np.divide(weights.sum(), total, out=np.ones_like(total), where=total != 0)
    return inverse * scale[data.actions]


def _scores(
    data: LoggedData,
    means: FloatArray | None,  # (n_rows, n_actions), zero if None
    inverse: FloatArray | None,  # (n_rows,), without a correction if None
    clipped: IntArray,
    kind: str,
) -> Scores:
    """The means, corrected by the observed outcome of the logged action."""
    values = np.zeros((data.n_rows, data.n_actions)) if means is None else means.copy()
    if inverse is not None:
        flat, logged = values.reshape(-1), _logged_places(data)
        predicted = flat[logged]
        flat[logged] = predicted + (data.rewards - predicted) * inverse
    return Scores(
        values=frozen(values),
        kind=kind,
        action_names=data.action_names,
        clipped_rows=clipped,
        weights=data.weights,
        groups=data.groups,
    )


def _logged_places(data: LoggedData) -> IntArray:
    """The place of each row's logged action in a flattened (n_rows, n_actions) matrix."""
    return np.arange(0, data.n_rows * data.n_actions, data.n_actions) + data.actions
