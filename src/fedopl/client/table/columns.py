"""Converts Arrow columns to numbers: NaN is a missing number, −1 a missing label."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.errors import DataError
from fedopl.base.labels import NO_LABEL, label_text, quoted
from fedopl.base.schema import LABELLED, RULES_IN_WORDS, SINCE, Encoding

# Codes for a missing label, and for an unknown one.
MISSING_LABEL, UNKNOWN_LABEL = -1, -2
# The spellings of numbers, flags and gaps in Arrow's CSV reader.
NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity|nan(\(\w*\))?))$"
SPELLINGS = csv.ConvertOptions()
# More texts than this, all different, are not typing errors among numbers.
MOST_EXAMPLES = 20


def numbers(column: Any, what: str) -> FloatArray:
    """An Arrow column of numbers as float64."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if is_text(kind):
        raise DataError(f"{what}: expected numbers, came text; {_not_numbers(column)}")
    check_numbers(kind, what)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    # Not safe: whole numbers beyond 2⁵³ lose digits instead of being refused.
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy())


def check_numbers(kind: Any, what: str) -> None:
    """Raise an error for an Arrow type whose values are not numbers."""
    kinds = ("null", "integer", "floating", "boolean", "decimal")
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        raise DataError(
            f"{what}: expected numbers, came dates; name a rule for them in the study, "
            f"{RULES_IN_WORDS}"
        )
    if not any(getattr(pa.types, f"is_{name}")(kind) for name in kinds):
        raise DataError(f"{what}: expected numbers, came {kind}; convert it to a number first")


def numbers_in_text(column: Any, decimal: str = ".") -> tuple[FloatArray, BoolArray]:
    """The cells of a CSV file as numbers, and which of them hold something else.

    Spellings of numbers, flags and gaps are those of Arrow's CSV reader. But each cell is read by
    itself: a flag may stand beside numbers, and no cell is hexadecimal.
    """
    gaps = pc.is_in(column, pa.array(SPELLINGS.null_values))
    texts = pc.utf8_trim(pc.if_else(gaps, pa.scalar(None, pa.string()), column), " \t")
    if decimal == ",":  # a cell that also has a point is no number
        points = pc.replace_substring(pc.replace_substring(texts, ".", "?"), ",", ".")
        texts = pc.if_else(pc.match_substring_regex(texts, "[.,]"), points, texts)
    try:
        return texts.cast(pa.float64()).to_numpy(), np.zeros(len(column), np.bool_)
    except pa.ArrowInvalid:
        written = pc.match_substring_regex(texts, NUMBER)
        values = pc.if_else(written, texts, pa.scalar(None, pa.string())).cast(pa.float64())
        for words, number in ((SPELLINGS.true_values, 1.0), (SPELLINGS.false_values, 0.0)):
            values = pc.if_else(pc.is_in(column, pa.array(words)), number, values)
        others = pc.and_(pc.is_valid(texts), pc.is_null(values))
        return values.to_numpy(), others.to_numpy()


def codes(
    column: Any,
    labels: Sequence[str],
    what: str,
    own: Mapping[str, str] | None = None,
    other: str | None = None,
) -> IntArray:
    """Each row's position among the known labels; an error if a row has any other label.

    `own` has the known label for each of the column's own labels. If `other` is given, no label is
    refused: every unknown label counts as this known one.
    """
    positions, unknown = look_up(column, labels, own or {})
    if other is not None:
        return pooled(positions, labels, other)
    if unknown:
        raise DataError(
            f"{what}: {sum(unknown.values()):,} of {len(column):,} rows have a label that is not "
            f"one of the {len(labels)} in the schema ({quoted(labels)}); "
            f"unknown: {quoted(list(unknown))}"
        )
    return positions


def look_up(
    column: Any, labels: Sequence[str], own: Mapping[str, str]
) -> tuple[IntArray, dict[str, int]]:
    """Each row's position among the known labels, and the number of rows by unknown label."""
    texts, positions, counts = distinct_labels(column)
    texts = [own.get(text, text) for text in texts]
    # A label of the schema that is spelled like a gap, such as NA, is a label.
    known = dict.fromkeys(NO_LABEL, MISSING_LABEL) | {text: n for n, text in enumerate(labels)}
    unknown: Counter[str] = Counter()
    for text, count in zip(texts, counts, strict=True):
        if text not in known:
            unknown[text] += count
    by_position = np.array(
        [*(known.get(text, UNKNOWN_LABEL) for text in texts), MISSING_LABEL], np.int64
    )
    return by_position[positions], unknown


def pooled(positions: IntArray, labels: Sequence[str], other: str) -> IntArray:
    """The positions, in which unknown labels have the position of `other`."""
    return np.where(positions == UNKNOWN_LABEL, labels.index(other), positions)


class GroupCodes:
    """Codes of groups in a table, perhaps read in batches; all labels are kept in memory.

    At first codes are in the order of appearance: that of labels is known after the last row.
    """

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def __call__(self, column: Any) -> IntArray:
        """Each row's group, in the order in which groups appeared."""
        texts, positions, _ = distinct_labels(column)
        known = self._codes
        codes = [-1 if t in NO_LABEL else known.setdefault(t, len(known)) for t in texts]
        return np.array([*codes, -1], np.int64)[positions]

    def final(self, kept: Iterable[IntArray]) -> IntArray:  # (n_groups seen,)
        """The final code of each code, in the order of labels, so that row order changes nothing.

        Groups without any of the `kept` rows, which are given by their codes, have no final code.
        """
        labels = list(self._codes)
        has_rows = np.zeros(len(labels), np.bool_)
        for part in kept:
            has_rows[part] = True
        order = sorted(np.flatnonzero(has_rows).tolist(), key=labels.__getitem__)
        codes = np.full(len(labels), -1, np.int64)
        codes[order] = np.arange(len(order))
        return codes


