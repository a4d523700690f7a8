"""Deciding for every row of a table, a batch at a time, however long the table is."""

import contextlib
import gzip
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from fedopl.arrays import BoolArray, FloatArray, IntArray, shortlist
from fedopl.client import encode
from fedopl.client.tables import Wanted, _check_header, _first_line
from fedopl.errors import DataError, OptionError, PolicyError
from fedopl.files import replacing
from fedopl.policies.linear import LinearPolicy
from fedopl.schema import Encoding

Undecided = Literal["error", "blank"]
# Arrow schemas and batches have no types to check against.
Batch = Any
Table = tuple[Any, Iterator[Batch]]  # a schema, and the rows in batches of that schema

# Of a CSV file: Arrow reads up to 32 blocks ahead, and no row can be longer than one.
BLOCK_BYTES = 1 << 20
# Of a Parquet file: rows times columns, and what is read of each column at a time.
BATCH_CELLS = 1 << 19
BUFFER_BYTES = 1 << 16
# How much of a cell an error shows, in characters.
EXAMPLE_LENGTH = 30
# What a cell of a CSV file cannot hold without quotation marks.
MARKS = ('"', ",", "\r", "\n")


@dataclass(frozen=True, kw_only=True)
class Decided:
    """How many rows there were, and how often each action was decided on."""

    n_rows: int
    counts: dict[str, int]  # by action, in the policy's order
    n_undecided: int


@dataclass(frozen=True, kw_only=True)
class _Task:
    """A policy, and how its features are found in one table."""

    policy: LinearPolicy
    encoding: Encoding
    called: Mapping[str, str]  # by the encoding's name of a column, its name in the table
    labels: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, eq=False)
class _Doubt:
    """Rows of a batch that cannot be decided, for what is in one column."""

    column: str
    why: str
    rows: BoolArray  # (n_rows,)


def decide_table(
    policy: LinearPolicy,
    source: str | Path,
    out: str | Path,
    *,
    column: str = "action",
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, Mapping[str, str]] | None = None,
    encoding: str = "utf-8",
    undecided: Undecided = "error",
    progress: Callable[[int], None] | None = None,
) -> Decided:
    """Copy a table, with a last column that names the action to take in each row.

    All other columns stay as they are. The cells of a CSV file are the same text, though blank
    lines and quotation marks that no cell needs are left out. Either the whole table is written or
    nothing is, and what was there before stays.

    Args:
        policy: one learned on tables, which knows how columns become features.
        source: a CSV (.csv, .csv.gz) or Parquet file.
        out: a file to write, of any of these kinds. CSV files are written as UTF-8, and what was
            read from one is text in Parquet.
        column: what the new column is called.
        columns: what columns are called in this table, by the policy's name, where it differs.
        labels: by the policy's name of a column, the policy's label for each label of this table.
        encoding: of a CSV file that is read.
        undecided: what to do about rows with a value that is missing, not a finite number, or a
            label the policy does not know: refuse the table, or leave the new column empty there.
        progress: is told how many rows are done, after each batch.

    """
    source, out = Path(source), Path(out)
    task = _task(policy, columns or {}, labels or {})
    _check_choices(source, out, undecided)
    tally = np.zeros(len(policy.action_names) + 1, np.int64)
    with _opened(source, encoding) as (schema, batches):
        _check_columns(schema, task, source, column)
        schema = schema.append(pa.field(column, pa.string()))
        with replacing(out) as file, WRITERS[_suffix(out)](file, schema) as write:
            for batch in batches:
                codes, doubts = _decide(batch, task)
                if doubts and undecided == "error":
                    raise _refusal(doubts, int(tally.sum()), source)
                write(_with_names(batch, codes, policy.action_names, schema))
                tally += np.bincount(codes, minlength=len(tally))
                if progress:
                    progress(int(tally.sum()))
    *counts, n_undecided = tally.tolist()
    by_action = dict(zip(policy.action_names, counts, strict=True))
    return Decided(n_rows=int(tally.sum()), counts=by_action, n_undecided=n_undecided)


# --- before anything is written --------------------------------------------------------------


def _task(
    policy: LinearPolicy, columns: Mapping[str, str], labels: Mapping[str, Mapping[str, str]]
) -> _Task:
    if policy.encoding is None:
        raise PolicyError(
            "the policy was learned on arrays, not on tables with a schema, and does not know what "
            "columns its features are in; use policy.decide on arrays"
        )
    called = {name: columns.get(name, name) for name in policy.encoding.feature_columns}
    return _Task(policy=policy, encoding=policy.encoding, called=called, labels=labels)


def _check_choices(source: Path, out: Path, undecided: str) -> None:
    if undecided not in get_args(Undecided):
        raise OptionError(f"undecided: expected 'error' or 'blank', came {undecided!r}")
    endings = ", ".join(READERS)
    if _suffix(source) not in READERS:
        raise DataError(f"{source}: expected a file that ends in {endings}, came '{source.name}'")
    if not source.is_file():
        what = "is a folder" if source.is_dir() else "is not there"
        raise DataError(f"{source}: the file {what}; check the path")
    if not source.stat().st_size:
        raise DataError(f"{source}: the file is empty; expected a header")
    _check_out(out, source)


