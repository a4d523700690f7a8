"""Array types, checks of the arrays and numbers that a user passes, and symmetric matrices."""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from numbers import Integral, Real
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedopl.base.errors import DataError, OptionError
from fedopl.base.whole_numbers import is_beyond_64_bits, shown

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Words = NDArray[np.uint64]  # modulo 2⁶⁴: masked sums, keys, signatures
BoolArray = NDArray[np.bool_]
Scalar = TypeVar("Scalar", bound=np.generic)


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """A view of the array that cannot be written to."""
    view = array.view()
    view.setflags(write=False)
    return view


def to_eight_digits(numbers: FloatArray) -> FloatArray:  # shaped as numbers
    """The numbers rounded to 26 bits; a number that is tiny within its column becomes zero.

    Another processor may compute different last bits. Rounding removes that difference.
    """
    usual = np.abs(numbers) < 1e100  # larger numbers mean "never", and stay as they are
    sizes = np.where(usual, np.abs(numbers), 0.0)
    largest = sizes.max(axis=max(numbers.ndim - 2, 0), keepdims=True, initial=0.0)
    (_, own), (_, most) = np.frexp(sizes), np.frexp(largest)
    powers = np.maximum(own - 26, most - 46)
    return np.where(usual, np.ldexp(np.round(np.ldexp(numbers, -powers)), powers), numbers)


def largest_size(array: NDArray[Scalar]) -> float:
    """The largest |number| in the array, NaN if any number is NaN; 0 if the array is empty."""
    if not array.size:
        return 0.0
    # max(|array|) would need a second array of the same size; argmax is faster than max.
    flat = array.reshape(-1)
    return max(float(flat[flat.argmax()]), -float(flat[flat.argmin()]))


def perhaps_beyond(arrays: Iterable[NDArray[Any]], bound: float) -> list[NDArray[Any]]:
    """The arrays that may hold a number beyond the bound, or NaN, judging by their Euclidean norm.

    The norm is cheap, and rules out most arrays.
    """
    return [array for array in arrays if not length(array) < bound]


def length(array: NDArray[Any]) -> float:
    """The Euclidean norm √Σx² of all numbers in the array; infinite if squares overflow."""
    numbers = array.astype(np.float64, copy=False)
    return math.sqrt(np.vdot(numbers, numbers))  # vdot never warns of overflow


def ascends(numbers: NDArray[Any]) -> bool:
    """Whether no number is smaller than the one before it."""
    return bool(np.count_nonzero(numbers[1:] >= numbers[:-1]) >= len(numbers) - 1)


def float_array(values: ArrayLike, name: str, ndim: int) -> FloatArray:
    """The values as a C-contiguous float64 array, without a copy if they already are one."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise DataError(f"{name}: expected an array, came a ragged list") from None
    if array.dtype.kind == "O":
        array = _numbers_from_objects(array, name)
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name}: expected numbers, came {array.dtype}; encode them first")
    if array.ndim != ndim:
        shape = {1: "(n_rows,)", 2: "(n_rows, n_columns)"}[ndim]
        raise DataError(f"{name}: expected shape {shape}, came {array.shape}")
    return np.ascontiguousarray(array, dtype=np.float64)


def _numbers_from_objects(array: NDArray[np.generic], name: str) -> NDArray[np.generic]:
    if any(isinstance(value, str | bytes) for value in array.flat):
        raise DataError(f"{name}: expected numbers, came text; encode it first")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(
            f"{name}: expected numbers, came objects that are not numbers or are missing"
        ) from None


def check_length(array: NDArray[np.generic], name: str, n_rows: int) -> None:
    """Refuse an array that is not as long as the contexts."""
    if len(array) != n_rows:
        raise DataError(f"{name}: expected {n_rows:,} rows as in contexts, came {len(array):,}")


def check_finite(array: FloatArray, name: str, columns: Sequence[str] | None = None) -> None:
    """Refuse missing and infinite values, and count them by column."""
    # A finite norm proves that every element is finite. So the usual case takes one cheap pass.
    if math.isfinite(length(array)):
        return
    bad = ~np.isfinite(array)
    if not bad.any():
        return
    if columns is None:
        where = f"{bad.sum():,} of {len(array):,} rows"
    else:
        counts = bad.sum(axis=0)
        named = [
            f"'{column}' {count:,}" for column, count in zip(columns, counts, strict=True) if count
        ]
        where = f"{bad.any(axis=1).sum():,} of {len(array):,} rows (by column: {shortlist(named)})"
    raise DataError(
        f"{name}: missing or infinite values in {where}; correct or drop those rows, or read the "
        "table with a schema that says missing='drop' or 'indicator' for missing ones"
    )


def check_probability(value: object, name: str) -> None:
    """Refuse a value that is not strictly between 0 and 1."""
    if not isinstance(value, Real) or not 0 < float(value) < 1:
        raise OptionError(f"{name}: expected a propensity between 0 and 1, came {value!r}")


def check_positive(value: object, name: str) -> None:
    """Refuse a value that is not a finite number above 0."""
    if not isinstance(value, Real) or is_beyond_64_bits(value):
        raise OptionError(f"{name}: expected a number above 0, came {shown(value)}")
    if not 0 < float(value) < math.inf:
        raise OptionError(f"{name}: expected a number above 0, came {float(value):g}")


def check_whole(value: object, name: str, least: int, most: int) -> None:
    """Refuse a value that is not a whole number in this range."""
    if not isinstance(value, Integral) or not least <= int(value) <= most:
        raise OptionError(f"{name}: expected {least} to {most}, came {shown(value)}")


def shortlist(words: Iterable[str], most: int = 5) -> str:
    """The first few words, and how many more there are."""
    words = list(words)
    rest = len(words) - most
    return ", ".join(words[:most]) + (f" and {rest} more" if rest > 0 else "")


# --- symmetric matrices, as lower triangles: about half the numbers, without loss ----------------


def triangle_size(width: int) -> int:
    """How many numbers a symmetric matrix of this width has on and below its diagonal."""
    return width * (width + 1) // 2


def lower_triangles(matrices: NDArray[Scalar]) -> NDArray[Scalar]:  # (…, triangle_size)
    """The entries on and below the diagonals of matrices (…, n, n), row by row."""
    *stack, width, _ = matrices.shape
    kept, _ = _places(width)
    return matrices.reshape(*stack, width * width).take(kept, axis=-1)


def from_triangles(triangles: NDArray[Scalar], width: int) -> NDArray[Scalar]:  # (…, n, n)
    """The symmetric matrices with these lower triangles."""
    _, taken = _places(width)
    return triangles.take(taken, axis=-1).reshape(*triangles.shape[:-1], width, width)


@lru_cache(8)
def _places(width: int) -> tuple[IntArray, IntArray]:
    """The positions of the triangle in a flat matrix, and of each entry in the triangle."""
    rows, columns = np.tril_indices(width)
    taken = np.empty((width, width), np.int64)
    taken[rows, columns] = taken[columns, rows] = np.arange(len(rows))
    return rows * width + columns, taken.ravel()
