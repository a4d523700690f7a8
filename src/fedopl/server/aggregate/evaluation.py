"""Values of policies in the mixture and at each client, with standard errors, from answers."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL, quoted
from fedopl.base.restricted import Restricted
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.message import message
from fedopl.results.value_tables import MOST_VALUED_ALONE, Row
from fedopl.study.mixture import Weights, renormalised

# If the relative error of a variance is r, 95 % intervals hold too rarely: as if the variance were
# smaller by a share 1.2·r². For 97.5 % intervals the share is 1.5·r². If r is large, less is
# enough, because variances below that of noise alone are ruled out.
_SECOND_ORDER, _LARGEST = 1.5, 0.8


@message
class ValuesWithNoise(Values):
    """Noisy means, and covariances that are right on average but may even be negative.

    No client sends these: the server makes them from `NoisedValues`.
    """

    noise: FloatArray  # (n_candidates, n_candidates), what noise alone adds to covariances
    doubt: float  # standard deviation of a contrast's variance, as a multiple of its noise part

    def variance(self, contrast: FloatArray) -> float:
        """The variance, which may be negative; `honest_variance` corrects the sum over clients."""
        return float(contrast @ self.covariances @ contrast)


def honest_variance(total: float, noises: Iterable[tuple[float, float]]) -> float:
    """The sum of clients' variances, increased enough for intervals to hold.

    `noises` has for each client the part of the variance that comes from noise alone, and its
    `doubt`. The part from noise is known. The rest is at least zero, and is itself an estimate with
    an error.
    """
    parts = list(noises)
    if not parts:
        return total
    found = max(total, math.fsum(noise for noise, _ in parts))
    doubt = math.sqrt(math.fsum((noise * doubt) ** 2 for noise, doubt in parts))
    return found + min(_SECOND_ORDER * doubt**2 / found, _LARGEST * doubt)


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


def first_valuing(valued: Iterable[OnRows], policies: Collection[str]) -> OnRows | None:
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


def rows_of(
    valued: Sequence[OnRows],
    weights: Weights,
    compared: Iterable[tuple[str, str]],
    *,
    learned: str = "",
    level: float = 0.95,
    outcome: str = "",
    sign: float = 1.0,
) -> Iterator[Row]:
    """Each policy's value, or its gain over another one, in the mixture and at each client.

    Pairs name nothing for the policy if it is the one that was `learned`, and nothing that it is
    compared with if its value is wanted. Each row is from the first rows that value both.
    """
    for policy, against in compared:
        own = policy or learned
        if (on := first_valuing(valued, [own, *filter(None, [against])])) is None:
            continue
        contrast = sign * on.unit(own) - (on.unit(against) if against else 0.0)
        for client, part in _parts(on.answers):
            yield Row(
                policy=policy,
                against=against,
                client=client,
                outcome=outcome,
                estimate=mixture_estimate(part, weights, contrast),
                level=level,
            )


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
