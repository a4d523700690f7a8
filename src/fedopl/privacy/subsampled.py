"""The privacy cost of releases from sampled rows, by the distribution of the privacy loss.

In a step every row takes part with probability q, by its own secret draw, and noise of σ times a
row's influence is added. Neighbours are then N(0, σ²) and (1 − q)·N(0, σ²) + q·N(1, σ²), which no
closed form composes. So losses log(dP/dQ) are put on a grid, which makes them larger and never
smaller, and the losses of many steps are added up by Fourier transform. Both orders of the two
neighbours count (Zhu, Dong & Wang 2022). On the grid, each loss is split between the two points
beside it such that both probabilities stay (Doroshenko et al. 2022).
"""

import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray, check_positive
from fedopl.base.errors import OptionError
from fedopl.privacy.accountant import delta_at

# Grid points within the standard deviation of a release's loss.
_FINENESS = 64
# This many deviations of normal noise are on the grid; the rest has less than 1e-22.
_REACH = 10.0
# The probability of all losses that wrap around in the Fourier transform.
_WRAPPED = 1e-16
# Far more than floating-point error adds to δ; `least_noise` promises nothing near it.
_ROUNDING = 1e-11
LEAST_DELTA = 1e-9
# Noise is found to this precision, and never below this least value.
_PRECISION, _LEAST_NOISE = 1e-4, 0.2
# The probability with which the bound by a Gaussian may fail.
SLIP = 1e-10


class SampledSteps(NamedTuple):
    """Several releases from rows sampled at this rate, with noise relative to a row's influence."""

    rate: float
    noise: float
    times: int = 1


class PrivacyLosses:
    """How much all releases together disclose about one row."""

    def __init__(self, steps: Sequence[SampledSteps]) -> None:
        for one in steps:
            check_positive(one.noise, "noise")
            if not 0 < one.rate <= 1:
                raise OptionError(f"rate: expected a share above 0 up to 1, came {one.rate:g}")
        grid = _deviation(steps) / _FINENESS
        self._both = [_Composed(steps, grid, is_added) for is_added in (False, True)]

    def delta(self, epsilons: FloatArray) -> FloatArray:  # shaped as epsilons, none below zero
        """For each ε, an upper bound on δ: all releases together are (ε, δ)-private."""
        return np.maximum(*(one.delta(epsilons) for one in self._both))

    def as_gaussian(self) -> float:
        """A μ such that the releases disclose no more than one Gaussian, except with `SLIP`.

        Then δ(ε) ≤ slip + (1 − slip)·δ_μ(ε) for all ε in both orders. So the releases compose like
        a μ-GDP release together with one that discloses everything with probability `SLIP`.
        """
        epsilons = np.linspace(0.0, self._reach, 2000)
        own = self.delta(epsilons)
        # δ falls in ε, so at each ε it is compared with a Gaussian's δ at the next ε.
        own, epsilons = own[:-1], epsilons[1:]
        is_told = own > SLIP
        needed = (own[is_told] - SLIP) / (1 - SLIP)
        pairs = list(zip(epsilons[is_told].tolist(), needed.tolist(), strict=True))
        low, high = 1e-6, 1.0
        while not _covers(high, pairs):
            high *= 2
        while high / low > 1 + 1e-4:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if _covers(middle, pairs) else (middle, high)
        return high

    @property
    def _reach(self) -> float:
        """An ε at which δ is below the slip."""
        reach = 1.0
        while float(self.delta(np.array([reach]))[0]) > SLIP:
            reach *= 1.5
        return reach


@lru_cache(64)
def mu_of_sampled(steps: tuple[float, float, int], mu: float) -> float:
    """A μ that covers `SampledSteps` and other releases of this μ together, except with `SLIP`."""
    return PrivacyLosses((SampledSteps(*steps), SampledSteps(1.0, 1 / mu))).as_gaussian()