def _check_out(out: Path, source: Path) -> None:
    if _suffix(out) not in WRITERS:
        endings = ", ".join(WRITERS)
        raise OptionError(f"{out}: expected a name that ends in {endings}, came '{out.name}'")
    if out.is_dir():
        raise OptionError(f"{out}: is a folder; name a file to write")
    if out.exists() and out.samefile(source):
        raise OptionError(f"{out}: is the table that is read; name another file to write")


def _check_columns(schema: Any, task: _Task, source: Path, column: str) -> None:
    name, own = str(source), tuple(dict.fromkeys(task.called.values()))
    _check_header(schema.names, Wanted(name=name, columns=own, labels=(), encoding=""))
    if column in schema.names:
        raise OptionError(
            f"{name}: there is a column '{column}' already; choose another name for the new one, "
            "with column= (--column)"
        )
    if _suffix(source) == ".parquet":
        _check_kinds(schema, task, name)


def _check_kinds(schema: Any, task: _Task, name: str) -> None:
    for column, own in task.called.items():
        kind, what = schema.field(own).type, f"{name}: column '{own}'"
        if column in task.encoding.numeric:
            encode.check_numbers(kind, what)
        elif pa.types.is_nested(kind):
            raise DataError(f"{what}: expected labels, came {kind}; make them text first")


def _suffix(path: Path) -> str:
    last_two = path.suffix == ".gz"
    return "".join(path.suffixes[-2:]).lower() if last_two else path.suffix.lower()


# --- deciding --------------------------------------------------------------------------------


def _decide(batch: Batch, task: _Task) -> tuple[IntArray, list[_Doubt]]:
    """The code of each row's action, one past the last where there is doubt; and the doubts."""
    numeric, categorical, doubts = {}, {}, []
    for column in task.encoding.numeric:
        numeric[column], found = _numbers(batch, column, task)
        doubts += found
    for column in task.encoding.categorical:
        categorical[column], found = _codes(batch, column, task)
        doubts += found
    doubts = [doubt for doubt in doubts if doubt.rows.any()]
    kept = ~_anywhere(doubts) if doubts else slice(None)
    codes = np.full(batch.num_rows, len(task.policy.action_names), np.int64)
    codes[kept] = task.policy.decide(encode.contexts(numeric, categorical, task.encoding, kept))
    return codes, doubts


def _numbers(batch: Batch, column: str, task: _Task) -> tuple[FloatArray, list[_Doubt]]:
    own = task.called[column]
    cells = pa.chunked_array([batch[own]])
    if not pa.types.is_string(cells.type):
        values, others = encode.numbers(cells, own), np.zeros(len(cells), np.bool_)
    else:
        values, others = encode.numbers_in_text(cells)
    example = _example(cells.filter(pa.array(others))[0].as_py()) if others.any() else ""
    return values, [
        _Doubt(own, f"not a number, such as {example}", others),
        _Doubt(own, "infinite", np.isinf(values)),
        *_gaps(own, np.isnan(values) & ~others, task),
    ]


def _codes(batch: Batch, column: str, task: _Task) -> tuple[IntArray, list[_Doubt]]:
    own, levels = task.called[column], task.encoding.categorical[column]
    cells = pa.chunked_array([batch[own]])
    codes, unknown = encode.look_up(cells, levels, task.labels.get(column, {}))
    example = _example(next(iter(unknown), ""))
    why = f"not one of the policy's {len(levels)} labels, such as {example}"
    return codes, [
        _Doubt(own, why, codes == encode.UNKNOWN),
        *_gaps(own, codes == encode.MISSING, task),
    ]


def _gaps(column: str, rows: BoolArray, task: _Task) -> list[_Doubt]:
    return [] if task.encoding.missing == "indicator" else [_Doubt(column, "missing", rows)]


def _example(cell: str) -> str:
    """The beginning of a cell: all of it may be rows, if a quotation mark was never closed."""
    shown = "".join(cell.splitlines()[:1])[:EXAMPLE_LENGTH]
    return f"'{shown}'" if shown == cell else f"'{shown}…'"


def _anywhere(doubts: list[_Doubt]) -> BoolArray:
    anywhere: BoolArray = np.logical_or.reduce([doubt.rows for doubt in doubts])
    return anywhere


def _refusal(doubts: list[_Doubt], n_before: int, source: Path) -> DataError:
    anywhere = _anywhere(doubts)
    counts = [f"'{doubt.column}' {doubt.rows.sum():,} {doubt.why}" for doubt in doubts]
    return DataError(
        f"{source}: {anywhere.sum():,} of the first {n_before + len(anywhere):,} rows cannot be "
        f"decided (by column: {shortlist(counts)}); complete them, or say undecided='blank' "
        "(--undecided blank) to leave them empty"
    )


