"""Values on held-out rows: each policy, each client, and what one gains over another."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import OptionError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL, quoted
from fedopl.base.tables import html_table, text_table
from fedopl.messages.vocabulary import Values
from fedopl.study.mixture import Weights, renormalised

Cells = tuple[list[str], list[list[str]]]  # headers and rows


@dataclass(frozen=True, kw_only=True)
class ValueRow:
    """What a policy is worth at one client, or in the mixture."""

    policy: str
    client: str
    estimate: Estimate
    level: float = 0.95

    @property
    def interval(self) -> tuple[float, float]:
        """The interval at this row's level."""
        return self.estimate.interval(self.level)


@dataclass(frozen=True, kw_only=True)
class GainRow:
    """What the learned policy gains over another, on the same rows."""

    against: str
    client: str
    estimate: Estimate

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval."""
        return self.estimate.interval()


@dataclass(frozen=True)
class ValueTable:
    """Values by policy and client; `print` it."""

    rows: tuple[ValueRow, ...]

    def of(self, policy: str, client: str = GLOBAL) -> Estimate:
        """One cell."""
        found = {(row.policy, row.client): row.estimate for row in self.rows}
        return _cell(found, policy, client)

    def __str__(self) -> str:
        return text_table(*self._cells())

    def _repr_html_(self) -> str:
        return html_table(*self._cells())

    def _cells(self) -> Cells:
        return _cells("value", [(row.policy, row.client, row) for row in self.rows])


@dataclass(frozen=True)
class GainTable:
    """Paired gains of the learned policy; `print` it."""

    rows: tuple[GainRow, ...]

    def over(self, against: str, client: str = GLOBAL) -> Estimate:
        """One cell."""
        return _cell(
            {(row.against, row.client): row.estimate for row in self.rows}, against, client
        )

    def __str__(self) -> str:
        return text_table(*self._cells())

    def _repr_html_(self) -> str:
        return html_table(*self._cells())

    def _cells(self) -> Cells:
        return _cells("gain over", [(row.against, row.client, row) for row in self.rows])


def _cell(cells: dict[tuple[str, str], Estimate], policy: str, client: str) -> Estimate:
    if (policy, client) not in cells:
        there = sorted({f"{name} at {where}" for name, where in cells})
        raise OptionError(f"no estimate of '{policy}' at '{client}'; there are {quoted(there)}")
    return cells[policy, client]


def _cells(what: str, rows: Iterable[tuple[str, str, ValueRow | GainRow]]) -> Cells:
    headers = [what, "client", "estimate", "standard error", "interval", "held-out rows"]
    cells = []
    for policy, client, row in rows:
        low, high = row.interval
        found = row.estimate
        numbers = [f"{found.value:.4g}", f"{found.standard_error:.2g}", f"{low:.4g} to {high:.4g}"]
        cells.append([policy, client, *numbers, f"{found.n_rows:,}"])
    return headers, cells


def mixture_estimate(
    answers: Mapping[str, Values], weights: Weights, contrast: FloatArray
) -> Estimate:
    """Σ λ_c·q_c with standard error √Σ λ_c²·v_c/n_c, for any contrast of the candidates.

    Degrees of freedom are Welch & Satterthwaite's, so that a small client with a large weight
    widens the interval as it should.
    """
    shares = renormalised(weights, answers.keys())
    value = math.fsum(shares[name] * float(a.means @ contrast) for name, a in answers.items())
    variances = {
        name: shares[name] ** 2 * max(float(contrast @ a.covariances @ contrast), 0.0)
        for name, a in answers.items()
    }
    total = math.fsum(variances.values())
    freedom = math.fsum(
        variances[name] ** 2 / max(a.degrees_of_freedom, 1e-9) for name, a in answers.items()
    )
    return Estimate(
        value=value,
        standard_error=math.sqrt(total),
        n_rows=sum(a.n_rows for a in answers.values()),
        degrees_of_freedom=int(total**2 / freedom) if freedom > 0 else 1_000_000,
    )


def value_table(
    answers: Mapping[str, Values], weights: Weights, names: list[str], level: float
) -> ValueTable:
    """Every candidate, in the mixture and at every client."""
    rows = []
    for position, policy in enumerate(names):
        contrast = _unit(len(names), position)
        for client, part in _parts(answers):
            estimate = mixture_estimate(part, weights, contrast)
            rows.append(ValueRow(policy=policy, client=client, estimate=estimate, level=level))
    return ValueTable(tuple(rows))


def gain_table(
    answers: Mapping[str, Values], weights: Weights, names: list[str], learned: str
) -> GainTable:
    """The learned policy against every other, paired: both on the same rows."""
    own = _unit(len(names), names.index(learned))
    rows = []
    for position, against in enumerate(names):
        if against == learned:
            continue
        contrast = own - _unit(len(names), position)
        for client, part in _parts(answers):
            estimate = mixture_estimate(part, weights, contrast)
            rows.append(GainRow(against=against, client=client, estimate=estimate))
    return GainTable(tuple(rows))


def _parts(answers: Mapping[str, Values]) -> list[tuple[str, Mapping[str, Values]]]:
    return [(GLOBAL, answers), *((name, {name: answers[name]}) for name in sorted(answers))]


def _unit(size: int, position: int) -> FloatArray:
    unit = np.zeros(size)
    unit[position] = 1.0
    return unit
