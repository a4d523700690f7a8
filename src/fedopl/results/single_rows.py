"""What rests on single rows: of the values of actions over all clients, or at one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.model_fit import ModelFit

if TYPE_CHECKING:
    from fedopl.results.record import Record

LARGE_WEIGHT, LARGE_INFLUENCE = 1 / 16, 1 / 2


@dataclass(frozen=True, kw_only=True)
class SingleRow:
    """The most that one row has of the value of giving one action to everybody."""

    action: str
    weight: float  # the share of all weight behind the value
    influence: float  # how far the value moves without the row, in its standard errors

    @property
    def is_heavy(self) -> bool:
        """Whether the row has a large share of all weight."""
        return self.weight > LARGE_WEIGHT

    @property
    def moves_it(self) -> bool:
        """Whether the value moves by more than half of its standard error."""
        return self.influence > LARGE_INFLUENCE


def single_rows(record: "Record") -> dict[str, SingleRow]:
    """By action, what one row has of its value in the mixture of all clients that reported."""
    return _single_rows(record, record.fitted)


def single_rows_at(record: "Record", client: str) -> dict[str, SingleRow]:
    """By action, what one row has of its value at this client."""
    return _single_rows(record, {client: record.fitted[client]})


def _single_rows(record: "Record", fitted: Mapping[str, ModelFit]) -> dict[str, SingleRow]:
    names = sorted(fitted)
    if not names:
        return {}
    told = np.array([fitted[name].of("effective_rows") > 0 for name in names])
    counted = told * np.array([[record.mixture.get(name, 0.0)] for name in names])
    totals = counted.sum(axis=0, initial=0.0)
    weights = np.divide(counted, totals, out=np.zeros_like(counted), where=totals > 0)
    own_weights = np.array([fitted[name].of("largest_weights") for name in names])
    own_influences = np.array([fitted[name].of("largest_influences") for name in names])
    heaviest = (weights * own_weights).max(axis=0)
    furthest = (_shares_of_noise(record, names, weights) * own_influences).max(axis=0)
    return {
        action: SingleRow(action=action, weight=float(heavy), influence=float(far))
        for action, total, heavy, far in zip(
            record.study.actions, totals, heaviest, furthest, strict=True
        )
        if total > 0
    }


def _shares_of_noise(
    record: "Record", names: list[str], weights: FloatArray
) -> FloatArray:  # (n_clients, n_actions)
    """How much of the standard error of each action's value is of each client, at the most 1.

    A value that moves by a part of one client's error moves by this much less of everybody's. The
    errors are those of the scores that clients learned from.
    """
    if len(names) == 1:
        return np.ones_like(weights)
    own = weights * np.array([_standard_errors(record, name) for name in names])
    total = np.sqrt((own**2).sum(axis=0))
    # Where no client has scores, nothing says whose noise counts less.
    return np.asarray(np.divide(own, total, out=np.ones_like(own), where=total > 0))


def _standard_errors(record: "Record", name: str) -> FloatArray:  # (n_actions,)
    """The standard error of each action's value at one client; 0 where it has no scores."""
    sums = record.statistics.sums.get(name)
    if sums is None:
        return np.zeros(record.study.n_actions)
    # The last column is the constant, so its product is the mean score.
    variances = np.maximum(sums.squares - sums.products[:, -1] ** 2, 0.0)
    rows = np.maximum(record.rows[name] * sums.shares, 1.0)
    return np.where(sums.shares > 0, np.sqrt(variances / rows), 0.0)
