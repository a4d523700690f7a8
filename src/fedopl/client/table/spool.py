"""Tables larger than memory: read once, in batches, and kept as arrays in private files.

A folder of spools has one for each table and way of reading it. A spool is written beside its
place and moved there when it is complete, so whatever has a name is whole, and two processes that
write the same one cannot disturb each other: the first to finish is the one that both use.
"""

import contextlib
import dataclasses
import hashlib
import json
import secrets
import shutil
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fedopl.base.errors import DataError, OptionError, StorageError
from fedopl.base.files import write_atomically
from fedopl.base.schema import Schema
from fedopl.client.disk.disk_array import (
    DiskArray,
    DiskWriter,
    check_space,
    remove_abandoned,
    slices,
)
from fedopl.client.table.batched_io import BUFFER_BYTES
from fedopl.client.table.columns import GroupCodes
from fedopl.client.table.encoder import Coder, Gaps
from fedopl.client.table.formats import Wanted, check_file, check_header, explained, suffix_of
from fedopl.client.table.logged_data import LoggedData, trusted

Number = Literal["float64", "float32"]
Arrays = dict[str, DiskArray]

# To be raised whenever rows would be read or kept in another way.
FORMAT = 1
ROWS_PER_BATCH = 1 << 16
# Of a batch as numbers; there are up to four of them in memory.
BATCH_BYTES = 1 << 25
UNFINISHED = ".writing-"
ABOUT = "about.json"


def spool(
    path: str | Path,
    schema: Schema,
    folder: Path,
    *,
    name: str | None = None,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, Mapping[str, str]] | None = None,
    number: Number = "float64",
) -> LoggedData:
    """The rows that `read_logged` would give of a Parquet file, in the same order, but on disk.

    Only a batch of them is ever in memory, besides the labels of groups if there are any. Spools in
    the folder are used again as long as the file and the way it is read stay the same.

    Args:
        path: of the Parquet file.
        schema: what the columns mean.
        folder: where spools are kept, readable by their owner alone.
        name: what errors should call the table, instead of its path.
        columns: what columns are called in this table, by the schema's name, where it differs.
        labels: by column of the schema, the schema's label for each label of this table.
        number: how many digits of each context are kept.

    """
    source, name = Path(path), name or str(path)
    check_file(source, name)
    if suffix_of(source) != ".parquet":
        raise DataError(f"{name}: only Parquet files can be read in batches; convert it to one")
    if number not in get_args(Number):
        raise OptionError(f"numbers: expected float64 or float32, came {number!r}")
    called = {column: (columns or {}).get(column, column) for column in schema.columns}
    groups, state = GroupCodes(), _state_of(source)
    coder = Coder(schema=schema, name=name, called=called, own=labels or {}, groups=groups)
    settings = {
        "format": FORMAT,
        "source": state,
        "schema": schema.model_dump(mode="json"),
        "columns": called,
        "labels": {column: dict(own) for column, own in (labels or {}).items()},
        "number": number,
    }
    home = folder / hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:32]
    try:
        found = _found(home)
        if found is None:
            _write(_Job(source, coder, groups, number), home, settings)
            found = _found(home)
            _tidy(folder, state)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be written: {error.strerror or error}") from None
    if found is None:
        raise StorageError(f"{home}: is not what was written; start again")
    coder.tell_of_gaps(found[1])
    return _data(found[0], schema)


def n_numbers(path: Path, n_features: int) -> int:
    """How many numbers the contexts of a Parquet file are; 0 of what is none, or not there."""
    if suffix_of(path) != ".parquet" or not path.is_file():
        return 0
    try:
        return int(parquet.read_metadata(path).num_rows) * n_features
    except (OSError, pa.ArrowException):
        return 0  # whoever reads it will say what is wrong


