"""`client.toml`: where one client's rows are, how its columns are named, its disclosure limits.

The file is the client's own. Nothing in it is sent anywhere.
"""

import contextlib
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from fedopl.base.errors import DataError, FedoplWarning, OptionError, StudyError
from fedopl.base.files import check_writable, refuse_link, who_else_reads, without_detours
from fedopl.base.labels import check_client_name, quoted
from fedopl.base.schema import Schema
from fedopl.base.toml_file import TomlFile
from fedopl.client.client_settings import ClientFile, EngineKind
from fedopl.client.cluster.dask_engine import DaskEngine
from fedopl.client.cluster.spark_engine import SparkEngine
from fedopl.client.disclosure.approvals import Approvals
from fedopl.client.disclosure.private_draws import is_strong, kept_secret
from fedopl.client.disk.passes import PassEngine
from fedopl.client.disk.store import FolderStore
from fedopl.client.rows.row_keys import fingerprint_of_content
from fedopl.client.table.batched_io import RowBatches
from fedopl.client.table.encoder import TableForm
from fedopl.client.table.logged_data import LoggedData, check_outcomes, with_engine
from fedopl.client.table.read import Contexts, contexts_in, read_into_memory, read_onto_disk
from fedopl.client.table.spool import n_numbers
from fedopl.client.table.sql import open_query
from fedopl.client.table.text_files import FileFormat
from fedopl.study.study import Study

FILE_NAME = "client.toml"
AGGREGATOR_FILE = "aggregator.toml"  # in a folder of clients whose answers are added up
# Larger contexts, as numbers, are kept on disk unless the file says otherwise.
MOST_BYTES_IN_MEMORY = 1 << 30

ENGINES: dict[EngineKind, type[DaskEngine] | type[SparkEngine]] = {
    "dask": DaskEngine,
    "spark": SparkEngine,
}


