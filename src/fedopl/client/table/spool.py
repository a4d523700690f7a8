"""Tables larger than memory: rows are read once, in batches, into private array files.

A folder holds one spool for each table and way of reading it. A spool is written in another place
and renamed when it is complete. So a spool with its final name is complete. Two processes that
write the same spool cannot disturb each other: both use the one that was finished first.
One thread reads the next batch and one writes the last, while a batch is encoded between them.
"""

import contextlib
import dataclasses
import hashlib
import json
import secrets
import shutil
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fedopl.base.errors import DataError, OptionError, StorageError
from fedopl.base.files import write_atomically, writing_to
from fedopl.client.disk.disk_array import (
    DiskArray,
    DiskWriter,
    check_space,
    remove_abandoned,
    slices,
)
from fedopl.client.table.batched_io import BUFFER_BYTES, RowBatches, explained_batches
from fedopl.client.table.columns import GroupCodes
from fedopl.client.table.encoder import Attrition, Encoder, Gaps
from fedopl.client.table.formats import check_file, check_header, explained, suffix_of
from fedopl.client.table.logged_data import LoggedData, trusted
from fedopl.client.table.text_files import FileFormat

Number = Literal["float64", "float32"]
SpooledArrays = dict[str, DiskArray]
Spooled = tuple[SpooledArrays, Gaps]

# Raised whenever the way changes in which rows are read or stored.
SPOOL_FORMAT = 1
UNFINISHED_SPOOL = ".writing-"
ABOUT = "about.json"
ROWS_PER_BATCH = 1 << 16
# The size of a batch as numbers; up to four batches are in memory.
BATCH_BYTES = 1 << 25


def spool(
    source: Path | RowBatches, encoder: Encoder, folder: Path, number: Number = "float64"
) -> LoggedData:
    """The rows that `read_logged` would give, in the same order, but on disk.

    Only a few batches of them are ever in memory, besides the labels of groups if there are any. A
    spool in the folder is used again as long as the rows and the way they are read stay the same.
    For a file, this is known before it is read. `number` is the precision with which contexts are
    stored.
    """
    if number not in get_args(Number):
        raise OptionError(f"numbers: expected float64 or float32, came {number!r}")
    settings = {
        "format": SPOOL_FORMAT,
        "source": {},
        "schema": encoder.schema.model_dump(mode="json"),
        "columns": encoder.called,
        "labels": {column: dict(own) for column, own in encoder.labels.items()},
        "number": number,
    }
    with writing_to(folder):
        if isinstance(source, RowBatches):
            home = _of_batches(source, encoder, folder, settings)
        else:
            home = _of_file(source, encoder, folder, settings)
        found = _found(home)
    if found is None:
        raise StorageError(f"{home}: is not what was written; start again")
    arrays, gaps = found
    encoder.warn_of_gaps(gaps)
    schema = encoder.schema
    return trusted(arrays, schema.actions, schema.feature_names, schema)


def _of_file(source: Path, encoder: Encoder, folder: Path, settings: dict[str, Any]) -> Path:
    """The spool of a file; size and time decide, before reading, if an earlier one is used."""
    check_file(source, encoder.name)
    if suffix_of(source) != ".parquet":
        raise DataError(
            f"{encoder.name}: only Parquet files can be read in batches; convert it to one"
        )
    state = _state_of(source)
    settings = settings | {"source": state}
    home = _home(folder, settings)
    if _found(home) is None:
        with _beside(folder) as beside:
            written = write_file(source, encoder, beside, settings["number"])
            # Checked again after the last row; otherwise a spool could mix two tables.
            if _state_of(source) != state:
                raise DataError(f"{encoder.name}: the file changed while it was read; start again")
            _finish(beside, home, settings, written)
        _tidy(folder, state)
    return home


def _of_batches(
    source: RowBatches, encoder: Encoder, folder: Path, settings: dict[str, Any]
) -> Path:
    """The spool of batches; only after reading is it known if an earlier one has the same rows."""
    with _beside(folder) as beside:
        written = write_batches(source, encoder, beside, settings["number"])
        content = {name: array.digest for name, array in written[0].items()}
        state: dict[str, object] = {"path": source.origin, "content": content}
        settings = settings | {"source": state}
        home = _home(folder, settings)
        if _found(home) is None:
            _finish(beside, home, settings, written)
    if source.origin:
        _tidy(folder, state)
    return home