def _covers(mu: float, pairs: Sequence[tuple[float, float]]) -> bool:
    """Whether a Gaussian discloses at least as much at all these pairs (ε, δ)."""
    return all(delta_at(epsilon, mu) >= needed for epsilon, needed in pairs)


@lru_cache(64)
def least_noise(promise: tuple[float, float], steps: tuple[float, int], mu: float) -> float:
    """The least noise, relative to a row's influence, that keeps the promise (ε, δ), rounded up.

    `steps` gives the sampling rate of rows and the number of steps. `mu` is the Gaussian
    differential privacy of other releases from the same rows.
    """
    (epsilon, delta), (rate, times) = promise, steps
    if delta < LEAST_DELTA:
        raise OptionError(f"delta: with sampled rows at least {LEAST_DELTA:g}, came {delta:g}")

    def keeps(noise: float) -> bool:
        told = PrivacyLosses((SampledSteps(rate, noise, times), SampledSteps(1.0, 1 / mu)))
        return float(told.delta(np.array([epsilon]))[0]) <= delta

    if delta_at(epsilon, mu) >= delta - _ROUNDING:
        raise OptionError("mu: what is told beside the steps leaves nothing of the promise")
    low = high = 1.0
    while not keeps(high):
        low, high = high, 2 * high
    while keeps(low) and low > _LEAST_NOISE:
        low, high = low / 2, low
    # Only comparisons decide, and digits are few, so every machine finds the same number.
    while high / low > 1 + _PRECISION:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if keeps(middle) else (middle, high)
    digits = 10.0 ** (3 - math.floor(math.log10(high)))
    return math.ceil(high * digits) / digits


def _deviation(steps: Sequence[SampledSteps]) -> float:
    """The approximate standard deviation of the loss of one release, over all of them."""
    variances = [
        one.times * min(one.rate**2 * math.expm1(min(one.noise**-2, 50.0)), one.noise**-2)
        for one in steps
    ]
    return math.sqrt(sum(variances) / sum(one.times for one in steps))


