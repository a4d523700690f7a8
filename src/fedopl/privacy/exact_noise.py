"""The discrete Gaussian N_ℤ(0, σ²): P(y) ∝ exp(−y²/2σ²) over whole numbers, drawn exactly.

The last bits of floating-point noise disclose what it was added to (Mironov 2012). Here sums are
whole multiples of a grid step, noise is a whole number of steps, and each decision on the way is a
comparison of whole numbers with uniform bits: probabilities are the formula's, without rounding.
Algorithms 1 to 3 of Canonne, Kamath & Steinke (2020).
"""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from numbers import Rational

import numpy as np

from fedopl.base.arrays import BoolArray, IntArray, check_positive
from fedopl.base.errors import OptionError
from fedopl.base.whole_numbers import shown
from fedopl.privacy.keyed_bits import KeyedBits

# Limit of σ, in grid steps: all values that noise can then reach fit into 64 bits.
MOST_STEPS = 2**53
# With this much more variance, in squared steps, a discrete Gaussian hides a row as well as a
# continuous one: for each number, probabilities are within a factor of 1 ± 3e-34 of those of a
# continuous release with random rounding. With equal variance it does not, if σ is small.
SMOOTHING = 4
# Nearly half of the proposals are kept; fewer if σ is a few steps, and then more are made.
_PROPOSALS = 2.2


def variance_on_grid(sigma: float, step: Fraction) -> int:
    """The variance in squared grid steps that protects as Gaussian noise of sd `sigma` does.

    A whole number, rounded up, and larger by `SMOOTHING`, so that μ = Δ/σ holds for discrete noise
    as well. With a step far below `sigma` this costs nothing, even for counts, which are whole on
    any grid.
    """
    check_positive(sigma, "sigma")
    check_positive(step, "step")
    return math.ceil((Fraction(sigma) / step) ** 2) + SMOOTHING


def discrete_gaussian(
    shape: tuple[int, ...], variance: Fraction | int, bits: KeyedBits
) -> IntArray:
    """Independent draws from N_ℤ(0, variance), for σ up to 2⁵³ grid steps.

    `variance` is σ² exactly, whole or a fraction; the variance of the draws is never above it.
    """
    if not isinstance(variance, Rational) or not 0 < variance <= MOST_STEPS**2:
        raise OptionError(
            "variance: expected a whole number or a fraction above 0, of squared grid steps and at "
            f"most 2**106, came {shown(variance)}; a larger one needs a coarser grid"
        )
    needed = math.prod(shape)
    found: list[int] = []
    while len(found) < needed:
        missing = needed - len(found)
        kept = _kept(math.ceil(_PROPOSALS * missing) + 8, Fraction(variance), bits)
        found.extend(islice(kept, missing))
    return np.array(found, dtype=np.int64).reshape(shape)


def _kept(n_proposals: int, variance: Fraction, bits: KeyedBits) -> Iterator[int]:
    """Draws from the discrete Laplace, each kept with probability exp(−(|y| − σ²/t)²/2σ²)."""
    top, bottom = variance.numerator, variance.denominator
    scale = math.isqrt(top // bottom) + 1  # t = ⌊σ⌋ + 1
    slope, whole = scale * bottom, 2 * top * bottom * scale**2
    for proposal in _discrete_laplace(n_proposals, scale, bits).tolist():
        if _happens((abs(proposal) * slope - top) ** 2, whole, bits):
            yield proposal


def _discrete_laplace(n_proposals: int, scale: int, bits: KeyedBits) -> IntArray:
    """Draws from P(y) ∝ exp(−|y|/scale); about two thirds of `n_proposals` are left."""
    rest = bits.many_below(scale, n_proposals)
    rest = rest[_happen(rest, scale, bits)]
    sizes = rest + scale * _successes(len(rest), bits)
    negative = bits.many_below(2, len(sizes)) == 1
    once = ~(negative & (sizes == 0))  # or else zero would come twice as often
    return np.asarray(np.where(negative, -sizes, sizes)[once])


def _successes(size: int, bits: KeyedBits) -> IntArray:  # (size,)
    """How often each of `size` events of probability 1/e happens before its first failure."""
    counts = np.zeros(size, dtype=np.int64)
    going = np.arange(size)
    while len(going):
        going = going[_happen(np.ones(len(going), dtype=np.int64), 1, bits)]
        counts[going] += 1
    return counts


def _happen(parts: IntArray, whole: int, bits: KeyedBits) -> BoolArray:  # shaped as parts
    """Events of probability exp(−part/whole), for parts from 0 to the whole.

    e^−γ = Σₖ (−γ)ᵏ/k! is the probability that events of probability γ, γ/2, γ/3, … all happen up to
    an even one and the next does not.
    """
    happen = np.zeros(len(parts), dtype=np.bool_)
    going = np.arange(len(parts))
    nth = 1
    while len(going):
        again = bits.many_below(nth * whole, len(going)) < parts[going]
        happen[going[~again]] = nth % 2 == 1
        going = going[again]
        nth += 1
    return happen


def _happens(part: int, whole: int, bits: KeyedBits) -> bool:
    """One event of probability exp(−part/whole), for whole numbers of any size."""
    while part > whole:
        if not _happens(1, 1, bits):
            return False
        part -= whole
    nth = 1
    while bits.event(part, nth * whole):
        nth += 1
    return nth % 2 == 1