def n_numbers(path: Path, n_features: int) -> int:
    """The number of numbers in a Parquet file's contexts; 0 if there is no such file."""
    if suffix_of(path) != ".parquet" or not path.is_file():
        return 0
    try:
        return int(parquet.read_metadata(path).num_rows) * n_features
    except (OSError, pa.ArrowException):
        return 0  # reading the file will report what is wrong


def _state_of(source: Path) -> dict[str, object]:
    """A description of the file that changes whenever somebody writes to it."""
    state = source.stat()
    return {"path": str(source.resolve()), "size": state.st_size, "mtime_ns": state.st_mtime_ns}


def _found(home: Path) -> Spooled | None:
    """The arrays of a spool, None unless it is there and complete."""
    try:
        about = json.loads((home / ABOUT).read_bytes())
        arrays = {
            name: DiskArray(
                home / name, tuple(array["shape"]), np.dtype(array["stored"]), array["digest"]
            )
            for name, array in about["arrays"].items()
        }
        gaps = Gaps(**about["gaps"] | {"attrition": Attrition(**about["gaps"]["attrition"])})
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # a damaged file counts as none
    return (arrays, gaps) if all(array.is_complete() for array in arrays.values()) else None


def _tidy(folder: Path, source: dict[str, object]) -> None:
    """Remove leftovers of killed processes, and spools of earlier states of this table."""
    remove_abandoned(folder, UNFINISHED_SPOOL)
    for old in folder.glob(f"*/{ABOUT}"):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            before = json.loads(old.read_bytes())["settings"]["source"]
            if before["path"] == source["path"] and before != source:
                shutil.rmtree(old.parent)


def _home(folder: Path, settings: dict[str, Any]) -> Path:
    """The folder of a spool; its name depends on everything that changes the rows."""
    return folder / hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:32]


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A folder to write a spool in, which is removed afterwards unless it was moved."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A name of its own, because another process may be writing the same spool.
    beside = folder / f"{UNFINISHED_SPOOL}{secrets.token_hex(8)}"
    beside.mkdir(mode=0o700)
    try:
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _finish(beside: Path, home: Path, settings: dict[str, Any], written: Spooled) -> None:
    """Write a description of the arrays, and move the spool to its place."""
    arrays, gaps = written
    about = {
        "settings": settings,
        "gaps": dataclasses.asdict(gaps),
        "arrays": {
            name: {"shape": array.shape, "stored": array.stored.str, "digest": array.digest}
            for name, array in arrays.items()
        },
    }
    write_atomically(beside / ABOUT, json.dumps(about).encode(), mode=0o600)
    if home.exists() and _found(home) is None:
        shutil.rmtree(home, ignore_errors=True)
    try:
        beside.rename(home)
    except OSError:  # perhaps another process was faster
        if _found(home) is None:
            raise


# --- writing --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Job:
    """A table to write, and the format."""

    encoder: Encoder
    number: Number
    n_rows: int | None  # None if not known before the last row

    @property
    def columns(self) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """For each array, the shape of a row and the type in which its numbers are stored."""
        schema, real = self.encoder.schema, np.dtype(np.float64)
        columns: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
            "contexts": ((len(schema.feature_names),), np.dtype(self.number)),
            "actions": ((), np.min_scalar_type(len(schema.actions) - 1)),
            "rewards": ((), real),
        }
        if schema.propensity is not None:
            columns["propensities"] = (schema.propensity_shape, real)
        if schema.outcomes:
            columns["outcomes"] = ((len(schema.outcomes),), real)
        if schema.weight:
            columns["weights"] = ((), real)
        if schema.group:
            # There are at most as many groups as rows.
            most = np.dtype(np.int64) if self.n_rows is None else np.min_scalar_type(self.n_rows)
            columns["groups"] = ((), most)
        return columns


def write_file(source: Path, encoder: Encoder, folder: Path, number: Number) -> Spooled:
    """Write the rows of a Parquet file to one file for each array, and count missing values."""
    name = encoder.name
    with contextlib.ExitStack() as stack:
        with explained(source, name, FileFormat()):
            file = stack.enter_context(
                # Otherwise whole columns would be in memory.
                parquet.ParquetFile(source, buffer_size=BUFFER_BYTES, pre_buffer=False)
            )
        wanted = tuple(dict.fromkeys(encoder.called.values()))
        check_header(file.schema_arrow.names, wanted, name)
        n_rows = file.metadata.num_rows
        if not n_rows:
            raise DataError(f"{name}: no rows; expected a header and at least one row")
        job = _Job(encoder, number, n_rows)
        sizes = {n: kind.itemsize * int(np.prod(w)) for n, (w, kind) in job.columns.items()}
        per_row = sum(sizes.values()) + sizes.get("groups", 0)  # groups are written twice
        check_space(folder, n_rows * per_row, f"a copy of {name}")
        each = file.iter_batches(_rows_at_once(encoder), columns=list(wanted), use_threads=True)
        return _write(explained_batches(each, source, name, FileFormat()), job, folder)


