"""Rows behind a query are the rows of the file."""

import contextlib
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path

import duckdb
import numpy as np
import pyarrow
import pytest
from pyarrow import csv, parquet

from fedopl.base.errors import DataError, FedoplError, OptionError
from fedopl.client.client_file import read_client
from fedopl.client.table import spool, sql
from fedopl.client.table.logged_data import fingerprint
from fedopl.client.table.read import read_logged
from fedopl.study.study_file import read_study
from tiny_study import STUDY, rows, write_csv

COLUMNS = "age double precision, severity double precision, living text, arm text, gain double"
POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


@pytest.fixture
def home(tmp_path):
    """A client's folder, with its rows in a CSV file."""
    home = tmp_path / "north"
    home.mkdir()
    write_csv(home / "data.csv", rows())
    (tmp_path / "study.toml").write_text(STUDY)
    return home


def from_file(home):
    return from_settings(home, 'file = "data.csv"')


def from_query(home, database, query):
    return from_settings(home, f"database = {database!r}\nquery = {query!r}")


def from_settings(home, data):
    (home / "client.toml").write_text(f"[data]\n{data}\n")
    study, _ = read_study(home.parent / "study.toml")
    return read_client(home).read(study.table)


def assert_same(data, other):
    assert (data.action_names, data.feature_names) == (other.action_names, other.feature_names)
    for name in ("contexts", "actions", "rewards"):
        assert np.array_equal(getattr(data, name), getattr(other, name)), name


def numbers():
    table = rows()
    kinds = {"age": float, "severity": float, "living": str, "arm": str, "gain": float}
    return list(zip(*(map(kind, table[name]) for name, kind in kinds.items()), strict=True))


@pytest.fixture
def sqlite_file(home):
    with sqlite3.connect(home / "rows.db") as connection:
        connection.execute(f"create table logged ({COLUMNS} precision)")
        connection.executemany("insert into logged values (?, ?, ?, ?, ?)", numbers())
    connection.close()
    return home / "rows.db"


@pytest.fixture
def duckdb_file(home):
    with duckdb.connect(str(home / "rows.duckdb")) as connection:
        connection.execute(f"create table logged as select * from '{home / 'data.csv'}'")
    return home / "rows.duckdb"


