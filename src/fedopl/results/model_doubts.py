"""Whether models fit well enough for the claims: richer models, balance, and single rows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL
from fedopl.messages.evaluation.model_fit import ModelFit
from fedopl.results.value_tables import arm_name
from fedopl.study.mixture import renormalised

if TYPE_CHECKING:
    from fedopl.results.record import Record

TOO_SIMPLE = "the models are too simple for these data"
UNEXPLAINED = "propensities do not explain what was done"
OF_A_PART = "values rest on a part of the rows that policies selected"

# A value is doubted if richer models surely move it, and by a part of its stated standard error:
# with a shift of half an error, an interval of 95 % covers 92 %.
SURELY, MATTERS = 4.0, 0.5
# Takers are unbalanced if they surely differ from all rows by this many standard deviations.
UNBALANCED, SURELY_UNBALANCED = 0.1, 5.0
# Beyond this many, values depend on outcome models alone, and few rows can prove these wrong.
BADLY_UNBALANCED = 0.25
# A single row has much of a value if it has this share of all weight, or moves it by this much of
# its standard error.
LARGE_WEIGHT, LARGE_INFLUENCE = 1 / 16, 1 / 2


@dataclass(frozen=True, kw_only=True)
class ValueShift:
    """The shift of a value, and its standard error."""

    value: float
    standard_error: float

    def matters(self, stated: float) -> bool:
        """Whether the shift exceeds chance, and is not small beside a stated standard error."""
        surely = abs(self.value) > SURELY * self.standard_error
        return surely and abs(self.value) > MATTERS * stated


@dataclass(frozen=True, kw_only=True)
class ActionFit:
    """How well models fit for one action, over all clients or at one."""

    action: str
    clients: tuple[str, ...]  # who reported it
    moved: ValueShift  # the value of giving it to everybody, by richer outcome models
    explained: float  # the share of what outcome models leave that richer ones explain
    trimmed: ValueShift  # the same value, if no propensity counts as less than 0.05
    imbalance: float  # of the worst feature, in standard deviations
    feature: str  # which that is
    is_unbalanced: bool

    @property
    def is_badly_unbalanced(self) -> bool:
        """Whether weighted takers differ so much that values depend on outcome models alone."""
        return self.is_unbalanced and abs(self.imbalance) > BADLY_UNBALANCED


def action_fits(record: "Record", client: str = GLOBAL) -> list[ActionFit]:
    """The fit for every action that any client reported, in the mixture, or at one client."""
    fitted = record.fitted if client == GLOBAL else {client: record.fitted[client]}
    found = []
    for place, action in enumerate(record.study.actions):
        own = {name: fit for name, fit in sorted(fitted.items()) if fit.of("effective_rows")[place]}
        if sum(record.mixture.get(name, 0.0) for name in own) > 0:
            found.append(_fit(record, place, action, own))
    return found


def doubted(record: "Record", client: str = GLOBAL) -> list[ActionFit]:
    """Actions whose value richer models move by more than the claims allow."""
    stated = stated_error(record, client)
    return [one for one in action_fits(record, client) if one.moved.matters(stated)]


def doubted_clients(record: "Record") -> dict[str, list[ActionFit]]:
    """The doubted actions of every client that reported, if there are any."""
    found = {client: doubted(record, client) for client in sorted(record.fitted)}
    return {client: fits for client, fits in found.items() if fits}


def clients_in_doubt(record: "Record") -> frozenset[str]:
    """Clients about which nothing is claimed: all of them, if nothing is claimed overall."""
    if why_in_doubt(record):
        return frozenset(record.mixture)
    return frozenset(doubted_clients(record)) | frozenset(clients_of_a_part(record))


def clients_of_a_part(record: "Record") -> dict[str, Estimate]:
    """Clients that valued only a part of their rows, and the learned policy's value there."""
    return {
        row.client: row.estimate
        for row in record.values.rows
        if row.policy == record.chosen and row.client != GLOBAL and row.estimate.is_of_a_part
    }


def why_in_doubt(record: "Record") -> str | None:
    """Why nothing is claimed about all clients together; None if something may be."""
    if record.doubt_then is not None:  # a client that left said how its models fit, and is gone
        return record.doubt_then or None
    if doubted(record):
        return TOO_SIMPLE
    gained = (row.interval[0] for row in record.improvements.rows if row.client == GLOBAL)
    looks_better = any(low > 0 for low in gained)
    if looks_better and any(one.is_badly_unbalanced for one in action_fits(record)):
        return UNEXPLAINED
    together = [row.estimate for row in record.values.rows if row.client == GLOBAL]
    return OF_A_PART if any(one.is_of_a_part for one in together) else None


def trimming_matters(record: "Record") -> list[ActionFit]:
    """Actions whose value hangs on rows that were given it against the odds."""
    stated = stated_error(record, GLOBAL)
    return [one for one in action_fits(record) if abs(one.trimmed.value) > MATTERS * stated > 0]


def stated_error(record: "Record", client: str) -> float:
    """The standard error of the learned policy's value, else the best arm's; 0 without any."""
    found = record.values.estimates()
    wanted = [(record.chosen, client), (arm_name(record.best_arm), client)]
    return next((found[cell].standard_error for cell in wanted if cell in found), 0.0)


def _fit(record: "Record", place: int, action: str, fitted: Mapping[str, ModelFit]) -> ActionFit:
    weights = renormalised(record.mixture, fitted.keys())
    worst, feature, is_unbalanced = _imbalance(record, place, fitted, weights)
    return ActionFit(
        action=action,
        clients=tuple(fitted),
        moved=_shift(fitted, weights, "moved", place),
        explained=math.fsum(
            w * float(fitted[n].of("explained")[place]) for n, w in weights.items()
        ),
        trimmed=_shift(fitted, weights, "trimmed", place),
        imbalance=worst,
        feature=feature,
        is_unbalanced=is_unbalanced,
    )


def _shift(
    fitted: Mapping[str, ModelFit], weights: Mapping[str, float], name: str, place: int
) -> ValueShift:
    values = [weights[n] * float(f.of(name)[place]) for n, f in fitted.items()]
    variances = [
        weights[n] ** 2 * float(f.of(f"{name}_variances")[place]) for n, f in fitted.items()
    ]
    return ValueShift(value=math.fsum(values), standard_error=math.sqrt(math.fsum(variances)))


def _imbalance(
    record: "Record", place: int, fitted: Mapping[str, ModelFit], weights: Mapping[str, float]
) -> tuple[float, str, bool]:
    """The largest difference of takers from all rows, of what, and whether it exceeds chance."""
    apart: FloatArray = np.zeros((2, record.study.n_features + 1))
    variance, described = 0.0, record.described.by_client if record.described else {}
    for name, fit in fitted.items():
        apart += weights[name] * np.array([fit.imbalance[place], fit.imbalance_of_squares[place]])
        rows = float(described[name].effective_rows[place]) if name in described else 1.0
        variance += weights[name] ** 2 / max(rows, 1.0)
    row, column = np.unravel_index(int(np.abs(apart).argmax()), apart.shape)
    worst = float(apart[row, column])
    names = (*record.study.features, "the number of rows")
    feature = names[column] + (" squared" if row else "")
    surely = abs(worst) > SURELY_UNBALANCED * math.sqrt(variance)
    return worst, feature, surely and abs(worst) > UNBALANCED


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


def single_rows(record: "Record", client: str = GLOBAL) -> dict[str, SingleRow]:
    """By action, what one row has of its value: over all clients that reported, or at one."""
    fitted = record.fitted if client == GLOBAL else {client: record.fitted[client]}
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