def write_batches(source: RowBatches, encoder: Encoder, folder: Path, number: Number) -> Spooled:
    """Write rows that come in batches to one file for each array, and count missing values."""
    wanted = tuple(dict.fromkeys(encoder.called.values()))
    check_header(source.names, wanted, encoder.name)
    at_once = _rows_at_once(encoder)
    # The sender decides how large a batch is.
    each = (
        batch.select(list(wanted)).slice(start, at_once)
        for batch in source
        for start in range(0, batch.num_rows, at_once)
    )
    return _write(each, _Job(encoder, number, None), folder)


def _rows_at_once(encoder: Encoder) -> int:
    width = len(set(encoder.called.values())) + len(encoder.schema.feature_names)
    return max(1, min(ROWS_PER_BATCH, BATCH_BYTES // (8 * width)))


def _write(batches: Iterable[Any], job: _Job, folder: Path) -> Spooled:
    with contextlib.ExitStack() as stack:
        writers = {
            column: stack.enter_context(DiskWriter(folder / column, width, stored))
            for column, (width, stored) in job.columns.items()
        }
        coming = stack.enter_context(contextlib.closing(_prefetched(iter(batches))))
        gaps = _write_batches(coming, writers, job)
        job.encoder.refuse_gaps(gaps)
        arrays = {column: writer.finished() for column, writer in writers.items()}
    if "groups" in arrays:
        arrays["groups"] = _renumbered(arrays["groups"], job.encoder.group_codes)
    return arrays, gaps


def _prefetched(batches: Iterator[Any]) -> Generator[Any, None, None]:
    """Batches of the table; the next one is read while one is used."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch


def _write_batches(batches: Iterator[Any], writers: dict[str, DiskWriter], job: _Job) -> Gaps:
    """Encode each batch while the one before is written."""
    gaps: Gaps | None = None
    start = 0
    with ThreadPoolExecutor(1) as pool:
        writing: Future[None] | None = None
        for batch in batches:
            stop = start + batch.num_rows
            try:
                data, found = _batch(batch, job)
            except DataError as error:
                if stop - start == job.n_rows:
                    raise
                raise DataError(f"{error} (in rows {start + 1:,} to {stop:,})") from None
            gaps = found if gaps is None else gaps + found
            if writing:
                writing.result()
            if data is not None:
                writing = pool.submit(_append, data, writers)
            start = stop
        if writing:
            writing.result()
    if gaps is None:
        raise DataError(f"{job.encoder.name}: no rows; expected a header and at least one row")
    if job.n_rows not in (None, start):
        raise DataError(f"{job.encoder.name}: expected {job.n_rows:,} rows, came {start:,}")
    return gaps


def _batch(batch: Any, job: _Job) -> tuple[LoggedData | None, Gaps]:
    """The usable rows of a batch, if any; gaps that will be refused are only counted."""
    encoder = job.encoder
    table = pa.Table.from_batches([batch])
    encoded = encoder.encode({column: table[own] for column, own in encoder.called.items()})
    kept, gaps = encoder.usable(encoded)
    if gaps.n_refused or gaps.n_missing == gaps.n_rows:
        return None, gaps
    data = encoder.logged(encoded, kept)
    if job.number == "float32" and np.abs(data.contexts).max() > np.finfo(np.float32).max:
        raise DataError(f"{encoder.name}: features are too large for float32; keep them as float64")
    return data, gaps


def _append(data: LoggedData, writers: dict[str, DiskWriter]) -> None:
    for name, writer in writers.items():
        writer.append(getattr(data, name))


def _renumbered(groups: DiskArray, codes: GroupCodes) -> DiskArray:
    """The groups numbered in the order of their labels, which is known only after the last row."""
    final = codes.final(groups[rows] for rows in slices(len(groups)))
    first = groups.path.rename(groups.path.with_name("groups by appearance"))
    by_appearance = dataclasses.replace(groups, path=first)
    with DiskWriter(groups.path, (), groups.stored) as writer:
        for rows in slices(len(groups)):
            writer.append(final[by_appearance[rows]])
        renumbered = writer.finished()
    first.unlink()
    return renumbered
