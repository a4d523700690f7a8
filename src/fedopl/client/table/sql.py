"""Reads the rows of an SQL query in Arrow batches: with DuckDB, ADBC, or else SQLAlchemy."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from fedopl.base.errors import DataError, OptionError
from fedopl.client.table.batched_io import RecordBatch, RowBatches
from fedopl.client.table.formats import check_header, first_line

ROWS_PER_FETCH = 50_000
# The names of an answer's columns, and its rows in batches.
QueryAnswer = tuple[list[str], Iterable[RecordBatch]]
OF_ARROW = (pa.ArrowException, OSError)  # errors of its readers
ADBC = "adbc+"
ADBC_DRIVERS = {"sqlite": "adbc_driver_sqlite", "postgresql": "adbc_driver_postgresql"}


@contextlib.contextmanager
def open_query(database: str, query: str, path: Path) -> Iterator[RowBatches]:
    """The answer to the query in batches; the database is opened for reading only."""
    if not query.strip():
        raise OptionError(f"{path}: query: expected a query, came an empty text")
    if database == "duckdb" or database.endswith((".duckdb", ".ddb")):
        opened = _with_duckdb
    elif database.startswith(ADBC):
        opened = _with_adbc
    elif "://" in database:
        opened = _with_sqlalchemy
    else:
        raise OptionError(
            f'{path}: database: expected "duckdb", a file that ends in .duckdb, or a URL such as '
            "sqlite:///rows.db, postgresql+psycopg://user@host/name or "
            f"adbc+postgresql://user@host/name, came '{database}'"
        )
    reading: Callable[[str, str, Path], AbstractContextManager[QueryAnswer]] = opened
    with reading(database, query, path) as (names, batches):
        where = f"{path}: the query"
        check_header(names, names, where)
        yield RowBatches(names, batches, name=where, origin=f"{path.resolve()}: the query")


@contextlib.contextmanager
def _explained(path: Path, *kinds: type[Exception]) -> Iterator[None]:
    """Explain why a query failed, before its first row or later."""
    try:
        yield
    except kinds as error:
        raise DataError(f"{path}: the query failed: {first_line(error)}") from None


@contextlib.contextmanager
def _with_duckdb(database: str, query: str, path: Path) -> Iterator[QueryAnswer]:
    _need("duckdb", "sql", path)
    import duckdb

    file = path.parent / database
    if database != "duckdb" and not file.is_file():
        raise DataError(f"{path}: database: {file} is not there; check the path")
    where = ":memory:" if database == "duckdb" else str(file)
    with contextlib.ExitStack() as stack:
        with _explained(path, duckdb.Error):
            connection = stack.enter_context(duckdb.connect(where, read_only=database != "duckdb"))
            # Files that the query names are relative to client.toml.
            connection.execute("SET file_search_path = ?", [str(path.parent.resolve())])
            answer = connection.sql(query)
            if answer is None:
                raise DataError(f"{path}: the query gives no rows; expected a select")
            # The name that version 1 has for it is being removed in version 2.
            reader_of = getattr(answer, "to_arrow_reader", None) or answer.fetch_arrow_reader
            reader = reader_of(ROWS_PER_FETCH)
        yield reader.schema.names, _each(reader, path, *OF_ARROW, duckdb.Error)


def _each(parts: Iterable[Any], path: Path, *kinds: type[Exception]) -> Iterator[Any]:
    with _explained(path, *kinds):
        yield from parts


@contextlib.contextmanager
def _with_adbc(database: str, query: str, path: Path) -> Iterator[QueryAnswer]:
    kind, _, rest = database.removeprefix(ADBC).partition("://")
    if kind not in ADBC_DRIVERS:
        raise OptionError(
            f"{path}: database: ADBC reads {', '.join(f'{ADBC}{k}://' for k in ADBC_DRIVERS)}; "
            f"came {ADBC}{kind}://"
        )
    package = ADBC_DRIVERS[kind]
    _need(package, "adbc", path)
    dbapi = import_module(f"{package}.dbapi")  # a module of the drivers' table
    with contextlib.ExitStack() as stack:
        with _explained(path, dbapi.Error):
            # SQLite is opened for reading.
            is_file = kind == "sqlite"
            address = f"{_sqlite_address(rest, path)}?mode=ro" if is_file else f"{kind}://{rest}"
            connection = stack.enter_context(dbapi.connect(address))
            cursor = stack.enter_context(connection.cursor())
            if kind == "postgresql":
                cursor.execute("set session characteristics as transaction read only")
                connection.commit()
            cursor.execute(query)
            reader = cursor.fetch_record_batch()
        yield reader.schema.names, _each(reader, path, *OF_ARROW, dbapi.Error)


@contextlib.contextmanager
def _with_sqlalchemy(database: str, query: str, path: Path) -> Iterator[QueryAnswer]:
    _need("sqlalchemy", "sql", path)
    import sqlalchemy

    try:
        url = _for_reading(database, sqlalchemy.make_url(database), path)
        engine = sqlalchemy.create_engine(url)
    except ModuleNotFoundError as error:
        raise OptionError(
            f"{path}: database: its driver is not installed: Python has no module '{error.name}'; "
            "for PostgreSQL, pip install 'fedopl[sql]'"
        ) from None
    except (sqlalchemy.exc.SQLAlchemyError, ValueError) as error:
        raise OptionError(
            f"{path}: database: not a URL that can be used: {first_line(error)}"
        ) from None
    try:
        with contextlib.ExitStack() as stack:
            with _explained(path, sqlalchemy.exc.SQLAlchemyError):
                connection = stack.enter_context(engine.connect())
                options = {"postgresql_readonly": True} if engine.name == "postgresql" else {}
                # Streamed: the driver would otherwise hold the whole result as Python objects.
                reading = connection.execution_options(stream_results=True, **options)
                result = reading.exec_driver_sql(query)
                names = list(result.keys())
            rows = _each(result, path, sqlalchemy.exc.SQLAlchemyError)
            yield names, _arrow(names, rows, path)
    finally:
        engine.dispose()


def _for_reading(database: str, url: Any, path: Path) -> Any:
    """The URL for reading."""
    if not url.drivername.startswith("sqlite") or url.database in (None, "", ":memory:"):
        return url
    # SQLite would create a missing file, and could write to an existing one.
    address = _sqlite_address(database.partition("://")[2], path)
    return url.set(database=address, query={"mode": "ro", "uri": "true"})


def _sqlite_address(rest: str, path: Path) -> str:
    """The address of an SQLite file, which is relative to client.toml and must exist.

    The name is taken as it is written, or else as that of a URL, with escapes and options. In the
    address, characters that would end it early are escaped: `?mode=ro` comes after it.
    """
    written = path.parent / rest.removeprefix("/")
    file = path.parent / unquote(rest.removeprefix("/").partition("?")[0])
    for found in (written, file):
        if found.is_file():
            return found.absolute().as_uri()
    raise DataError(f"{path}: database: {written} is not there; check the path")


def _arrow(names: list[str], rows: Iterator[Any], path: Path) -> Iterator[RecordBatch]:
    """The rows in batches, so that few of them are Python objects at a time."""
    while part := list(islice(rows, ROWS_PER_FETCH)):
        arrays = []
        for name, cells in zip(names, zip(*part, strict=True), strict=True):
            try:
                arrays.append(pa.array(cells))
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                raise DataError(
                    f"{path}: the query: column '{name}' mixes values of different types; cast it "
                    "to one"
                ) from None
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _need(package: str, extra: str, path: Path) -> None:
    if find_spec(package) is None:
        raise OptionError(f"{path}: a query needs {package}; pip install 'fedopl[{extra}]'")