def contexts(
    numeric: Mapping[str, FloatArray],
    categorical: Mapping[str, IntArray],
    encoding: Encoding,
    kept: BoolArray | slice,
) -> FloatArray:  # (n_rows kept, n_features)
    """The encoded columns as one matrix, in the order of `encoding.feature_names`."""
    marked = encoding.missing == "indicator"
    columns: list[FloatArray | BoolArray] = []
    for values in numeric.values():
        missing = np.isnan(values)
        columns.append(np.where(missing, 0.0, values))
        columns += [missing] if marked else []
    for column, positions in categorical.items():
        columns += [positions == level for level in range(1, len(encoding.categorical[column]))]
        columns += [positions < 0] if marked else []
    # Filled column by column: stacking would convert every flag to a number twice.
    matrix = np.empty((len(columns[0][kept]), len(columns)))
    for position, encoded_column in enumerate(columns):
        matrix[:, position] = encoded_column[kept]
    return matrix


def distinct_labels(column: Any) -> tuple[list[str], IntArray, list[int]]:
    """The distinct labels, each row's position among them (−1: null), and the count of each."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = pa.chunked_array(column.chunks, column.type).combine_chunks().dictionary_encode()
    texts = [label_text(label) for label in encoded.dictionary.to_pylist()]
    positions = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    counts = np.bincount(positions[positions >= 0], minlength=len(texts))
    return texts, positions, counts.tolist()


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text, perhaps dictionary-encoded."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _not_numbers(column: Any) -> str:
    texts, _, counts = distinct_labels(column)
    wrong = [position for position, text in enumerate(texts) if not _is_number(text)]
    n_wrong = sum(counts[position] for position in wrong)
    if not n_wrong:
        return "every value reads as a number: convert the column first"
    examples = quoted([texts[position] for position in wrong[:3]])
    # Only the first ones, because there may be as many as rows.
    have_commas = all(re.fullmatch(r"[+-]?\d+,\d+", texts[position]) for position in wrong[:100])
    hint = '; with decimal commas? say decimal = ","' if have_commas else ""
    if not hint and len(texts) == len(column) > MOST_EXAMPLES:
        hint = "; no two rows have the same: an id is no feature"
    return f"{n_wrong:,} of {len(column):,} rows are not numbers, such as {examples}{hint}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text in NO_LABEL
    return True


# Dates in ISO format, with or without a time of day.
ISO = r"^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?Z?$"
Instants = NDArray[np.datetime64]  # (n_rows,), NaT where missing


def moments(column: Any, what: str) -> Instants:
    """An Arrow column of dates; an error if it holds anything else."""
    found, others = moments_among(column, what)
    if others.any():
        raise DataError(
            f"{what}: expected dates, such as 2025-12-31, came text in {others.sum():,} of "
            f"{len(others):,} rows that is no date; write dates in this form"
        )
    return found


def moments_among(column: Any, what: str) -> tuple[Instants, BoolArray]:
    """The dates in a column, and which of its cells hold something else."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.full(len(column), "NaT", "datetime64[us]"), np.zeros(len(column), np.bool_)
    if is_text(kind):
        return _in_text(column.cast(pa.string()))
    if not pa.types.is_date(kind) and not pa.types.is_timestamp(kind):
        raise DataError(f"{what}: expected dates, came {kind}; convert them first")
    if pa.types.is_timestamp(kind) and kind.tz:
        column = pc.local_timestamp(column)  # the local time
    values = column.cast(pa.timestamp("us"), safe=False).to_numpy()
    return values.astype("datetime64[us]"), np.zeros(len(column), np.bool_)


def _in_text(texts: Any) -> tuple[Instants, BoolArray]:
    texts = pc.utf8_trim(texts, " \t")
    gaps = pc.is_in(texts, pa.array(sorted(NO_LABEL)))
    texts = pc.if_else(gaps, pa.scalar(None, pa.string()), texts)
    written = pc.fill_null(pc.match_substring_regex(texts, ISO), False)
    cells = pc.utf8_rtrim(pc.if_else(written, texts, pa.scalar(None, pa.string())), "Z")
    others = ~written.to_numpy(zero_copy_only=False) & texts.is_valid().to_numpy()
    spelled = cells.to_numpy(zero_copy_only=False)
    try:
        return spelled.astype("datetime64[us]"), others
    except ValueError:  # such as a 31st of June
        values = np.full(len(spelled), "NaT", "datetime64[us]")
        for row in np.flatnonzero(~others & cells.is_valid().to_numpy()):
            try:
                values[row] = np.datetime64(spelled[row], "us")
            except ValueError:
                others[row] = True
        return values, others


def numbers_of(found: Instants, rule: str) -> FloatArray:
    """The feature by a rule that gives numbers; NaN where there is no date."""
    if since := SINCE.fullmatch(rule):
        passed = found.astype("datetime64[D]") - np.datetime64(since[1], "D")
    elif rule == "year":
        passed = found.astype("datetime64[Y]") - np.datetime64("0000", "Y")
    else:
        passed = found.astype("datetime64[h]") - found.astype("datetime64[D]")
    return np.where(np.isnat(found), np.nan, passed.astype(np.float64))


def codes_of(found: Instants, rule: str) -> IntArray:
    """The position of each label by a rule that gives labels; −1 where there is no date."""
    if rule == "month":
        place = found.astype("datetime64[M]").astype(np.int64) % len(LABELLED[rule])
    else:  # 1970 began on a Thursday
        place = (found.astype("datetime64[D]").astype(np.int64) + 3) % len(LABELLED[rule])
    return np.where(np.isnat(found), -1, place).astype(np.int64)
