"""Converts dates of a table to features, by the rule that the study names."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.date_rules import LABELLED, SINCE
from fedopl.base.errors import DataError
from fedopl.base.labels import NO_LABEL
from fedopl.client.table.columns import is_text

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
    values: FloatArray = np.where(np.isnat(found), np.nan, passed.astype(np.float64))
    return values


def codes_of(found: Instants, rule: str) -> IntArray:
    """The position of each label by a rule that gives labels; −1 where there is no date."""
    if rule == "month":
        place = found.astype("datetime64[M]").astype(np.int64) % len(LABELLED[rule])
    else:  # 1970 began on a Thursday
        place = (found.astype("datetime64[D]").astype(np.int64) + 3) % len(LABELLED[rule])
    return np.where(np.isnat(found), -1, place).astype(np.int64)