@dataclass(frozen=True, eq=False)
class _Job:
    """What is to be written."""

    source: Path
    coder: Coder
    groups: GroupCodes
    number: Number

    def columns(self, n_rows: int) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
        """Of each array, the shape of a row and how its numbers are stored."""
        schema, real = self.coder.schema, np.dtype(np.float64)
        columns: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
            "contexts": ((len(schema.feature_names),), np.dtype(self.number)),
            "actions": ((), np.min_scalar_type(len(schema.actions) - 1)),
            "rewards": ((), real),
        }
        if schema.propensity is not None:
            width = (len(schema.actions),) if isinstance(schema.propensity, dict) else ()
            columns["propensities"] = (width, real)
        if schema.weight:
            columns["weights"] = ((), real)
        if schema.group:
            columns["groups"] = ((), np.min_scalar_type(n_rows))
        return columns


# --- what is there ---------------------------------------------------------------------------


def _state_of(source: Path) -> dict[str, object]:
    state = source.stat()
    return {"path": str(source.resolve()), "size": state.st_size, "mtime_ns": state.st_mtime_ns}


def _found(home: Path) -> tuple[Arrays, Gaps] | None:
    """The arrays of a spool, if it is there and complete."""
    try:
        about = json.loads((home / ABOUT).read_bytes())
        arrays = {
            name: DiskArray(
                home / name, tuple(array["shape"]), np.dtype(array["stored"]), array["digest"]
            )
            for name, array in about["arrays"].items()
        }
        gaps = Gaps(**about["gaps"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # whatever a damaged list makes its reader say
    return (arrays, gaps) if all(array.is_complete() for array in arrays.values()) else None


def _data(arrays: Arrays, schema: Schema) -> LoggedData:
    return trusted(
        arrays["contexts"],
        arrays["actions"],
        arrays["rewards"],
        arrays.get("propensities"),
        action_names=schema.actions,
        feature_names=schema.feature_names,
        weights=arrays.get("weights"),
        groups=arrays.get("groups"),
        schema=schema,
    )


def _tidy(folder: Path, source: dict[str, object]) -> None:
    """Remove what killed processes left, and spools of this table as it was before it changed."""
    remove_abandoned(folder, UNFINISHED)
    for old in folder.glob(f"*/{ABOUT}"):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            before = json.loads(old.read_bytes())["settings"]["source"]
            if before["path"] == source["path"] and before != source:
                shutil.rmtree(old.parent)


# --- writing ---------------------------------------------------------------------------------


def _write(job: _Job, home: Path, settings: dict[str, Any]) -> None:
    home.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = home.with_name(f"{UNFINISHED}{secrets.token_hex(8)}")
    beside.mkdir(mode=0o700)
    try:
        arrays, gaps = _written(job, beside)
        if _state_of(job.source) != settings["source"]:
            raise DataError(f"{job.coder.name}: the file changed while it was read; start again")
        about = {
            "settings": settings,
            "gaps": dataclasses.asdict(gaps),
            "arrays": {
                name: {"shape": array.shape, "stored": array.stored.str, "digest": array.digest}
                for name, array in arrays.items()
            },
        }
        write_atomically(beside / ABOUT, json.dumps(about).encode(), mode=0o600)
        _move(beside, home)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _move(beside: Path, home: Path) -> None:
    """Give it its name, unless another process was faster."""
    if home.exists() and _found(home) is None:
        shutil.rmtree(home, ignore_errors=True)
    try:
        beside.rename(home)
    except OSError:
        if _found(home) is None:
            raise


def _written(job: _Job, folder: Path) -> tuple[Arrays, Gaps]:
    name = job.coder.name
    with contextlib.ExitStack() as stack:
        with explained(job.source, name, "utf-8"):
            file = stack.enter_context(
                # Without a buffer, or with all of it filled beforehand, whole columns would be
                # in memory.
                parquet.ParquetFile(job.source, buffer_size=BUFFER_BYTES, pre_buffer=False)
            )
        wanted = tuple(dict.fromkeys(job.coder.called.values()))
        check_header(
            file.schema_arrow.names, Wanted(name=name, columns=wanted, labels=(), encoding="")
        )
        n_rows = file.metadata.num_rows
        if not n_rows:
            raise DataError(f"{name}: no rows; expected a header and at least one row")
        columns = job.columns(n_rows)
        check_space(folder, n_rows * _bytes_per_row(columns), f"a copy of {name}")
        writers = {
            column: stack.enter_context(DiskWriter(folder / column, width, stored))
            for column, (width, stored) in columns.items()
        }
        batches = stack.enter_context(contextlib.closing(_read_ahead(file, wanted, job)))
        gaps = _write_batches(batches, writers, job, n_rows)
        job.coder.refuse_gaps(gaps)
        arrays = {column: writer.finished() for column, writer in writers.items()}
    if "groups" in arrays:
        arrays["groups"] = _renumbered(arrays["groups"], job.groups)
    return arrays, gaps


def _bytes_per_row(columns: dict[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> int:
    sizes = {name: stored.itemsize * int(np.prod(w)) for name, (w, stored) in columns.items()}
    return sum(sizes.values()) + sizes.get("groups", 0)  # which are written twice


def _read_ahead(file: Any, columns: tuple[str, ...], job: _Job) -> Generator[Any, None, None]:
    """Batches of the table; while one is looked at, the next is read."""
    width = len(columns) + len(job.coder.schema.feature_names)
    n_rows = max(1, min(ROWS_PER_BATCH, BATCH_BYTES // (8 * width)))
    batches = file.iter_batches(n_rows, columns=list(columns), use_threads=True)
    with ThreadPoolExecutor(1) as pool, explained(job.source, job.coder.name, "utf-8"):
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch


def _write_batches(
    batches: Iterator[Any], writers: dict[str, DiskWriter], job: _Job, n_rows: int
) -> Gaps:
    gaps: Gaps | None = None
    start = 0
    with ThreadPoolExecutor(1) as pool:
        writing: Future[None] | None = None
        for batch in batches:
            stop = start + batch.num_rows
            try:
                data, found = _batch(batch, job)
            except DataError as error:
                if stop - start == n_rows:
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
    if gaps is None or start != n_rows:
        raise DataError(f"{job.coder.name}: expected {n_rows:,} rows, came {start:,}")
    return gaps


def _batch(batch: Any, job: _Job) -> tuple[LoggedData | None, Gaps]:
    """The usable rows of a batch, if it has any; where gaps are refused, they are just counted."""
    coder = job.coder
    table = pa.Table.from_batches([batch])
    encoded = coder.encode({column: table[own] for column, own in coder.called.items()})
    kept, gaps = coder.usable(encoded)
    if gaps.n_missing and (not coder.drops or gaps.n_missing == gaps.n_rows):
        return None, gaps
    data = coder.logged(encoded, kept)
    if job.number == "float32" and np.abs(data.contexts).max() > np.finfo(np.float32).max:
        raise DataError(f"{coder.name}: features are too large for float32; keep them as float64")
    return data, gaps


def _append(data: LoggedData, writers: dict[str, DiskWriter]) -> None:
    for name, writer in writers.items():
        writer.append(getattr(data, name))


def _renumbered(groups: DiskArray, codes: GroupCodes) -> DiskArray:
    """The groups by the order of their labels, which is known only now."""
    has_rows = np.zeros(len(codes), np.bool_)
    for rows in slices(len(groups)):
        has_rows[groups[rows]] = True
    final = codes.final(has_rows)
    first = groups.path.rename(groups.path.with_name("groups by appearance"))
    by_appearance = dataclasses.replace(groups, path=first)
    with DiskWriter(groups.path, (), groups.stored) as writer:
        for rows in slices(len(groups)):
            writer.append(final[by_appearance[rows]])
        renumbered = writer.finished()
    first.unlink()
    return renumbered