@pytest.fixture(scope="session")
def server():
    """The port of a PostgreSQL server of our own that listens on this machine alone."""
    if not POSTGRES or os.getuid() != 0:
        pytest.skip("needs PostgreSQL's initdb, and root to run it as the user postgres")
    folder = Path(tempfile.mkdtemp(prefix="fedopl-postgres-"))
    programs = POSTGRES[-1].parent

    def as_postgres(*command):
        subprocess.run(
            ["runuser", "-u", "postgres", "--", *map(str, command)],
            check=True,
            capture_output=True,
            cwd="/tmp",
        )

    shutil.chown(folder, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    as_postgres(programs / "initdb", "-D", folder, "-A", "trust", "--no-sync")
    settings = f"-h 127.0.0.1 -p {port} -k {folder} -c fsync=off"
    as_postgres(
        programs / "pg_ctl", "-D", folder, "-w", "-l", folder / "log", "-o", settings, "start"
    )
    yield port
    as_postgres(programs / "pg_ctl", "-D", folder, "-m", "immediate", "-w", "stop")
    shutil.rmtree(folder)


@pytest.fixture
def postgres(server):
    import psycopg

    with psycopg.connect(host="127.0.0.1", port=server, user="postgres") as connection:
        connection.execute("drop table if exists logged")
        connection.execute(f"create table logged ({COLUMNS} precision)")
        with connection.cursor() as cursor:
            cursor.executemany("insert into logged values (%s, %s, %s, %s, %s)", numbers())
    return f"postgresql+psycopg://postgres:${{FEDOPL_TEST_PASSWORD}}@127.0.0.1:{server}/postgres"


# --- the same rows --------------------------------------------------------------------------------


def test_a_duckdb_file_gives_the_rows_of_the_csv_and_is_not_changed(home, duckdb_file):
    before = duckdb_file.read_bytes()
    assert_same(from_query(home, "rows.duckdb", "select * from logged"), from_file(home))
    assert duckdb_file.read_bytes() == before
    assert {path.name for path in home.iterdir()} == {"client.toml", "data.csv", "rows.duckdb"}


def test_duckdb_reads_files_that_lie_beside_client_toml(home, monkeypatch):
    parquet.write_table(csv.read_csv(home / "data.csv"), home / "data.parquet")
    monkeypatch.chdir("/")
    for name in ("data.parquet", "data.csv"):
        assert_same(from_query(home, "duckdb", f'select * from "{name}"'), from_file(home))


def test_a_sqlite_file_gives_the_rows_of_the_csv_and_is_not_changed(home, sqlite_file, monkeypatch):
    before = sqlite_file.read_bytes()
    monkeypatch.chdir("/")
    assert_same(from_query(home, "sqlite:///rows.db", "select * from logged"), from_file(home))
    assert sqlite_file.read_bytes() == before
    assert {path.name for path in home.iterdir()} == {"client.toml", "data.csv", "rows.db"}


@pytest.mark.parametrize("name", ["a#b.db", "a?b.db", "a%20b.db", "a b&c=d.db", "größe.db"])
def test_a_sqlite_file_may_have_any_name_and_no_other_is_made(home, sqlite_file, name):
    """A sign that ends an address early would also cut off that it is for reading only."""
    sqlite_file.rename(home / name)
    before = {one.name for one in home.iterdir()}
    data = from_query(home, f"sqlite:///{name}", "select * from logged")
    assert {one.name for one in home.iterdir()} - before <= {"client.toml"}
    assert_same(data, from_file(home))
    address = f"{sql._sqlite_address(f'/{name}', home / 'client.toml')}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
        assert connection.execute("select count(*) from logged").fetchone() == (160,)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("delete from logged")


def test_a_sqlite_file_may_be_named_as_in_a_url(home, sqlite_file):
    sqlite_file.rename(home / "my rows.db")
    data = from_query(home, "sqlite:///my%20rows.db?timeout=3", "select * from logged")
    assert_same(data, from_file(home))


def test_postgresql_gives_the_rows_of_the_csv(home, postgres, monkeypatch):
    monkeypatch.setenv("FEDOPL_TEST_PASSWORD", "any words")
    assert_same(from_query(home, postgres, "select * from logged"), from_file(home))


def test_decimals_of_a_database_are_numbers_and_labels_like_any_other(home, postgres, monkeypatch):
    monkeypatch.setenv("FEDOPL_TEST_PASSWORD", "x")
    study = home.parent / "study.toml"
    study.write_text(STUDY.replace('["usual", "new"]', "[0, 25]"))
    arm = "case arm when 'new' then 25.0::numeric else 0::numeric end as arm"
    query = f"select age::numeric, severity::numeric, living, {arm}, gain from logged"
    data = from_query(home, postgres, query)
    study.write_text(STUDY)
    expected = from_file(home)
    assert np.array_equal(data.actions, expected.actions)
    assert np.allclose(data.contexts, expected.contexts)


def test_names_and_labels_of_the_client_apply_to_queries(home, sqlite_file):
    query = "select age as years, severity, upper(living) as living, arm, gain from logged"
    data = from_settings(
        home,
        f'database = "sqlite:///rows.db"\nquery = "{query}"\n[columns]\nage = "years"\n'
        '[labels.living]\nALONE = "alone"\n"WITH OTHERS" = "with others"',
    )
    assert_same(data, from_file(home))


def test_more_rows_than_are_fetched_at_once_come_in_order(home, sqlite_file, monkeypatch):
    monkeypatch.setattr("fedopl.client.table.sql.ROWS_PER_FETCH", 7)
    assert_same(from_query(home, "sqlite:///rows.db", "select * from logged"), from_file(home))


def test_a_column_that_is_null_in_the_first_rows_is_still_a_number(home, sqlite_file, monkeypatch):
    monkeypatch.setattr("fedopl.client.table.sql.ROWS_PER_FETCH", 1)
    query = "select age, severity, living, arm, nullif(gain, (select gain from logged limit 1))"
    with pytest.raises(DataError, match=r"missing values in 1 of 160 rows \(by column: 'gain' 1\)"):
        from_query(home, "sqlite:///rows.db", f"{query} as gain from logged")


def test_a_colon_in_a_query_is_a_colon(home, sqlite_file):
    query = "select age, severity, living, arm, gain from logged where arm <> ' :x'"
    assert_same(from_query(home, "sqlite:///rows.db", query), from_file(home))


def test_a_query_that_would_change_the_database_does_not(home, sqlite_file, duckdb_file):
    for database, file in (("sqlite:///rows.db", sqlite_file), ("rows.duckdb", duckdb_file)):
        before = file.read_bytes()
        for query in ("drop table logged", "delete from logged", "create table other (x int)"):
            with pytest.raises(FedoplError, match=r"client\.toml"):
                from_query(home, database, query)
        assert file.read_bytes() == before


# --- rows on disk ---------------------------------------------------------------------------------


def on_disk(home, database, query="select * from logged"):
    return from_settings(home, f'database = "{database}"\nquery = "{query}"\nrows = "disk"')


def in_memory(data):
    return data.part(slice(None)) if data.is_on_disk else data


def spools(home):
    return {path.parent.name for path in (home / "scores" / "rows").glob("*/about.json")}


@pytest.mark.parametrize("database", ["rows.duckdb", "sqlite:///rows.db"])
def test_rows_of_a_query_can_be_kept_on_disk(home, sqlite_file, duckdb_file, database, monkeypatch):
    monkeypatch.setattr("fedopl.client.table.sql.ROWS_PER_FETCH", 7)
    data = on_disk(home, database)
    assert data.is_on_disk
    assert_same(in_memory(data), from_file(home))


def test_the_same_rows_find_their_files_again_and_others_take_their_place(home, sqlite_file):
    first = on_disk(home, "sqlite:///rows.db")
    (kept,) = spools(home)
    (home / "scores" / "rows" / kept / "scores of a study").touch()
    again = on_disk(home, "sqlite:///rows.db", "select * from logged where 1 = 1")
    assert fingerprint(again) == fingerprint(first)
    assert (home / "scores" / "rows" / kept / "scores of a study").exists()
    fewer = on_disk(home, "sqlite:///rows.db", "select * from logged limit 100")
    assert fewer.n_rows == 100
    assert spools(home).isdisjoint({kept})
    assert len(spools(home)) == 1


def test_many_rows_of_a_query_go_to_disk_by_themselves(home, duckdb_file, monkeypatch):
    settings = 'database = "rows.duckdb"\nquery = "select * from logged"'
    assert not from_settings(home, settings).is_on_disk
    monkeypatch.setattr("fedopl.client.client_file.MOST_BYTES_IN_MEMORY", 160 * 8 * 3 - 1)
    data = from_settings(home, settings)
    assert data.is_on_disk
    assert_same(in_memory(data), from_file(home))


def test_no_more_of_a_query_is_in_memory_than_a_few_batches(home, monkeypatch):
    monkeypatch.setattr("fedopl.client.table.sql.ROWS_PER_FETCH", 10_000)
    query = (
        "select i::double as age, 2.0 * i as severity, 'alone' as living, "
        "case when i % 2 = 0 then 'new' else 'usual' end as arm, (i % 7)::double as gain "
        "from range(600000) t(i)"
    )
    seen: list[weakref.ref[pyarrow.RecordBatch]] = []
    largest = 0
    encode = spool._batch

    def watched(batch, job):
        nonlocal largest
        seen.append(weakref.ref(batch))
        alive = [kept for each in seen if (kept := each()) is not None]
        # The whole of what a slice is a slice of.
        largest = max(largest, sum(kept.get_total_buffer_size() for kept in alive))
        return encode(batch, job)

    monkeypatch.setattr(spool, "_batch", watched)
    data = on_disk(home, "duckdb", query)
    assert data.n_rows == 600_000
    assert 0 < largest < 600_000 * 8


def test_a_mistake_in_a_later_batch_says_in_which_rows(home, duckdb_file, monkeypatch):
    monkeypatch.setattr("fedopl.client.table.spool.ROWS_PER_BATCH", 50)
    query = "select * replace (case when rowid = 120 then 'cake' else arm end as arm) from logged"
    with pytest.raises(DataError, match=r"client\.toml: the query: .*\(in rows 101 to 150\)"):
        on_disk(home, "rows.duckdb", query)
    assert not spools(home)


def test_a_database_that_fails_in_the_middle_is_named(home):
    failing = "case when i = 700000 then error('gone') else 1.0 end as gain"
    query = f"{SELECT.replace('5.0 as gain', failing)} from range(800000) t(i)"
    with pytest.raises(DataError, match=r"client\.toml: the query failed: .*gone"):
        on_disk(home, "duckdb", query)
    assert not spools(home)


def test_a_reader_of_batches_is_a_table(home, tmp_path):
    study, _ = read_study(home.parent / "study.toml")
    expected = from_file(home)
    table = csv.read_csv(home / "data.csv")
    for where in (None, tmp_path / "kept"):
        reader = pyarrow.RecordBatchReader.from_batches(table.schema, table.to_batches(30))
        data = read_logged(reader, study.table, on_disk=where)
        assert data.is_on_disk == (where is not None)
        assert_same(in_memory(data), expected)
    empty = pyarrow.RecordBatchReader.from_batches(table.schema, [])
    with pytest.raises(DataError, match="no rows"):
        read_logged(empty, study.table, on_disk=tmp_path / "kept")


# --- ADBC -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", ["memory", "disk"])
def test_adbc_gives_the_rows_of_the_csv_and_changes_nothing(home, sqlite_file, rows):
    pytest.importorskip("adbc_driver_sqlite")
    before = sqlite_file.read_bytes()
    settings = f'database = "adbc+sqlite:///rows.db"\nrows = "{rows}"\nquery = '
    data = from_settings(home, f'{settings}"select * from logged"')
    assert data.is_on_disk == (rows == "disk")
    assert_same(in_memory(data), from_file(home))
    with pytest.raises(FedoplError, match=r"client\.toml: the query failed"):
        from_settings(home, f'{settings}"delete from logged"')
    assert sqlite_file.read_bytes() == before


def test_adbc_reads_postgresql_and_does_not_write_to_it(home, postgres, monkeypatch):
    pytest.importorskip("adbc_driver_postgresql")
    monkeypatch.setenv("FEDOPL_TEST_PASSWORD", "any words")
    url = postgres.replace("postgresql+psycopg", "adbc+postgresql").replace("words", "")
    monkeypatch.setenv("FEDOPL_TEST_PASSWORD", "any%20words")
    assert_same(from_query(home, url, "select * from logged"), from_file(home))
    with pytest.raises(DataError, match="read-only"):
        from_query(home, url, "delete from logged returning *")


# --- mistakes -------------------------------------------------------------------------------------

SELECT = "select 1.0 as age, 2.0 as severity, 'alone' as living, 'new' as arm, 5.0 as gain"
MISTAKES = {
    "bad SQL": ("sqlite://", "selec 1", "the query failed"),
    "bad SQL for DuckDB": ("duckdb", "selec 1", "the query failed"),
    "no SQL": ("duckdb", "", "query"),
    "no SQL for SQLite": ("sqlite://", "", "query"),
    "no such table": ("sqlite://", "select * from nowhere", "no such table: nowhere"),
    "no such file in a query": ("duckdb", "select * from 'no.parquet'", "no.parquet"),
    "no such DuckDB file": ("no.duckdb", SELECT, "no.duckdb is not there; check the path"),
    "no such SQLite file": ("sqlite:///no.db", SELECT, "no.db is not there; check the path"),
    "a file of an unknown kind": ("rows.db", SELECT, "sqlite:///rows.db"),
    "no URL": ("://", SELECT, "URL"),
    "no such driver of ADBC": ("adbc+klingon://h/x", SELECT, "adbc+postgresql://"),
    "a port that is no number": ("postgresql+psycopg://u:hush@h:port/x", SELECT, "database"),
    "no such dialect": ("klingon://u:hush@h/x", SELECT, "klingon"),
    "no driver": ("oracle+cx_oracle://u:hush@h/x", SELECT, "driver is not installed"),
    "nobody there": ("postgresql+psycopg://u:hush@127.0.0.1:1/x", SELECT, "Connection refused"),
    "no rows": ("sqlite://", f"{SELECT} where 0", "no rows"),
    "a column missing": ("sqlite://", "select 1 as age", "columns missing: 'severity'"),
    "a column twice": ("sqlite://", f"{SELECT}, 3 as age", "more than one column is called 'age'"),
    "a column twice in DuckDB": ("duckdb", f"{SELECT}, 3 as age", "column is called 'age'"),
    "words among numbers": (
        "sqlite://",
        f"{SELECT} union all select 'old', 2, 'alone', 'new', 5",
        "column 'age'",
    ),
    "bytes for numbers": ("sqlite://", SELECT.replace("1.0", "x'00ff'"), "expected numbers"),
    "dates for numbers": ("duckdb", SELECT.replace("1.0", "date '2020-01-01'"), "expected numbers"),
    "an unset variable": ("sqlite:///${FEDOPL_NOT_SET}", SELECT, "FEDOPL_NOT_SET is not set"),
}


@pytest.mark.parametrize(("database", "query", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_names_the_file_and_no_password(home, database, query, said):
    with pytest.raises(FedoplError) as caught:
        from_query(home, database, query)
    message = str(caught.value)
    assert str(home / "client.toml") in message
    assert said in message
    assert "hush" not in message
    assert "Background on this error" not in message
    assert {path.name for path in home.iterdir()} == {"client.toml", "data.csv"}


@pytest.mark.parametrize(
    ("package", "database"), [("duckdb", "duckdb"), ("sqlalchemy", "sqlite://")]
)
def test_without_the_extra_the_error_says_what_to_install(home, monkeypatch, package, database):
    monkeypatch.setattr(sys, "path", [])
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(OptionError, match=rf"needs {package}; pip install 'fedopl\[sql\]'"):
        from_query(home, database, SELECT)
