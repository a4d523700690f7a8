"""Columns become numbers: NaN stands for a missing number, −1 for a missing label."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from fedopl.arrays import FloatArray, IntArray
from fedopl.errors import DataError
from fedopl.labels import label_text, quoted

# Spellings of "no value" in label columns, unless the schema has a label of that name.
NO_LABEL = {"", "#N/A", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"}


def numbers(column: Any, what: str) -> FloatArray:
    """An Arrow column of numbers as float64."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if _is_text(kind):
        raise DataError(f"{what}: expected numbers, came text; {_not_numbers(column)}")
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
    ):
        raise DataError(f"{what}: expected numbers, came {kind}; convert it to a number first")
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    values: FloatArray = column.cast(pa.float64(), safe=False).to_numpy()
    return values


def codes(column: Any, labels: Sequence[str], what: str) -> IntArray:
    """Each row's position among the known labels; refused if a row has any other."""
    texts, positions, counts = _distinct(column)
    known = {label: code for code, label in enumerate(labels)}
    no_label = NO_LABEL - known.keys()
    unknown = [text for text in texts if text not in known and text not in no_label]
    if unknown:
        n_unknown = sum(counts[texts.index(text)] for text in unknown)
        raise DataError(
            f"{what}: {n_unknown:,} of {len(column):,} rows have a label that is not one of the "
            f"{len(labels)} in the schema ({quoted(labels)}); unknown: {quoted(unknown)}"
        )
    by_position = np.array([*(known.get(text, -1) for text in texts), -1], np.int64)
    return by_position[positions]


def groups(column: Any) -> IntArray:
    """Each row's group, in the order of the groups' labels, so that row order changes nothing."""
    texts, positions, _ = _distinct(column)
    named = sorted(text for text in texts if text not in NO_LABEL)
    known = {text: code for code, text in enumerate(named)}
    by_position = np.array([*(known.get(text, -1) for text in texts), -1], np.int64)
    return by_position[positions]


def _distinct(column: Any) -> tuple[list[str], IntArray, list[int]]:
    """The distinct labels, each row's position among them (−1: null), and how many rows have it."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = pa.chunked_array(column.chunks, column.type).combine_chunks().dictionary_encode()
    texts = [label_text(label) for label in encoded.dictionary.to_pylist()]
    positions = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    counts = np.bincount(positions[positions >= 0], minlength=len(texts))
    return texts, positions, counts.tolist()


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_kind = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(check(kind) for check in is_kind)


def _not_numbers(column: Any) -> str:
    texts, _, counts = _distinct(column)
    wrong = [position for position, text in enumerate(texts) if not _is_number(text)]
    n_wrong = sum(counts[position] for position in wrong)
    if not n_wrong:
        return "every value reads as a number: convert the column first"
    examples = quoted([texts[position] for position in wrong[:3]])
    return f"{n_wrong:,} of {len(column):,} rows are not numbers, such as {examples}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text in NO_LABEL
    return True
