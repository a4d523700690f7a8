"""Values on held-out rows: each policy, each client, and what one gains over another."""

import math
from collections.abc import Mapping

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL
from fedopl.messages.evaluation.policy_values import Values
from fedopl.results.value_tables import GainRow, GainTable, ValueRow, ValueTable
from fedopl.study.mixture import Weights, renormalised


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
