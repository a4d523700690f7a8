"""Escapes text that a spreadsheet would run as a formula, because it may be malicious."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.compute as pc

from fedopl.client.table.batched_io import BATCH_WRITERS
from fedopl.client.table.row_batches import RecordBatch

Formulas = Literal["escape", "keep"]
# How a formula begins. Spreadsheets skip a tab or a line break before it.
BEGINS_FORMULA = r"^[=+\-@\t\r\n]"
IS_NUMBER = r"^[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?$|^(?i:[+-]?(?:inf|infinity|nan))$"


@contextmanager
def without_formulas(
    file: BinaryIO, schema: Any, suffix: str
) -> Iterator[Callable[[RecordBatch], object]]:
    """A function that writes batches with an apostrophe before every such text.

    Spreadsheets show what follows an apostrophe as text. Numbers stay as they are, and the names of
    columns are text, too.
    """
    names = _escaped(pa.array(schema.names, pa.string())).to_pylist()
    renamed = pa.schema([kind.with_name(name) for kind, name in zip(schema, names, strict=True)])

    def escaped(batch: RecordBatch) -> RecordBatch:
        cells = [_escaped(cells) if _is_text(cells.type) else cells for cells in batch.columns]
        return pa.RecordBatch.from_arrays(cells, names=names)

    with BATCH_WRITERS[suffix](file, renamed) as write:
        yield lambda batch: write(escaped(batch))


def _is_text(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _escaped(column: Any) -> Any:
    texts = column.cast(pa.string())
    begins = pc.match_substring_regex(texts, BEGINS_FORMULA)
    # In most columns, everything that begins like a formula is a number.
    if pc.all(pc.match_substring_regex(texts.filter(begins), IS_NUMBER)).as_py():
        return texts
    harmful = pc.and_not(begins, pc.match_substring_regex(texts, IS_NUMBER))
    return pc.if_else(harmful, pc.binary_join_element_wise("'", texts, ""), texts)
