"""Tables in batches, so that memory does not grow with them: files read and written, and others."""

import contextlib
import gzip
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from fedopl.base.errors import DataError, OptionError
from fedopl.client.table.columns import is_text
from fedopl.client.table.formats import TEXT_ENDINGS, check_delimiter, explained, suffix_of
from fedopl.client.table.text_files import FileFormat, check_is_text

# Arrow schemas and batches have no types to check against.
RecordBatch = Any
BatchedTable = tuple[Any, Iterator[RecordBatch]]  # a schema, and the rows in batches of that schema

# For a CSV file: Arrow reads up to 32 blocks ahead, and no row can be longer than one block.
BLOCK_BYTES = 1 << 20
# For a Parquet file: cells in a batch, and the bytes of each column that are read at a time.
BATCH_CELLS = 1 << 19
BUFFER_BYTES = 1 << 16
# A cell of a CSV file with any of these needs quotation marks.
MARKS_TO_QUOTE = ('"', ",", "\r", "\n")


# --- reading ---------------------------------------------------------------------------------


@contextlib.contextmanager
def open_batches(path: Path, text: FileFormat) -> Iterator[BatchedTable]:
    """Open a table; errors in reading are explained, at the start or in a later batch."""
    with contextlib.ExitStack() as stack:
        with explained(path, str(path), text):
            schema, batches = stack.enter_context(BATCH_READERS[suffix_of(path)](path, text))
        yield schema, explained_batches(batches, path, str(path), text)


def explained_batches(
    batches: Iterable[RecordBatch], path: Path, name: str, text: FileFormat
) -> Iterator[RecordBatch]:
    """The batches with rows; errors in reading them are explained."""
    with explained(path, name, text):
        yield from (batch for batch in batches if batch.num_rows)


@contextlib.contextmanager
def _read_csv(path: Path, text: FileFormat) -> Iterator[BatchedTable]:
    check_is_text(path, str(path), text)
    reading = csv.ReadOptions(encoding=text.encoding, block_size=BLOCK_BYTES, use_threads=False)
    parsing = csv.ParseOptions(delimiter=text.between(path), newlines_in_values=True)
    with csv.open_csv(path, reading, parsing) as reader:
        check_delimiter(reader.schema.names, path, str(path), text)
        as_text = csv.ConvertOptions(column_types=dict.fromkeys(reader.schema.names, pa.string()))
    with csv.open_csv(path, reading, parsing, as_text) as reader:
        yield reader.schema, iter(reader)


@contextlib.contextmanager
def _read_parquet(path: Path, text: FileFormat) -> Iterator[BatchedTable]:  # noqa: ARG001
    # Without a buffer, or if all of it were filled first, whole columns would be in memory.
    with parquet.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False) as file:
        schema = file.schema_arrow
        n_rows = max(1, BATCH_CELLS // max(1, len(schema)))
        yield schema, file.iter_batches(n_rows, use_threads=False)


BATCH_READERS: dict[str, Callable[[Path, FileFormat], AbstractContextManager[BatchedTable]]] = {
    **dict.fromkeys(TEXT_ENDINGS, _read_csv),
    ".parquet": _read_parquet,
}


# --- writing ---------------------------------------------------------------------------------


@contextlib.contextmanager
def _write_csv(file: Any, schema: Any) -> Iterator[Callable[[RecordBatch], object]]:
    names = [pa.array([name], pa.string()) for name in schema.names]
    file.write(_lines(pa.RecordBatch.from_arrays(names, names=schema.names)))
    yield lambda batch: file.write(_lines(batch))


@contextlib.contextmanager
def _write_gzip(file: BinaryIO, schema: Any) -> Iterator[Callable[[RecordBatch], object]]:
    # Without a time and a name in the file, the same table gives the same bytes.
    zipped = gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)
    with zipped, _write_csv(zipped, schema) as write:
        yield write