def _with_names(batch: Batch, codes: IntArray, names: tuple[str, ...], schema: Any) -> Batch:
    """The batch with the name of each row's action, and none where there is doubt."""
    named = pa.array([*names, None], pa.string()).take(pa.array(codes))
    return pa.RecordBatch.from_arrays([*batch.columns, named], schema=schema)


# --- reading ---------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(path: Path, encoding: str) -> Iterator[Table]:
    """The table, and a clear word where it cannot be read: now, or further down."""
    with contextlib.ExitStack() as stack:
        with _explained(path, encoding):
            schema, batches = stack.enter_context(READERS[_suffix(path)](path, encoding))
        yield schema, _each(batches, path, encoding)


def _each(batches: Iterable[Batch], path: Path, encoding: str) -> Iterator[Batch]:
    with _explained(path, encoding):
        for batch in batches:
            if batch.num_rows:
                yield batch


@contextlib.contextmanager
def _explained(path: Path, encoding: str) -> Iterator[None]:
    not_text = f"{path}: is not {encoding} text; say its encoding, such as latin-1"
    try:
        yield
    except (LookupError, UnicodeError):
        raise DataError(not_text) from None
    except (pa.ArrowException, OSError, EOFError) as error:
        if "invalid UTF8" in str(error):
            raise DataError(not_text) from None
        raise DataError(f"{path}: cannot be read as {_suffix(path)}: {_said(error)}") from None


def _said(error: Exception) -> str:
    text = _first_line(error)
    if "straddling" in text:
        return f"a row is longer than {BLOCK_BYTES:,} bytes; is a quotation mark never closed?"
    # Arrow goes on with the row itself.
    return re.sub(r"(Expected \d+ columns, got \d+).*", r"\1", text)


@contextlib.contextmanager
def _read_csv(path: Path, encoding: str) -> Iterator[Table]:
    reading = csv.ReadOptions(encoding=encoding, block_size=BLOCK_BYTES, use_threads=False)
    parsing = csv.ParseOptions(newlines_in_values=True)
    with csv.open_csv(path, reading, parsing) as reader:
        as_text = csv.ConvertOptions(column_types=dict.fromkeys(reader.schema.names, pa.string()))
    with csv.open_csv(path, reading, parsing, as_text) as reader:
        yield reader.schema, iter(reader)


@contextlib.contextmanager
def _read_parquet(path: Path, encoding: str) -> Iterator[Table]:  # noqa: ARG001
    # Without a buffer, or with all of it filled beforehand, whole columns would be in memory.
    with parquet.ParquetFile(path, buffer_size=BUFFER_BYTES, pre_buffer=False) as file:
        schema = file.schema_arrow
        n_rows = max(1, BATCH_CELLS // max(1, len(schema)))
        yield schema, file.iter_batches(n_rows, use_threads=False)


READERS: dict[str, Callable[[Path, str], AbstractContextManager[Table]]] = {
    ".csv": _read_csv,
    ".csv.gz": _read_csv,
    ".parquet": _read_parquet,
}


# --- writing ---------------------------------------------------------------------------------


@contextlib.contextmanager
def _write_csv(file: Any, schema: Any) -> Iterator[Callable[[Batch], object]]:
    names = [pa.array([name], pa.string()) for name in schema.names]
    file.write(_lines(pa.RecordBatch.from_arrays(names, names=schema.names)))
    yield lambda batch: file.write(_lines(batch))


@contextlib.contextmanager
def _write_gzip(file: BinaryIO, schema: Any) -> Iterator[Callable[[Batch], object]]:
    zipped = gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)
    with zipped, _write_csv(zipped, schema) as write:
        yield write


@contextlib.contextmanager
def _write_parquet(file: BinaryIO, schema: Any) -> Iterator[Callable[[Batch], object]]:
    with parquet.ParquetWriter(file, schema) as writer:
        yield writer.write_batch


WRITERS: dict[str, Callable[[BinaryIO, Any], AbstractContextManager[Callable[[Batch], object]]]] = {
    ".csv": _write_csv,
    ".csv.gz": _write_gzip,
    ".parquet": _write_parquet,
}


def _lines(batch: Batch) -> bytes:
    """Rows of a CSV file; Arrow joins the cells, as there may be millions."""
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
    if not any(mark.encode() in all_text for mark in MARKS):
        return texts
    doubled = pc.replace_substring(texts, '"', '""')
    marked = pc.binary_join_element_wise('"', doubled, '"', "")
    return pc.if_else(pc.match_substring_regex(texts, f"[{''.join(MARKS)}]"), marked, texts)


def _joined(texts: Any, between: str) -> bytes:
    whole = pa.ListArray.from_arrays([0, len(texts)], texts)
    joined: bytes = pc.binary_join(whole, between)[0].as_buffer().to_pybytes()
    return joined
