"""Where a client's shift comes from: Theorem 3's three sources, from a record."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedopl.analysis.context_shifts import Moments, context_moments, estimated_kl, why_unknown
from fedopl.base.arrays import FloatArray
from fedopl.results.diagnosis import Shift
from fedopl.results.record import Record
from fedopl.study.mixture import renormalised
from fedopl.theory.bounds import shift_bound

Source = Literal["covariates", "propensities", "outcomes"]
# In the order of Theorem 3.
SOURCES: tuple[Source, ...] = ("covariates", "propensities", "outcomes")
# The KL divergences of one client from each other client, and standard errors; NaN if unknown.
_Divergences = tuple[FloatArray, FloatArray]  # (n_clients,) both


@dataclass(frozen=True, kw_only=True)
class SourceShift:
    """E_{k∼λ}[√KL] of one source, and an upper bound on its standard error."""

    value: float
    standard_error: float

    @property
    def is_sure(self) -> bool:
        """Whether the shift is larger than chance explains."""
        return self.value > 2 * self.standard_error


@dataclass(frozen=True, kw_only=True)
class ClientShift:
    """How far one client is from the mixture, by source. Unknown sources are left out."""

    client: str
    parts: dict[Source, SourceShift]
    joint: float | None  # an upper bound on TV(D̄_c, D̄_λ), if all three sources are known

    @property
    def largest(self) -> Source | None:
        """The source with the largest shift, if any shift is larger than chance explains."""
        sure = {source: part.value for source, part in self.parts.items() if part.is_sure}
        return max(sure, key=lambda source: sure[source], default=None)


def shifts_of(record: Record) -> dict[str, ClientShift]:
    """Every client's shift from the mixture, by source.

    Contexts are treated as Gaussian, with moments from the clients' sums. What chance adds to a
    divergence is subtracted. The other two sources are known if the study has a diagnosis.
    """
    names = sorted(record.statistics.sums)
    if len(names) < 2:
        return {}
    weights = renormalised(record.mixture, names)
    shares = np.array([weights[name] for name in names])
    contexts = None if why_unknown(record.statistics) else context_moments(record.statistics)
    models = record.diagnosis.models if record.diagnosis else None
    found = {}
    for name in names:
        sources: dict[Source, _Divergences | None] = {
            "covariates": None if contexts is None else _contexts(record, contexts, name),
            "propensities": _models(models.propensity_kl, name, names) if models else None,
            "outcomes": _models(models.outcome_kl, name, names) if models else None,
        }
        found[name] = _client_shift(name, shares, sources)
    return found


def _contexts(record: Record, contexts: Mapping[str, Moments], name: str) -> _Divergences:
    """Divergences of one client's contexts from those of each other client."""
    found = [
        estimated_kl(contexts[name], contexts[other], record.rows[name], record.rows[other])
        if other != name
        else (0.0, 0.0)
        for other in sorted(contexts)
    ]
    kl, errors = np.array(found).T
    return kl, errors


def _models(shift: Shift, name: str, names: list[str]) -> _Divergences | None:
    """Divergences of one client's models from those of each other client, in the order of names."""
    if name not in shift.names:
        return None
    own = dict(zip(shift.names, shift.divergences(name), strict=True))
    row = dict(zip(shift.names, shift.standard_errors[shift.names.index(name)], strict=True))
    # In float64, None and missing entries become NaN.
    kl, errors = (np.array([part.get(n) for n in names], np.float64) for part in (own, row))
    return kl, errors


def _client_shift(
    name: str, shares: FloatArray, sources: Mapping[Source, _Divergences | None]
) -> ClientShift:
    known = {
        source: found
        for source, found in sources.items()
        if found is not None and shares[np.isfinite(found[0])].sum() > 0
    }
    parts = {source: _part(shares, found) for source, found in known.items()}
    joint = None
    if len(known) == len(SOURCES):
        kl = [known[source][0] for source in SOURCES]
        here = np.isfinite(np.sum(kl, axis=0)) & (shares > 0)
        if shares[here].sum() > 0:
            joint = shift_bound(shares[here] / shares[here].sum(), *(k[here] for k in kl)).joint
    return ClientShift(client=name, parts=parts, joint=joint)


def _part(shares: FloatArray, found: _Divergences) -> SourceShift:
    """E_{k∼λ}[√KL] over the known clients, and a bound on its error, the sum of all errors."""
    known = np.isfinite(found[0]) & np.isfinite(found[1])
    weights = shares[known] / shares[known].sum()
    kl, errors = found[0][known], found[1][known]
    # d√KL/dKL is unbounded near 0. There, the standard error stands in for KL.
    slope = 0.5 / np.sqrt(np.maximum(np.maximum(kl, errors), 1e-300))
    return SourceShift(
        value=float(weights @ np.sqrt(kl)), standard_error=float(weights @ (errors * slope))
    )
