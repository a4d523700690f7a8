"""The discrete Gaussian N_ℤ(0, σ²): P(y) ∝ exp(−y²/2σ²) over whole numbers, drawn exactly.

The last bits of floating-point noise disclose what it was added to (Mironov 2012). Here sums are
whole multiples of a grid step, noise is a whole number of steps, and each decision on the way is a
comparison of whole numbers with uniform bits: probabilities are the formula's, without rounding.
Algorithms 1 to 3 of Canonne, Kamath & Steinke (2020).

Uniform bits are derived from a key and a label: repeatable, but only with the key. A repeated
question has to get the same noise, or noise would average out. So noise is derived from the
client's secret (the key) and the question (the label), never from a study's seed, which others
know. HMAC-SHA256 makes a key for each label, SHAKE-256 in counter mode the bits.
"""

import hashlib
import hmac
import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from numbers import Rational

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray, check_positive, check_whole
from fedopl.base.errors import OptionError
from fedopl.base.whole_numbers import shown

GRID = 1024  # steps of a unit
# The step of a product of two numbers on the grid; all sums are whole multiples of it.
FINE = float(GRID**2)
FINE_STEP = Fraction(1, GRID**2)
LEAST_KEY = 32  # bytes
LARGEST_BELOW = 2**62
# Separates these bits from all other uses of the same secret.
_PURPOSE = b"fedopl.privacy.keyed_bits 1\x1f"
_BLOCK = 4096  # bytes
# Limit of σ, in grid steps: all values that noise can then reach fit into 64 bits.
MOST_STEPS = 2**53
# With this much more variance, in squared steps, a discrete Gaussian hides a row as well as a
# continuous one: for each number, probabilities are within a factor of 1 ± 3e-34 of those of a
# continuous release with random rounding. With equal variance it does not, if σ is small.
SMOOTHING = 4
# Nearly half of the proposals are kept; fewer if σ is a few steps, and then more are made.
_PROPOSALS = 2.2


def row_by_row(rows: FloatArray, matrix: FloatArray) -> FloatArray:  # (n_rows, n_columns)
    """Rows times a matrix, with each row rounded as it would be alone.

    A product by BLAS may round a row differently beside other rows. Then one row more or less could
    move others on the grid, and change a sum by more than its own part.
    """
    found: FloatArray = np.einsum(
        "ij,jk->ik", np.ascontiguousarray(rows), np.ascontiguousarray(matrix)
    )
    return found


class KeyedBits:
    """A stream of uniform bits, read from start to end; threads must not share one.

    The label must name all that an answer depends on, including the version of the rows. Otherwise
    the difference of two answers with the same noise could disclose a single row.
    """

    def __init__(self, key: bytes, label: bytes) -> None:
        if len(key) < LEAST_KEY:
            raise OptionError(f"key: expected at least {LEAST_KEY} bytes, came {len(key)}")
        self._key = hmac.digest(key, _PURPOSE + label, "sha256")
        self._blocks = 0
        self._buffer = b""
        self._at = 0

    def take(self, n_bytes: int) -> bytes:
        """The next bytes of the stream."""
        lacking = self._at + n_bytes - len(self._buffer)
        if lacking > 0:
            first, self._blocks = self._blocks, self._blocks - (-lacking // _BLOCK)
            counters = (self._key + n.to_bytes(16, "little") for n in range(first, self._blocks))
            blocks = (hashlib.shake_256(own).digest(_BLOCK) for own in counters)
            self._buffer, self._at = self._buffer[self._at :] + b"".join(blocks), 0
        taken = self._buffer[self._at : self._at + n_bytes]
        self._at += n_bytes
        return taken

    def event(self, part: int, whole: int) -> bool:
        """An event of probability exactly part/whole, for numbers of any size.

        A uniform number is drawn in digits of 32 bits, until one differs from the fraction's.
        """
        drawn = digit = 0
        while drawn == digit:
            digit, part = divmod(part << 32, whole)
            drawn = int.from_bytes(self.take(4), "little")
        return drawn < digit

    def many_below(self, n: int, size: int) -> IntArray:  # (size,)
        """Independent uniform whole numbers from 0 to n − 1, for n up to 2⁶²."""
        check_whole(n, "below", 1, LARGEST_BELOW)
        # In the fewest bytes that hold n − 1, of 1, 2, 4 and 8, since drawing bits takes the time.
        kind = np.dtype(np.min_scalar_type(n - 1)).newbyteorder("<")
        spare = 8 * kind.itemsize - (n - 1).bit_length()
        found = np.empty(size, dtype=np.int64)
        filled = 0
        while filled < size:
            words = np.frombuffer(self.take(kind.itemsize * (size - filled)), kind) >> spare
            fitting = words[words < n]
            found[filled : filled + len(fitting)] = fitting
            filled += len(fitting)
        return found


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
