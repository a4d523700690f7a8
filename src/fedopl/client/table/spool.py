"""Tables larger than memory: rows are read once, in batches, into private array files.

A folder holds one spool for each table and way of reading it. A spool is written in another place
and renamed when it is complete. So a spool with its final name is complete. Two processes that
write the same spool cannot disturb each other: both use the one that was finished first.
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

# Raised whenever the way changes in which rows are read or stored.
SPOOL_FORMAT = 1
UNFINISHED_SPOOL = ".writing-"
ABOUT = "about.json"


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
    """The spool of a file; size and time decide, before reading, if an earlier one is used."""
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
            # Checked again after the last row; otherwise a spool could mix two tables.
            if _state_of(source) != state:
                raise DataError(f"{encoder.name}: the file changed while it was read; start again")
            _finish(beside, home, settings, (arrays, gaps))
        found = _found(home)
        _tidy(folder, state)
    return _complete(found, home)


def _of_batches(
    source: RowBatches, encoder: Encoder, folder: Path, settings: dict[str, Any]
) -> Spooled:
    """The spool of batches; only after reading is it known if an earlier one has the same rows."""
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
        gaps = Gaps.from_dict(about["gaps"])
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


def _complete(found: Spooled | None, home: Path) -> Spooled:
    if found is None:
        raise StorageError(f"{home}: is not what was written; start again")
    return found


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
    _move(beside, home)


def _move(beside: Path, home: Path) -> None:
    """Rename the folder, unless another process was faster."""
    if home.exists() and _found(home) is None:
        shutil.rmtree(home, ignore_errors=True)
    try:
        beside.rename(home)
    except OSError:
        if _found(home) is None:
            raise
