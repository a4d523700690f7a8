"""Labels of actions, levels and groups: each has one spelling, in whatever type it was stored."""

from collections.abc import Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedopl.base.arrays import IntArray, shortlist
from fedopl.base.errors import DataError, OptionError

# Spellings of "no value" in columns of labels, unless a label has that name.
NO_LABEL = {"", "#N/A", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
# Whole numbers in a range no wider than this are counted instead of sorted; fewer than `FEW` are
# neither, as operations on arrays would take longer than all of them.
MOST_COUNTED = 1 << 16
FEW = 200


def label_text(label: object) -> str:
    """One spelling per label, so that 25, 25.0 and '25' are the same action in every table."""
    if isinstance(label, str):
        return str(label)
    if isinstance(label, bool | np.bool_):
        return "true" if label else "false"
    if isinstance(label, int | Integral):  # the abstract class is slow to check
        return str(int(label))
    if isinstance(label, Real | Decimal) and float(label).is_integer():
        return str(int(float(label)))
    return str(label)


def is_missing(label: object) -> bool:
    """Whether a label means "no label": None, NaN, NaT or pandas.NA."""
    # By type name, as pandas may not be installed. NaN and NaT are not equal to themselves.
    return label is None or type(label).__name__ == "NAType" or label != label


def factorise(labels: ArrayLike, name: str) -> tuple[list[str], IntArray]:
    """The distinct labels, sorted (numbers by size, text by alphabet), and each row's code."""
    array = np.asarray(labels)
    if array.ndim != 1:
        raise DataError(f"{name}: expected shape (n_rows,), came {array.shape}")
    missing = _count_missing(array)
    if missing:
        raise DataError(f"{name}: missing in {missing:,} of {len(array):,} rows; drop them")
    distinct, codes = _distinct(array)
    texts = [label_text(label) for label in distinct]
    if len(set(texts)) < len(texts):
        raise DataError(f"{name}: labels of different types share a spelling; use one type")
    return texts, codes.astype(np.int64, copy=False)


def _count_missing(array: NDArray[np.generic]) -> int:
    if array.dtype.kind == "O":
        return sum(map(is_missing, array.tolist()))
    return int(np.sum(array != array)) if array.dtype.kind == "f" else 0


def _distinct(array: NDArray[np.generic]) -> tuple[list[object], IntArray]:
    are_whole = array.dtype.kind in "iu"
    if array.dtype.kind == "O" or (are_whole and len(array) < FEW):
        values = array.tolist()
        try:
            distinct = sorted(set(values))
        except TypeError:
            distinct = sorted(set(values), key=lambda label: (type(label).__name__, str(label)))
        position = {label: code for code, label in enumerate(distinct)}
        return distinct, np.fromiter((position[v] for v in values), np.int64, len(values))
    if are_whole and len(array):
        low, high = int(array.min()), int(array.max())
        if high - low < MOST_COUNTED and high <= np.iinfo(np.int64).max:
            return _distinct_counted(array, low)
    uniques, codes = np.unique(array, return_inverse=True)
    return uniques.tolist(), codes


def _distinct_counted(array: NDArray[Any], low: int) -> tuple[list[object], IntArray]:
    """`_distinct` for integers in a small range, by counting instead of sorting."""
    places = array.astype(np.int64) - low
    seen = np.bincount(places) > 0
    codes: IntArray = np.cumsum(seen, dtype=np.int64) - 1
    return [int(place) + low for place in np.flatnonzero(seen)], codes[places]


def unique_names(names: Sequence[object], what: str) -> tuple[str, ...]:
    """The names as text, refused if two of them are the same."""
    texts = tuple(label_text(name) for name in names)
    if len(set(texts)) < len(texts):
        repeated = sorted({text for text in texts if texts.count(text) > 1})
        raise DataError(f"{what}: named more than once: {quoted(repeated)}")
    return texts


# In tables, this names the mixture of all clients. So no client can have this name.
GLOBAL = "global"


def check_client_name(name: str, where: str) -> None:
    """Refuse a name that is reserved, empty or not printable."""
    if name == GLOBAL:
        raise OptionError(f"{where}: '{GLOBAL}' means all clients together; choose another name")
    if not name.strip() or not name.isprintable():
        raise OptionError(f"{where}: expected a name of printable characters, came {name!r}")


NODE_CHARACTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def check_node_name(name: str) -> None:
    """Refuse a name that cannot go into file names, settings and lists with commas."""
    if not name or not set(name) <= NODE_CHARACTERS:
        raise OptionError(
            f"clients: '{name}' cannot be the name of a node; use letters, digits, - and _"
        )


def quoted(texts: Sequence[str]) -> str:
    """The texts in quotation marks, shortened after the fifth."""
    return shortlist([f"'{text}'" for text in texts])