@contextlib.contextmanager
def _write_parquet(file: BinaryIO, schema: Any) -> Iterator[Callable[[RecordBatch], object]]:
    with parquet.ParquetWriter(file, schema) as writer:
        yield writer.write_batch


BATCH_WRITERS: dict[
    str, Callable[[BinaryIO, Any], AbstractContextManager[Callable[[RecordBatch], object]]]
] = {".csv": _write_csv, ".csv.gz": _write_gzip, ".parquet": _write_parquet}


def _lines(batch: RecordBatch) -> bytes:
    """Rows of a CSV file; Arrow joins the cells, because there may be millions."""
    cells = map(_cells, batch.schema.names, batch.columns)
    return _joined(pc.binary_join_element_wise(*cells, ","), "\n") + b"\n"


def _cells(name: str, column: Any) -> Any:
    """A column as text, in quotation marks where a cell needs them."""
    try:
        texts = pc.fill_null(column.cast(pa.string()), "")
    except pa.ArrowException:
        raise OptionError(
            f"out: column '{name}' holds {column.type}, which a CSV file cannot hold; name a file "
            "that ends in .parquet"
        ) from None
    all_text = _joined(texts, "")
    # Most columns need no quotation marks, and one search through all text is fast.
    if not any(mark.encode() in all_text for mark in MARKS_TO_QUOTE):
        return texts
    doubled = pc.replace_substring(texts, '"', '""')
    marked = pc.binary_join_element_wise('"', doubled, '"', "")
    return pc.if_else(
        pc.match_substring_regex(texts, f"[{''.join(MARKS_TO_QUOTE)}]"), marked, texts
    )


def _joined(texts: Any, between: str) -> bytes:
    whole = pa.ListArray.from_arrays([0, len(texts)], texts)
    joined: bytes = pc.binary_join(whole, between)[0].as_buffer().to_pybytes()
    return joined


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
        cells = [_escaped(cells) if is_text(cells.type) else cells for cells in batch.columns]
        return pa.RecordBatch.from_arrays(cells, names=names)

    with BATCH_WRITERS[suffix](file, renamed) as write:
        yield lambda batch: write(escaped(batch))


def _escaped(column: Any) -> Any:
    texts = column.cast(pa.string())
    begins = pc.match_substring_regex(texts, BEGINS_FORMULA)
    # In most columns, everything that begins like a formula is a number.
    if pc.all(pc.match_substring_regex(texts.filter(begins), IS_NUMBER)).as_py():
        return texts
    harmful = pc.and_not(begins, pc.match_substring_regex(texts, IS_NUMBER))
    return pc.if_else(harmful, pc.binary_join_element_wise("'", texts, ""), texts)


class RowBatches:
    """Batches that can be read once; a column's type may differ between them.

    `origin` is the same whenever the same query is run again. If it is given, copies on disk of
    earlier answers are removed.
    """

    def __init__(
        self, names: Iterable[str], batches: Iterable[RecordBatch], *, name: str, origin: str = ""
    ) -> None:
        self.names, self.name, self.origin = list(names), name, origin
        self._batches = iter(batches)
        self._read_ahead: deque[RecordBatch] = deque()

    def has_more_than(self, n_rows: float) -> bool:
        """Whether there are more rows; this reads ahead, and keeps what it read."""
        n_read = 0
        for batch in self._batches:
            self._read_ahead.append(batch)
            n_read += batch.num_rows
            if n_read > n_rows:
                return True
        return False

    def __iter__(self) -> Iterator[RecordBatch]:
        while self._read_ahead:
            yield self._read_ahead.popleft()
        yield from self._batches

    def table(self) -> Any:  # a pyarrow.Table
        """All rows."""
        parts = [pa.Table.from_batches([batch]) for batch in self]
        if not parts:
            return pa.table({name: pa.array([], pa.null()) for name in self.names})
        try:
            return pa.concat_tables(parts, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            raise DataError(f"{self.name}: a column changes its type; cast it to one") from None
