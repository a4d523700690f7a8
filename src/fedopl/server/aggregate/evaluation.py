"""Values in a mixture of clients, from each client's answer, with standard errors."""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL, quoted
from fedopl.base.restricted import Restricted
from fedopl.messages.evaluation.policy_values import Values
from fedopl.results.value_tables import (
    LOCAL,
    LOGGING,
    MOST_VALUED_ALONE,
    PERSONAL,
    GainRow,
    GainTable,
    ImprovementRow,
    ImprovementTable,
    PersonalTable,
    ValueRow,
    ValueTable,
)
from fedopl.server.aggregate.values_with_noise import ValuesWithNoise, honest_variance
from fedopl.study.mixture import Weights, renormalised

# The degrees of freedom of an estimate without any noise.
_BOUNDLESS = 1_000_000
ROUNDING_OF_SQUARES = 1e-13  # of a sum of squares


def mixture_estimate(
    answers: Mapping[str, Values], weights: Weights, contrast: FloatArray
) -> Estimate:
    """Σ λ_c·q_c with standard error √Σ λ_c²·v_c/n_c, for any contrast of the candidates.

    Weights are renormalised over the clients that answered. Degrees of freedom are Welch &
    Satterthwaite's, so that a small client with a large weight widens the interval as it should.
    """
    # What all clients' answers add up to is weighed already.
    shares = {GLOBAL: 1.0} if GLOBAL in answers else renormalised(weights, answers.keys())
    return _weighed(((shares[name], values) for name, values in answers.items()), contrast)


def signed_estimate(
    answers: Mapping[str, Values], signed: Mapping[str, float], contrast: FloatArray
) -> Estimate:
    """Σ_c s_c·(q_c · contrast), with standard error √Σ s_c²·v_c; signs may differ.

    Nothing is renormalised: a client that counts and did not answer is an error. A client of one
    row leaves no degrees of freedom.
    """
    counted = sorted(name for name, sign in signed.items() if sign)
    missing = [name for name in counted if name not in answers]
    if missing:
        raise FederationError(f"values: none reported by {quoted(missing)}, who count here")
    return _weighed(((signed[name], answers[name]) for name in counted), contrast)


def _weighed(parts: Iterable[tuple[float, Values]], contrast: FloatArray) -> Estimate:
    """From one answer at a time: those of very many clients are not in memory together."""
    variances: list[float] = []
    noises: list[tuple[float, float]] = []
    means: list[float] = []
    spreads: list[float] = []
    n_rows = of_rows = 0
    is_known = True
    for weight, values in parts:
        variances.append(weight**2 * _variance(values, contrast))
        if isinstance(values, ValuesWithNoise):
            # What noise alone makes of a contrast's variance, and how far that one is off.
            alone = weight**2 * float(contrast @ values.noise @ contrast)
            noises.append((alone, values.doubt))
        # A single row, or a single group, says nothing about how much others vary.
        is_known &= not weight or values.degrees_of_freedom > 0
        spreads.append(variances[-1] ** 2 / max(values.degrees_of_freedom, 1e-9))
        means.append(weight * float(values.means @ contrast))
        n_rows, of_rows = n_rows + values.n_rows, of_rows + values.of_rows
    # fsum is exact, so that the order in which clients come decides no bit of an estimate.
    total, spread = honest_variance(math.fsum(variances), noises), math.fsum(spreads)
    return Estimate(
        value=math.fsum(means),
        standard_error=math.sqrt(total),
        n_rows=n_rows,
        of_rows=of_rows,
        degrees_of_freedom=_whole(total**2 / spread if spread > 0 else _BOUNDLESS) * is_known,
    )


def _whole(number: float) -> int:
    """Rounded down, but for rounding errors; those of one client are its own."""
    return int(number * (1 + 1e-9))


def _variance(values: Values, contrast: FloatArray) -> float:
    """The variance of a contrast; policies that decide alike differ only by rounding."""
    found = float(contrast @ values.covariances @ contrast)
    if isinstance(values, ValuesWithNoise):
        return found  # those of several clients are added up before one below zero is ruled out
    size = float(np.abs(contrast) @ np.abs(values.covariances) @ np.abs(contrast))
    return found if found > ROUNDING_OF_SQUARES * size else 0.0


def value_table(
    answers: Mapping[str, Values],
    weights: Weights,
    names: list[str],
    level: float,
    sign: float = 1.0,
) -> ValueTable:
    """Every candidate, in the mixture and at every client, with the sign that outcomes had."""
    rows = []
    for policy, unit in zip(names, np.eye(len(names)), strict=True):
        for client, part in _parts(answers):
            estimate = mixture_estimate(part, weights, sign * unit)
            rows.append(ValueRow(policy=policy, client=client, estimate=estimate, level=level))
    return ValueTable(tuple(rows))


def gain_table(
    answers: Mapping[str, Values], weights: Weights, names: list[str], learned: str
) -> GainTable:
    """The learned policy against every other, paired: both on the same rows."""
    units = dict(zip(names, np.eye(len(names)), strict=True))
    own = units.pop(learned)
    rows = []
    for against, unit in units.items():
        for client, part in _parts(answers):
            estimate = mixture_estimate(part, weights, own - unit)
            rows.append(GainRow(against=against, client=client, estimate=estimate))
    return GainTable(tuple(rows))


def personal_table(
    answers: Mapping[str, Values], weights: Weights, names: list[str], against: list[str]
) -> PersonalTable:
    """Each client's personal policy against these policies, paired: both on the same rows."""
    units = dict(zip(names, np.eye(len(names)), strict=True))
    rows = [
        GainRow(
            against=name,
            client=client,
            estimate=mixture_estimate(part, weights, units[PERSONAL] - units[name]),
        )
        for name in against
        for client, part in _parts(answers)
    ]
    return PersonalTable(tuple(rows))


def improvement_table(
    answers: Mapping[str, Values], weights: Weights, names: list[str]
) -> ImprovementTable:
    """Every policy against what was done, paired; the intervals hold for all of them together."""
    units = dict(zip(names, np.eye(len(names)), strict=True))
    policies = [name for name in names if name not in (LOGGING, LOCAL, PERSONAL)]
    level = 1 - 0.05 / len(policies)  # Bonferroni
    rows = []
    for policy in policies:
        for client, part in _parts(answers):
            estimate = mixture_estimate(part, weights, units[policy] - units[LOGGING])
            rows.append(
                ImprovementRow(policy=policy, client=client, estimate=estimate, level=level)
            )
    return ImprovementTable(tuple(rows))


def _parts(answers: Mapping[str, Values]) -> list[tuple[str, Mapping[str, Values]]]:
    """All clients together, and each alone; clients of unknown spread are left out of the whole.

    Of very many clients, only all together.

    Under masks all together is a total of its own, whoever is read apart.
    """
    names = [name for name in sorted(answers) if name != GLOBAL]
    named = names if len(names) <= MOST_VALUED_ALONE else []
    alone = [(name, {name: answers[name]}) for name in named]
    if GLOBAL in answers:
        return [(GLOBAL, {GLOBAL: answers[GLOBAL]}), *alone]
    known = [name for name, values in answers.items() if values.degrees_of_freedom > 0]
    return [(GLOBAL, Restricted(answers, known or answers)), *alone]
