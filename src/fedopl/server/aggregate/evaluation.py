"""Values of policies in the mixture and at each client, with standard errors, from answers."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL, quoted
from fedopl.base.restricted import Restricted
from fedopl.messages.evaluation.policy_values import Values
from fedopl.results.value_tables import (
    BEST_ARM,
    BEST_CANDIDATE,
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

# What differs between clients or between folds, and so is no policy for everybody.
_NOT_GIVEN = (LOGGING, LOCAL, PERSONAL, BEST_ARM, BEST_CANDIDATE)
# The degrees of freedom of an estimate whose variance is zero.
_BOUNDLESS = 1_000_000


@dataclass(frozen=True, eq=False, kw_only=True)
class OnRows:
    """What policies are worth on the same rows of each client."""

    answers: Mapping[str, Values]
    names: Sequence[str]  # of the policies, in the order of the answers

    def unit(self, policy: str) -> FloatArray:  # (n_candidates,)
        """The contrast that is the value of this policy."""
        unit = np.zeros(len(self.names))
        unit[self.names.index(policy)] = 1.0
        return unit


def of_all(valued: Iterable[OnRows], policies: Collection[str]) -> OnRows | None:
    """The first rows that value all these policies; None if none do."""
    return next((one for one in valued if {*policies} <= {*one.names}), None)


def mixture_estimate(
    answers: Mapping[str, Values], weights: Weights, contrast: FloatArray
) -> Estimate:
    """Σ λ_c·q_c with standard error √Σ λ_c²·v_c/n_c, for any contrast of the candidates.

    Weights are renormalised over the clients that answered. Degrees of freedom are by Welch and
    Satterthwaite. So a small client with a large weight widens the interval as it should.
    """
    # A total over all clients is weighted already.
    shares = {GLOBAL: 1.0} if GLOBAL in answers else renormalised(weights, answers.keys())
    return _weighed(((shares[name], values) for name, values in answers.items()), contrast)


def signed_estimate(
    answers: Mapping[str, Values], signed: Mapping[str, float], contrast: FloatArray
) -> Estimate:
    """Σ_c s_c·(q_c · contrast), with standard error √Σ s_c²·v_c; weights s_c may be negative.

    Nothing is renormalised. If a client with a weight did not answer, that is an error. With a
    client of one row, no degrees of freedom are left.
    """
    counted = sorted(name for name, sign in signed.items() if sign)
    missing = [name for name in counted if name not in answers]
    if missing:
        raise FederationError(
            f"values: {quoted(missing)} reported none, and their weights are not 0"
        )
    return _weighed(((signed[name], answers[name]) for name in counted), contrast)


def _weighed(parts: Iterable[tuple[float, Values]], contrast: FloatArray) -> Estimate:
    """The weighted sum of the parts. It reads one answer at a time, as all may not fit memory."""
    variances: list[float] = []
    noises: list[tuple[float, float]] = []
    means: list[float] = []
    spreads: list[float] = []
    n_rows = of_rows = 0
    is_known = True
    for weight, values in parts:
        variances.append(weight**2 * values.variance(contrast))
        if isinstance(values, ValuesWithNoise):
            # The part of the variance that comes from noise alone, and its uncertainty.
            alone = weight**2 * float(contrast @ values.noise @ contrast)
            noises.append((alone, values.doubt))
        # A single row, or a single group, does not show how much rows vary.
        is_known &= not weight or values.degrees_of_freedom > 0
        spreads.append(variances[-1] ** 2 / max(values.degrees_of_freedom, 1e-9))
        means.append(weight * float(values.means @ contrast))
        n_rows, of_rows = n_rows + values.n_rows, of_rows + values.of_rows
    # fsum is exact, so the order of the clients does not change the result.
    total, spread = honest_variance(math.fsum(variances), noises), math.fsum(spreads)
    return Estimate(
        value=math.fsum(means),
        standard_error=math.sqrt(total),
        n_rows=n_rows,
        of_rows=of_rows,
        degrees_of_freedom=_whole(total**2 / spread if spread > 0 else _BOUNDLESS) * is_known,
    )


def _whole(number: float) -> int:
    """The number rounded down, with a tolerance for rounding errors.

    So an estimate from one client alone keeps that client's degrees of freedom.
    """
    return int(number * (1 + 1e-9))


def value_table(
    valued: Sequence[OnRows],
    weights: Weights,
    names: list[str],
    level: float,
    sign: float = 1.0,
) -> ValueTable:
    """The value of every candidate, in the mixture and at each client, with the outcome's sign.

    Each is from the first rows that value it.
    """
    rows = []
    for policy in names:
        if (on := of_all(valued, [policy])) is None:
            continue
        for client, part in _parts(on.answers):
            estimate = mixture_estimate(part, weights, sign * on.unit(policy))
            rows.append(ValueRow(policy=policy, client=client, estimate=estimate, level=level))
    return ValueTable(tuple(rows))


def gain_table(
    answers: Mapping[str, Values], weights: Weights, names: list[str], learned: str, valued: str
) -> GainTable:
    """The learned policy's gain over every other policy, paired: both on the same rows.

    A candidate may be `valued` as what is chosen without each fold.
    """
    units = dict(zip(names, np.eye(len(names)), strict=True))
    own = units[valued]
    units = {name: unit for name, unit in units.items() if name not in (learned, valued)}
    rows = []
    for against, unit in units.items():
        for client, part in _parts(answers):
            estimate = mixture_estimate(part, weights, own - unit)
            rows.append(GainRow(against=against, client=client, estimate=estimate))
    return GainTable(tuple(rows))


def personal_table(
    answers: Mapping[str, Values], weights: Weights, names: list[str], against: list[str]
) -> PersonalTable:
    """The gain of each client's personal policy over these policies, paired on the same rows."""
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
    valued: Sequence[OnRows], weights: Weights, names: list[str]
) -> ImprovementTable:
    """Every policy's gain over what was done, paired. The intervals hold for all together."""
    given = [name for name in names if name not in _NOT_GIVEN]
    policies = {name: on for name in given if (on := of_all(valued, [name, LOGGING]))}
    level = 1 - 0.05 / max(len(policies), 1)  # Bonferroni
    rows = []
    for policy, on in policies.items():
        for client, part in _parts(on.answers):
            estimate = mixture_estimate(part, weights, on.unit(policy) - on.unit(LOGGING))
            rows.append(
                ImprovementRow(policy=policy, client=client, estimate=estimate, level=level)
            )
    return ImprovementTable(tuple(rows))


def _parts(answers: Mapping[str, Values]) -> list[tuple[str, Mapping[str, Values]]]:
    """The answers of all clients together, and those of each client alone.

    Clients with no degrees of freedom are left out of the whole. With very many clients, only the
    whole is returned. Under masks the whole is a separate total, also if some clients' values are
    read on their own.
    """
    names = [name for name in sorted(answers) if name != GLOBAL]
    named = names if len(names) <= MOST_VALUED_ALONE else []
    alone = [(name, {name: answers[name]}) for name in named]
    if GLOBAL in answers:
        return [(GLOBAL, {GLOBAL: answers[GLOBAL]}), *alone]
    known = [name for name, values in answers.items() if values.degrees_of_freedom > 0]
    return [(GLOBAL, Restricted(answers, known or answers)), *alone]
