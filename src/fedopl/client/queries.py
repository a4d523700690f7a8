"""Rows behind a query: DuckDB for its files and what it can read, SQLAlchemy for the others."""

from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedopl.errors import DataError, OptionError

ROWS_AT_ONCE = 50_000


def run_query(database: str, query: str, path: Path) -> Any:  # a pyarrow.Table
    """The answer to the query as an Arrow table; nothing is ever written to the database."""
    if database == "duckdb" or database.endswith((".duckdb", ".ddb")):
        return _with_duckdb(database, query, path)
    if "://" not in database:
        raise OptionError(
            f'{path}: database: expected "duckdb", a file that ends in .duckdb, or a URL such as '
            f"sqlite:///rows.db or postgresql+psycopg://user@host/name, came '{database}'"
        )
    return _with_sqlalchemy(database, query, path)


def _with_duckdb(database: str, query: str, path: Path) -> Any:
    _need("duckdb", path)
    import duckdb

    file = path.parent / database
    if database != "duckdb" and not file.is_file():
        raise DataError(f"{path}: database: {file} is not there; check the path")
    try:
        where = ":memory:" if database == "duckdb" else str(file)
        with duckdb.connect(where, read_only=database != "duckdb") as connection:
            connection.execute("SET file_search_path = ?", [str(path.parent.resolve())])
            return connection.execute(query).to_arrow_table()
    except duckdb.Error as error:
        raise DataError(f"{path}: the query failed: {_first_line(error)}") from None


def _with_sqlalchemy(database: str, query: str, path: Path) -> Any:
    _need("sqlalchemy", path)
    import sqlalchemy

    try:
        url = _from_here(sqlalchemy.make_url(database), path)
        engine = sqlalchemy.create_engine(url)
        with engine.connect().execution_options(stream_results=True) as connection:
            result = connection.execute(sqlalchemy.text(query))
            return _arrow(list(result.keys()), result)
    except ModuleNotFoundError as error:
        raise OptionError(
            f"{path}: database: its driver is not installed: pip install {error.name}"
        ) from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise DataError(f"{path}: the query failed: {_first_line(error)}") from None


def _from_here(url: Any, path: Path) -> Any:
    """A file of SQLite is named relative to client.toml, and has to be there already."""
    if not url.drivername.startswith("sqlite") or url.database in (None, "", ":memory:"):
        return url
    file = path.parent / url.database
    if not file.is_file():
        raise DataError(f"{path}: database: {file} is not there; check the path")
    return url.set(database=str(file))


def _arrow(names: list[str], rows: Any) -> Any:
    """The rows as an Arrow table, gathered in parts so that few are Python objects at a time."""
    parts = []
    iterator = iter(rows)
    while part := list(islice(iterator, ROWS_AT_ONCE)):
        columns = [pa.array(column) for column in zip(*part, strict=True)]
        parts.append(pa.Table.from_arrays(columns, names=names))
    if not parts:
        return pa.table({name: pa.array([], pa.null()) for name in names})
    return pa.concat_tables(parts, promote_options="permissive")


def _need(package: str, path: Path) -> None:
    if find_spec(package) is None:
        raise OptionError(f"{path}: a query needs {package}; pip install 'fedopl[sql]'")


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