@lru_cache(8)
def shared_engine(
    kind: EngineKind, address: str | None, workers: int | None, wait: float
) -> DaskEngine | SparkEngine:
    """One engine for all clients of this process that ask for the same, connected."""
    engine = ENGINES[kind](address, workers=workers, wait=wait)
    engine.connect()
    return engine


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client's folder: its file, its ledger, and what it keeps between queries."""

    name: str
    path: Path  # of client.toml
    settings: ClientFile
    file: TomlFile

    @property
    def ledger_path(self) -> Path:
        """The file in which it records its answers."""
        return self.path.parent / "ledger.jsonl"

    @property
    def table_path(self) -> Path:
        """The file of its rows, if they are in one."""
        return without_detours(self.path.parent / str(self.settings.data.file))

    @property
    def store_path(self) -> Path:
        """The folder in which it keeps scores and other derived arrays."""
        return self.path.parent / "scores"

    @property
    def secret_path(self) -> Path:
        """The file in which it keeps its secret, if client.toml has none."""
        return self.path.parent / "secret"

    def approvals(self, asker: str = "") -> Approvals:
        """The approvals of queries from this asker, which wait for the client's owner."""
        return Approvals(
            folder=self.path.parent / "approvals", asks=self.settings.approve == "ask", asker=asker
        )

    def check_approvals(self) -> None:
        """Raise an error if nobody could approve a query."""
        approvals = self.approvals()
        if approvals.is_served or not approvals.are_needed:
            return
        why = 'approve = "ask"' if approvals.asks else "its owner paused it"
        message = f"{why}, and no page is served on which its owner decides"
        raise OptionError(
            f"{self.file.complaint(('approve',), message)}; first start: fedopl node "
            f"{self.path.parent} --serve"
        )

    def secret(self, *, rehearsing: bool = False) -> str:
        """The secret that keys its draws; made at first use. A rehearsal makes none."""
        if self.settings.secret:
            return self.settings.secret
        if rehearsing and not self.secret_path.exists():
            return "rehearsal"
        return kept_secret(self.secret_path)

    def check_folder(self) -> None:
        """Raise an error for a folder in which no answer could be recorded."""
        check_writable(self.path.parent, "a client writes its ledger and scores there")

    def pinned(self, study: Study, data: LoggedData, *, rehearsing: bool = False) -> LoggedData:
        """The rows, if they are those that this study was first answered for."""
        store, key = FolderStore(self.store_path), f"rows of {study.digest.hex()}"
        now = np.frombuffer(fingerprint_of_content(data).encode(), np.uint8)
        if not rehearsing:
            self.check_folder()
        kept = store.get(key)
        if kept is None and not rehearsing:
            store.put(key, {"rows": now})
        elif kept is not None and not np.array_equal(kept["rows"], now):
            raise StudyError(
                f"{self.name}: its rows are not those it has answered this study for. Restore the "
                "rows, or agree on a new study (another name or seed)"
            )
        return data

    def rows_for(self, study: Study) -> LoggedData:
        """Its rows for this study: only contexts for a target, all columns for any other client."""
        assert study.table is not None  # noqa: S101  (callers have checked)
        if not study.is_target(self.name):
            return self.read(study.table)
        return self.read_contexts(study.table).as_rows(study.actions)

    def read_contexts(self, schema: Schema) -> Contexts:
        """Its contexts, read by the study's schema and kept in memory."""
        with self._opened(schema) as (source, form):
            table = source.table() if isinstance(source, RowBatches) else source
            return contexts_in(table, schema, form)

    @contextlib.contextmanager
    def _opened(self, schema: Schema) -> Iterator[tuple[Path | RowBatches, TableForm]]:
        """The source of its rows, and the names of columns and labels there."""
        self._check_mapping(schema)
        self._check_files()
        data, names = self.settings.data, self.settings
        file = FileFormat(
            encoding=data.encoding, delimiter=data.delimiter, decimal=data.decimal, sheet=data.sheet
        )
        form = TableForm(str(self.table_path), names.columns, names.labels, file)
        if data.query is None or data.database is None:
            yield self.table_path, form
            return
        database = _with_environment(data.database, str(self.path))
        with open_query(database, data.query, self.path) as rows:
            yield rows, replace(form, name=rows.name)

    def read(self, schema: Schema) -> LoggedData:
        """Its rows, read by the study's schema."""
        engine = self._engine()
        with self._opened(schema) as (source, form):
            if engine or self._keeps_on_disk(source, schema):
                folder, numbers = self.store_path / "rows", self.settings.data.numbers
                rows = read_onto_disk(source, schema, form, folder, numbers)
                rows = with_engine(rows, engine) if engine else rows
            else:
                rows = read_into_memory(source, schema, form)
        check_outcomes(rows, schema.outcomes, form.name)
        return rows

    def _engine(self) -> PassEngine | None:
        """Its workers, if it has any, connected: what is wrong is said before rows are read."""
        asked = self.settings.engine
        if asked is None:
            return None
        address = asked.address and _with_environment(asked.address, str(self.path))
        try:
            return shared_engine(asked.kind, address, asked.workers, asked.wait)
        except OptionError as error:
            why = str(error).removeprefix("engine: ")
            raise OptionError(self.file.complaint(("engine", "kind"), why)) from None

    def _check_files(self) -> None:
        """Refuse links where its private files should be; warn of a secret that others can read."""
        for path in (self.ledger_path, self.store_path, self.store_path / "rows"):
            refuse_link(path)
        if self.settings.secret and (who := who_else_reads(self.path)):
            warnings.warn(
                f"{self.path}: holds the secret and can be read by {who}; chmod 600 {self.path}",
                FedoplWarning,
                stacklevel=3,
            )

    def _keeps_on_disk(self, source: Path | RowBatches, schema: Schema) -> bool:
        data, n_features = self.settings.data, len(schema.feature_names)
        if data.rows != "auto":
            return data.rows == "disk"
        if isinstance(source, RowBatches):
            return source.has_more_than(MOST_BYTES_IN_MEMORY / (8 * n_features))
        return n_numbers(source, n_features) * 8 > MOST_BYTES_IN_MEMORY

    def _check_mapping(self, schema: Schema) -> None:
        for section, names, known in (
            ("columns", self.settings.columns, schema.columns),
            ("labels", self.settings.labels, schema.label_columns),
        ):
            for name in names:
                if name not in known:
                    kind = "column of labels" if section == "labels" else "column"
                    message = f"'{name}' is no {kind} of the study; it has {', '.join(known)}"
                    raise OptionError(self.file.complaint((section, name), message))


