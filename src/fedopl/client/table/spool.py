"""Tables larger than memory: rows are read once, in batches, into private array files.

A folder holds one spool for each table and way of reading it. A spool is written beside its place
and renamed when it is complete, so whatever has its name is whole, and two processes that write
the same one cannot disturb each other: both use the one that was finished first.
"""

import contextlib
import dataclasses
import hashlib
import json
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from fedopl.base.errors import DataError, OptionError, StorageError
from fedopl.base.files import write_atomically
from fedopl.client.disk.disk_array import DiskArray, remove_abandoned
from fedopl.client.table.encoder import Encoder
from fedopl.client.table.formats import check_file, suffix_of
from fedopl.client.table.gaps import Gaps
from fedopl.client.table.logged_data import LoggedData, trusted
from fedopl.client.table.row_batches import RowBatches
from fedopl.client.table.spool_writer import Number, SpooledArrays, write_batches, write_file

Spooled = tuple[SpooledArrays, Gaps]

# Raised whenever rows would be read or kept in another way.
SPOOL_FORMAT = 1
UNFINISHED_SPOOL = ".writing-"
ABOUT = "about.json"


def spool(
    source: Path | RowBatches, encoder: Encoder, folder: Path, number: Number = "float64"
) -> LoggedData:
    """The rows that `read_logged` would give, in the same order, but on disk.

    Only a batch of them is ever in memory, besides the labels of groups if there are any. A spool
    in the folder is used again as long as the rows and the way they are read stay the same; of a
    file, it is known before it is read whether they did. `number` is how many digits of each
    context are kept.
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
    try:
        if isinstance(source, RowBatches):
            arrays, gaps = _of_batches(source, encoder, folder, settings)
        else:
            arrays, gaps = _of_file(source, encoder, folder, settings)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be written: {error.strerror or error}") from None
    encoder.warn_of_gaps(gaps)
    schema = encoder.schema
    return trusted(arrays, schema.actions, schema.feature_names, schema)


def _of_file(source: Path, encoder: Encoder, folder: Path, settings: dict[str, Any]) -> Spooled:
    """What is known of a file before it is read decides whether its spool is used again."""
    check_file(source, encoder.name)
    if suffix_of(source) != ".parquet":
        raise DataError(
            f"{encoder.name}: only Parquet files can be read in batches; convert it to one"
        )
    state = _state_of(source)
    settings = settings | {"source": state}
    home = _home(folder, settings)
    found = _found(home)
    if found is None:
        with _beside(folder) as beside:
            arrays, gaps = write_file(source, encoder, beside, settings["number"])
            # Looked at again after the last row, or a spool could mix two tables.
            if _state_of(source) != state:
                raise DataError(f"{encoder.name}: the file changed while it was read; start again")
            _finish(beside, home, settings, (arrays, gaps))
        found = _found(home)
        _tidy(folder, state)
    return _complete(found, home)


def _of_batches(
    source: RowBatches, encoder: Encoder, folder: Path, settings: dict[str, Any]
) -> Spooled:
    """Nobody knows what a query gives before it has: the same rows then find their spool again."""
    with _beside(folder) as beside:
        arrays, gaps = write_batches(source, encoder, beside, settings["number"])
        content = {name: array.digest for name, array in arrays.items()}
        state: dict[str, object] = {"path": source.origin, "content": content}
        settings = settings | {"source": state}
        home = _home(folder, settings)
        if _found(home) is None:
            _finish(beside, home, settings, (arrays, gaps))
    if source.origin:
        _tidy(folder, state)
    return _complete(_found(home), home)


def n_numbers(path: Path, n_features: int) -> int:
    """How many numbers the contexts of a Parquet file have; 0 if there is no such file."""
    if suffix_of(path) != ".parquet" or not path.is_file():
        return 0
    try:
        return int(parquet.read_metadata(path).num_rows) * n_features
    except (OSError, pa.ArrowException):
        return 0  # whoever reads it will say what is wrong


def _state_of(source: Path) -> dict[str, object]:
    """What changes whenever somebody writes to the file."""
    state = source.stat()
    return {"path": str(source.resolve()), "size": state.st_size, "mtime_ns": state.st_mtime_ns}


def _found(home: Path) -> Spooled | None:
    """The arrays of a spool, if it is there and complete."""
    try:
        about = json.loads((home / ABOUT).read_bytes())
        arrays = {
            name: DiskArray(
                home / name, tuple(array["shape"]), np.dtype(array["stored"]), array["digest"]
            )
            for name, array in about["arrays"].items()
        }
        gaps = Gaps.from_dict(about["gaps"])
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # a damaged file counts as none
    return (arrays, gaps) if all(array.is_complete() for array in arrays.values()) else None


def _tidy(folder: Path, source: dict[str, object]) -> None:
    """Remove what killed processes left, and spools of this table as it was before it changed."""
    remove_abandoned(folder, UNFINISHED_SPOOL)
    for old in folder.glob(f"*/{ABOUT}"):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            before = json.loads(old.read_bytes())["settings"]["source"]
            if before["path"] == source["path"] and before != source:
                shutil.rmtree(old.parent)


def _home(folder: Path, settings: dict[str, Any]) -> Path:
    """Whatever changes the rows is in the name, so a spool is never taken for another."""
    return folder / hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:32]


def _complete(found: Spooled | None, home: Path) -> Spooled:
    if found is None:
        raise StorageError(f"{home}: is not what was written; start again")
    return found


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A folder to write a spool in, which is gone afterwards unless it was moved."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    # A name of its own, as another process may be writing the same spool.
    beside = folder / f"{UNFINISHED_SPOOL}{secrets.token_hex(8)}"
    beside.mkdir(mode=0o700)
    try:
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _finish(beside: Path, home: Path, settings: dict[str, Any], written: Spooled) -> None:
    """Say what was written, and move it to its place."""
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
    _move(beside, home)


def _move(beside: Path, home: Path) -> None:
    """Give it its name, unless another process was faster."""
    if home.exists() and _found(home) is None:
        shutil.rmtree(home, ignore_errors=True)
    try:
        beside.rename(home)
    except OSError:
        if _found(home) is None:
            raise
