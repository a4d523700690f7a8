"""Values in a mixture of clients, from each client's answer, with standard errors."""

import math
from collections.abc import Mapping

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL, quoted
from fedopl.messages.evaluation.policy_values import Values
from fedopl.results.value_tables import GainRow, GainTable, ValueRow, ValueTable
from fedopl.study.mixture import Weights, renormalised

# The degrees of freedom of an estimate without any noise.
_BOUNDLESS = 1_000_000


def mixture_estimate(
    answers: Mapping[str, Values], weights: Weights, contrast: FloatArray
) -> Estimate:
    """Σ λ_c·q_c with standard error √Σ λ_c²·v_c/n_c, for any contrast of the candidates.

    Weights are renormalised over the clients that answered. Degrees of freedom are Welch &
    Satterthwaite's, so that a small client with a large weight widens the interval as it should.
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
        degrees_of_freedom=int(total**2 / freedom) if freedom > 0 else _BOUNDLESS,
    )


def signed_estimate(
    answers: Mapping[str, Values], signed: Mapping[str, float], contrast: FloatArray
) -> Estimate:
    """Σ_c s_c·(q_c · contrast), with standard error √Σ s_c²·v_c; signs may differ.

    Nothing is renormalised: a client that counts and did not answer is an error. Degrees of
    freedom are Welch & Satterthwaite's; a client of one row leaves none.
    """
    counted = sorted(name for name, sign in signed.items() if sign)
    missing = [name for name in counted if name not in answers]
    if missing:
        raise FederationError(f"values: none told by {quoted(missing)}, who count here")
    parts = [(signed[name], answers[name]) for name in counted]
    variances = [
        sign**2 * max(float(contrast @ values.covariances @ contrast), 0.0)
        for sign, values in parts
    ]
    return Estimate(
        value=math.fsum(sign * float(values.means @ contrast) for sign, values in parts),
        standard_error=math.sqrt(math.fsum(variances)),
        n_rows=sum(values.n_rows for _, values in parts),
        degrees_of_freedom=_freedom(variances, [values.degrees_of_freedom for _, values in parts]),
    )


def _freedom(variances: list[float], freedoms: list[int]) -> int:
    """(Σv)² / Σ(v²/f)."""
    if min(freedoms, default=1) < 1:
        return 0
    spread = math.fsum(v**2 / free for v, free in zip(variances, freedoms, strict=True))
    return int(math.fsum(variances) ** 2 / spread) if spread > 0 else _BOUNDLESS


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