def read_client(path: str | Path) -> Client:
    """The client of this folder or of this client.toml."""
    path = Path(path)
    folder = path.parent if path.name == AGGREGATOR_FILE else path
    if path != folder or ((path / AGGREGATOR_FILE).is_file() and not (path / FILE_NAME).is_file()):
        raise OptionError(
            f"{folder / AGGREGATOR_FILE}: this is an aggregator's folder, which has no rows of its "
            f"own; expected a client's, with {FILE_NAME} in it, such as one of its members'"
        )
    path = path / FILE_NAME if path.is_dir() else path
    file = TomlFile.read(path)
    if {"outcome", "action", "features"} & file.content.keys() and "data" not in file.content:
        raise OptionError(f"{path}: is a study file; expected a client's own, with [data] in it")
    settings = file.parsed(ClientFile)
    name = settings.name or path.resolve().parent.name
    check_client_name(name, file.complaint(("name",), "name"))
    if settings.secret and not is_strong(settings.secret):
        message = (
            "secret: expected at least 32 random bytes, in hexadecimal digits or base64, since "
            "what somebody chose can be guessed; leave it out, and run: fedopl keys"
        )
        raise OptionError(f"{file.complaint(('secret',), message)} {path.parent}")
    return Client(name=name, path=path, settings=settings, file=file)


def read_clients(folder: str | Path) -> dict[str, Client]:
    """All clients in this folder, each in a folder of its own, by name; also those of regions."""
    folder = Path(folder)
    alone = folder / FILE_NAME
    paths = [alone] if alone.is_file() else list(_client_files(folder))
    if not paths:
        raise OptionError(
            f"{folder}: expected a folder for each client with its {FILE_NAME} inside, such as "
            f"{folder / 'north' / FILE_NAME}; there is none"
        )
    if paths != [alone]:
        _note_without_file(folder)
    clients: dict[str, Client] = {}
    for client in map(read_client, paths):
        if client.name in clients:
            raise OptionError(
                f"{client.path}: the name '{client.name}' is that of {clients[client.name].path}; "
                "give each client its own"
            )
        clients[client.name] = client
    return clients


def _client_files(folder: Path) -> Iterator[Path]:
    """In folders in this folder, and in folders of aggregators, at any depth."""
    yield from sorted(folder.glob(f"*/{FILE_NAME}"))
    for region in sorted(folder.glob(f"*/{AGGREGATOR_FILE}")):
        yield from _client_files(region.parent)


def _note_without_file(folder: Path) -> None:
    """Warn of folders that look like clients but take no part."""
    for path in sorted(folder.iterdir()):
        if (
            path.is_dir()
            and not path.name.startswith((".", "_"))
            and not (path / FILE_NAME).exists()
            and not (path / AGGREGATOR_FILE).exists()
        ):
            near = [other.name for other in sorted(path.glob("*.toml*"))]
            hint = f"; is it {quoted(near)}?" if near else "; write one, or move the folder away"
            warnings.warn(
                f"{path}: has no {FILE_NAME} and takes no part{hint}", FedoplWarning, stacklevel=3
            )


def _with_environment(text: str, name: str) -> str:
    """The text with each ${NAME} replaced, so that the file need not contain a password."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise DataError(f"{name}: the environment variable {found[1]} is not set")
        return os.environ[found[1]]

    return re.sub(r"\$\{(\w+)\}", value, text)
