"""Reads rows by an SQL query: with DuckDB its files and what it reads, else with SQLAlchemy."""

from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedopl.base.errors import DataError, OptionError
from fedopl.base.labels import quoted
from fedopl.client.table.formats import first_line

ROWS_PER_FETCH = 50_000


def run_query(database: str, query: str, path: Path) -> Any:  # a pyarrow.Table
    """The answer to the query as an Arrow table; the database is opened for reading only."""
    if not query.strip():
        raise OptionError(f"{path}: query: expected a query, came an empty text")
    if database == "duckdb" or database.endswith((".duckdb", ".ddb")):
        table = _with_duckdb(database, query, path)
    elif "://" in database:
        table = _with_sqlalchemy(database, query, path)
    else:
        raise OptionError(
            f'{path}: database: expected "duckdb", a file that ends in .duckdb, or a URL such as '
            f"sqlite:///rows.db or postgresql+psycopg://user@host/name, came '{database}'"
        )
    _check_names(table.column_names, path)
    return table


def _check_names(names: list[str], path: Path) -> None:
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(
            f"{path}: the query: more than one column is called {quoted(repeated)}; rename them"
        )


def _with_duckdb(database: str, query: str, path: Path) -> Any:
    _need("duckdb", path)
    import duckdb

    file = path.parent / database
    if database != "duckdb" and not file.is_file():
        raise DataError(f"{path}: database: {file} is not there; check the path")
    try:
        where = ":memory:" if database == "duckdb" else str(file)
        with duckdb.connect(where, read_only=database != "duckdb") as connection:
            # Files that the query names are relative to client.toml.
            connection.execute("SET file_search_path = ?", [str(path.parent.resolve())])
            answer = connection.sql(query)
            if answer is None:
                raise DataError(f"{path}: the query gives no rows; expected a select")
            return answer.to_arrow_table()
    except duckdb.Error as error:
        raise DataError(f"{path}: the query failed: {first_line(error)}") from None


def _with_sqlalchemy(database: str, query: str, path: Path) -> Any:
    _need("sqlalchemy", path)
    import sqlalchemy

    try:
        engine = sqlalchemy.create_engine(_for_reading(sqlalchemy.make_url(database), path))
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
        with engine.connect() as connection:
            options = {"postgresql_readonly": True} if engine.name == "postgresql" else {}
            # Streamed: the driver would otherwise hold the whole result as Python objects.
            reading = connection.execution_options(stream_results=True, **options)
            result = reading.exec_driver_sql(query)
            return _arrow(list(result.keys()), result, path)
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise DataError(f"{path}: the query failed: {first_line(error)}") from None
    finally:
        engine.dispose()


def _for_reading(url: Any, path: Path) -> Any:
    """A file of SQLite is named relative to client.toml, and has to be there already."""
    if not url.drivername.startswith("sqlite") or url.database in (None, "", ":memory:"):
        return url
    file = path.parent / url.database
    if not file.is_file():
        raise DataError(f"{path}: database: {file} is not there; check the path")
    # SQLite would create a file that is not there, and could write to one that is.
    return url.set(database=f"file:{file}", query={"mode": "ro", "uri": "true"})


def _arrow(names: list[str], rows: Any, path: Path) -> Any:
    """The rows as an Arrow table, built in parts so that few are Python objects at a time."""
    _check_names(names, path)
    parts = []
    iterator = iter(rows)
    while part := list(islice(iterator, ROWS_PER_FETCH)):
        columns = zip(names, zip(*part, strict=True), strict=True)
        parts.append(pa.table({name: _column(name, cells, path) for name, cells in columns}))
    if not parts:
        return pa.table({name: pa.array([], pa.null()) for name in names})
    try:
        return pa.concat_tables(parts, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise DataError(f"{path}: the query: a column changes its type; cast it to one") from None


def _column(name: str, cells: tuple[object, ...], path: Path) -> Any:
    try:
        return pa.array(cells)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise DataError(
            f"{path}: the query: column '{name}' mixes values of different types; cast it to one"
        ) from None


def _need(package: str, path: Path) -> None:
    if find_spec(package) is None:
        raise OptionError(f"{path}: a query needs {package}; pip install 'fedopl[sql]'")