class _Composed:
    """The distribution of the sum of losses, in one order of the neighbours, on a grid."""

    def __init__(self, steps: Sequence[SampledSteps], grid: float, is_added: bool) -> None:
        self._grid = grid
        parts = [(_on_grid(one, grid, is_added), one.times) for one in steps]
        finite = math.prod((1 - part.beyond) ** times for part, times in parts)
        self._beyond = 1 - finite + 2 * _WRAPPED + _ROUNDING
        self._masses, self._places = self._added_up(parts)

    def _added_up(self, parts: "Sequence[tuple[_Step, int]]") -> tuple[FloatArray, IntArray]:
        from scipy.fft import irfft, next_fast_len, rfft  # here, as it is slow to import

        reach = max(_reach(parts, self._grid, 1), _reach(parts, self._grid, -1))
        size = next_fast_len(2 * reach + 2, real=True)
        turned = np.ones(size // 2 + 1, complex)
        for part, times in parts:
            folded = np.zeros(size)
            np.add.at(folded, part.places % size, part.masses)
            turned *= rfft(folded) ** times
        places = np.arange(size)
        places[places > size // 2] -= size
        order = np.argsort(places)
        masses = np.maximum(irfft(turned, size), 0.0)
        return masses[order], places[order]

    @cached_property
    def _tails(self) -> tuple[FloatArray, FloatArray]:
        """For each place and all above it: probabilities, and those of the other neighbour."""
        others = self._masses * np.exp(-self._grid * self._places)
        return _sum_above(self._masses), _sum_above(others)

    def delta(self, epsilons: FloatArray) -> FloatArray:  # shaped as epsilons
        """Σ over losses ℓ above ε of P(ℓ)·(1 − e^(ε − ℓ)), plus all that was left out."""
        first = np.searchsorted(self._grid * self._places, epsilons, side="right")
        own, other = self._tails
        return own[first] - np.exp(epsilons) * other[first] + self._beyond


def _sum_above(masses: FloatArray) -> FloatArray:  # one longer, the last is zero
    return np.append(np.cumsum(masses[::-1])[::-1], 0.0)


class _Step(NamedTuple):
    """The distribution of one step's loss."""

    places: IntArray  # of losses, in steps of the grid
    masses: FloatArray  # probabilities
    beyond: float  # the probability of losses above all places

    def log_moment(self, tilt: float, grid: float) -> float:
        """The logarithm of E exp(tilt·loss)."""
        exponents = tilt * grid * self.places
        largest = exponents.max()
        return float(largest + np.log(self.masses @ np.exp(exponents - largest)))


def _on_grid(steps: SampledSteps, grid: float, is_added: bool) -> _Step:
    """One step's losses log(dP/dQ), where P is the sampled neighbour unless a row is added."""
    low, high = _loss(-_REACH, steps) / grid, _loss(_REACH + 1 / steps.noise, steps) / grid
    places = np.arange(math.floor(low), math.ceil(high) + 1)
    edges = _normal_at(grid * places.astype(np.float64), steps)
    without = _between(edges)
    with_it = (1 - steps.rate) * without + steps.rate * _between(edges - 1 / steps.noise)
    if is_added:
        # The other order: losses change sign, and places change order.
        places, without, with_it = -places[::-1], with_it[::-1], without[::-1]
    # The share of an interval that goes to its upper end, such that both P and Q stay.
    inner_p, inner_q = with_it[1:-1], without[1:-1]
    upper = (inner_p - np.exp(grid * places[:-1]) * inner_q) / -math.expm1(-grid)
    upper = np.clip(upper, 0.0, inner_p)
    masses = np.zeros(len(places))
    masses[1:] += upper
    masses[:-1] += inner_p - upper
    masses[0] += with_it[0]
    is_possible = masses > 0
    return _Step(places[is_possible], masses[is_possible], float(with_it[-1]))


def _loss(normal: float, steps: SampledSteps) -> float:
    """log((1 − q) + q·exp(z/σ − 1/2σ²)), if noise is z deviations."""
    shifted = normal / steps.noise - 0.5 / steps.noise**2
    least = math.log1p(-steps.rate) if steps.rate < 1 else -math.inf
    return float(np.logaddexp(least, math.log(steps.rate) + shifted))


def _normal_at(losses: FloatArray, steps: SampledSteps) -> FloatArray:  # shaped as losses
    """The z with these losses; −∞ below the smallest possible loss, log(1 − q)."""
    ratio = 1 + np.expm1(losses) / steps.rate
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(ratio > 0, np.log(np.maximum(ratio, 0.0)), -math.inf)
    return steps.noise * logs + 0.5 / steps.noise


def _between(edges: FloatArray) -> FloatArray:  # (n_edges + 1,)
    """Probabilities of a normal number below the first edge, between edges, and above the last."""
    from scipy.special import ndtr

    wide = np.concatenate([[-math.inf], edges, [math.inf]])
    low, high = wide[:-1], wide[1:]
    # Computed from above in the upper tail, or small numbers would vanish.
    return np.asarray(np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low)))


def _reach(parts: Sequence[tuple[_Step, int]], grid: float, sign: int) -> int:
    """The number of grid steps beyond which losses sum with a probability below `_WRAPPED`.

    By Chernoff's bound: P(S > w) ≤ E exp(t·S)·exp(−t·w) for every t above zero.
    """
    squares = [times * float(part.masses @ (grid * part.places) ** 2) for part, times in parts]
    spread = max(math.sqrt(sum(squares)), grid)
    reached = math.inf
    for tilt in np.geomspace(0.5, 100, 12) / spread:
        moments = sum(times * part.log_moment(sign * tilt, grid) for part, times in parts)
        reached = min(reached, (moments - math.log(_WRAPPED)) / tilt)
    return math.ceil(max(reached, 0.0) / grid)
