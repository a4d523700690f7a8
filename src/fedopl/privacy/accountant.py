"""The privacy cost of releases with Gaussian noise, exactly and in closed form.

A release is μ-GDP if distinguishing two neighbouring data sets by it is at least as hard as
distinguishing N(0, 1) from N(μ, 1) (Dong, Roth & Su 2022). Noise of standard deviation σ on a
release that one row moves by at most Δ gives μ = Δ/σ. Several releases have μ² = Σμᵢ², even if a
later question depends on earlier answers, and nothing is lost in the conversion to (ε, δ).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from numbers import Real

from fedopl.base.arrays import check_positive
from fedopl.base.errors import OptionError
from fedopl.base.whole_numbers import shown

SHARES_TOLERANCE = 1e-9


def delta_at(epsilon: float, mu: float) -> float:
    """δ(ε) = Φ(μ/2 − ε/μ) − e^ε·Φ(−μ/2 − ε/μ), the least δ that μ-GDP promises at this ε."""
    check_positive(epsilon, "epsilon")
    _check_spent(mu)
    return _delta(epsilon, mu)


def mu_for(epsilon: float, delta: float) -> float:
    """The largest μ that promises (ε, δ): `delta_at(epsilon, mu)` is never above δ."""
    check_positive(epsilon, "epsilon")
    _check_delta(delta)
    least = most = math.sqrt(epsilon)
    while _delta(epsilon, least) > delta:
        least /= 2
    while _delta(epsilon, most) <= delta:
        most *= 2
    return _last(lambda mu: _delta(epsilon, mu) <= delta, least, most)


def epsilon_for(mu: float, delta: float) -> float:
    """The least ε that μ-GDP promises with this δ; 0 if δ alone covers the disclosure."""
    _check_spent(mu)
    _check_delta(delta)
    if _delta(0.0, mu) <= delta:
        return 0.0
    most = mu
    while _delta(most, mu) > delta:
        most *= 2
    too_small = _last(lambda epsilon: _delta(epsilon, mu) > delta, 0.0, most)
    return math.nextafter(too_small, math.inf)


def mu_of_several(mus: Iterable[float]) -> float:
    """√Σμᵢ², the μ of all releases about the same rows together; 0 without releases."""
    return math.hypot(*map(_check_spent, mus))


def noise_for(sensitivity: float, mu: float) -> float:
    """σ = Δ/μ, the standard deviation of noise that makes a release μ-GDP."""
    check_positive(sensitivity, "sensitivity")
    check_positive(mu, "mu")
    return sensitivity / mu


def split_mu(mu: float, shares: Sequence[float]) -> tuple[float, ...]:
    """√shareᵢ·μ for each release: together they are μ-GDP again. Shares are of μ² and sum to 1."""
    check_positive(mu, "mu")
    for share in shares:
        check_positive(share, "shares")
    if abs(math.fsum(shares) - 1) > SHARES_TOLERANCE:
        raise OptionError(f"shares: expected a sum of 1, came {math.fsum(shares):g}")
    return tuple(math.sqrt(share) * mu for share in shares)


def _delta(epsilon: float, mu: float) -> float:
    from scipy.special import erfcx, ndtr  # here, as it is slow to import

    if mu == 0:
        return 0.0
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    # φ(near) = e^ε·φ(far), so both terms are φ(near) times a Mills ratio: e^ε is never computed,
    # and far out in the tail only terms that are truly close cancel.
    height = math.exp(-near * near / 2) / 2
    mills_near, mills_far = erfcx([max(near, 0.0) / math.sqrt(2), far / math.sqrt(2)])
    if near > 0:
        return height * float(mills_near - mills_far)
    return float(ndtr(-near)) - height * float(mills_far)


def _last(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The last float from `low`, where `holds` is true, to `high`, where it is not: by bisection.

    Not by a root finder, which may end on either side; the promise needs the side that holds.
    """
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _check_delta(delta: float) -> None:
    if not isinstance(delta, Real) or not 0 < delta < 1:
        raise OptionError(
            "delta: expected a number between 0 and 1, far below one in the number of rows, "
            f"came {shown(delta)}"
        )


def _check_spent(mu: float) -> float:
    if mu != 0:
        check_positive(mu, "mu")
    return mu
