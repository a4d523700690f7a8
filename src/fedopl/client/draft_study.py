"""Drafts a study and a folder for each client from tables; marks what a person must confirm."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from os.path import relpath
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fedopl.base.errors import DataError, OptionError
from fedopl.base.files import replacing, write_atomically
from fedopl.base.labels import GLOBAL, NO_LABEL, NODE_CHARACTERS, quoted
from fedopl.base.toml_file import toml_text
from fedopl.client.client_file import FILE_NAME
from fedopl.client.column_profiles import Roles, profiles
from fedopl.client.drafted_text import CONFIRM, Hints, study_lines
from fedopl.client.table.columns import is_text, numbers_in_text
from fedopl.client.table.formats import TEXT_ENDINGS, Columns, open_whole, suffix_of
from fedopl.client.table.text_files import FileFormat, likely_format

# The file for the rows of a client, where one table holds the rows of several.
ROWS_FILE = "rows.parquet"
# A column with more values than this does not name the clients.
MOST_DRAFTED = 200


@dataclass(frozen=True, kw_only=True)
class _Table:
    """A table that was read, and the format of its file."""

    path: Path
    text: FileFormat
    columns: Columns


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A study and its clients, not yet written."""

    study: str
    files: dict[str, str]  # client.toml by client
    rows: dict[str, pa.Table] = field(default_factory=dict)  # of clients with their own file

    def places(self, folder: Path) -> list[Path]:
        """Every file that it will be written to."""
        homes = [folder / "clients" / name for name in self.files]
        return [
            folder / "study.toml",
            *(home / FILE_NAME for home in homes),
            *(home / ROWS_FILE for home in homes if home.name in self.rows),
        ]

    @property
    def to_confirm(self) -> dict[int, str]:
        """What a person has to confirm, by line of the study."""
        lines = enumerate(self.study.splitlines(), start=1)
        marked = {number: line.partition(f"# {CONFIRM}: ")[2] for number, line in lines}
        return {number: text for number, text in marked.items() if text}

    def write(self, folder: Path) -> None:
        """Write everything; only its owner can read the rows and settings of a client."""
        for name, text in self.files.items():
            home = folder / "clients" / name
            write_atomically(home / FILE_NAME, text.encode(), mode=0o600)
            if name in self.rows:
                from pyarrow import parquet

                with replacing(home / ROWS_FILE, 0o600) as file:
                    parquet.write_table(self.rows[name], file)
        write_atomically(folder / "study.toml", self.study.encode())


def draft_study(paths: Iterable[Path], folder: Path, hints: Hints) -> Draft:
    """Read the tables and draft a study from them, to be written into this folder."""
    tables = [_read(path) for path in paths]
    if hints.client_column:
        tables = [replace(table, columns=_typed(table)) for table in tables]
    found = profiles([t.columns for t in tables], [t.text.decimal for t in tables])
    if hints.client_column:
        names, rows = _split(tables, hints.client_column)
        found.pop(hints.client_column)
        files = dict.fromkeys(names, f'[data]\nfile = "{ROWS_FILE}"\n')
    else:
        rows = {}
        files = {_name_of(t.path.name.split(".")[0]): _settings(t, folder) for t in tables}
        if len(files) < len(tables):
            raise OptionError(
                "from: two tables have the same name, and each table's name becomes its client's; "
                "rename one"
            )
    roles = Roles.guessed(found, hints.action, hints.outcome)
    only = {name for table in tables for name in table.columns} - set(found)
    title = folder.resolve().name.replace("-", " ").replace("_", " ").strip() or "My study"
    parts = rows.values() if rows else [table.columns for table in tables]
    sizes = [len(part[roles.action]) for part in parts]
    missing = sorted(only - {hints.client_column})
    lines = study_lines(title, found, roles, sizes, only_somewhere=missing, private=hints.private)
    return Draft(study="\n".join(lines) + "\n", files=files, rows=rows)


def _read(path: Path) -> _Table:
    is_text = suffix_of(path) in TEXT_ENDINGS and path.is_file()
    text = likely_format(path) if is_text else FileFormat()
    columns = open_whole(path, text)
    if not any(map(len, columns.values())):
        raise DataError(f"{path}: no rows; expected a header and at least one row")
    return _Table(path=path, text=text, columns=columns)


# --- clients --------------------------------------------------------------------------------------


def _name_of(text: str) -> str:
    name = "".join(sign if sign in NODE_CHARACTERS else "-" for sign in text.strip()).strip("-")
    if not name or name == GLOBAL:
        raise OptionError(f"from: {text!r} cannot be made the name of a client; rename it")
    return name


def _settings(table: _Table, folder: Path) -> str:
    home, usual = folder / "clients" / _name_of(table.path.name.split(".")[0]), FileFormat()
    said = {"file": Path(relpath(table.path.resolve(), home.resolve())).as_posix()}
    for key in ("encoding", "delimiter", "decimal"):
        if getattr(table.text, key) != getattr(usual, key):
            said[key] = getattr(table.text, key)
    return "\n".join(["[data]", *(f"{key} = {toml_text(own)}" for key, own in said.items())]) + "\n"


def _split(tables: list[_Table], column: str) -> tuple[list[str], dict[str, pa.Table]]:
    """The clients, which are the values of a column, and the rows of each."""
    if len(tables) > 1:
        raise OptionError(
            "client-column: expected one table, with a column that names the client of each row"
        )
    (table,) = tables
    if column not in table.columns:
        raise OptionError(
            f"client-column: there is no '{column}'; it has {quoted(tuple(table.columns))}"
        )
    whole = pa.table(table.columns)
    keys = whole[column].cast(pa.string())
    values = sorted(
        {value for value in keys.unique().to_pylist() if value not in NO_LABEL | {None}}
    )
    n_lost = len(keys) - sum(pc.sum(pc.equal(keys, value)).as_py() for value in values)
    if n_lost or not 0 < len(values) <= MOST_DRAFTED:
        what = f"is missing in {n_lost:,} rows" if n_lost else f"has {len(values):,} values"
        raise DataError(
            f"{table.path}: '{column}' {what}; expected the name of a client in each row"
        )
    rows = {_name_of(value): whole.filter(pc.equal(keys, value)) for value in values}
    if len(rows) < len(values):
        raise DataError(f"{table.path}: two values of '{column}' make the same name of a client")
    return list(rows), rows


def _typed(table: _Table) -> Columns:
    """The columns; text that holds only numbers becomes numbers."""
    found = profiles([table.columns], [table.text.decimal])
    columns = dict(table.columns)
    for name, column in table.columns.items():
        if found[name].numbers is not None and is_text(column.type):
            values, _ = numbers_in_text(column.cast(pa.string()), table.text.decimal)
            are_whole = not np.any(values[~np.isnan(values)] % 1)
            kind = pa.int64() if are_whole else pa.float64()
            columns[name] = pa.chunked_array([pa.array(values, from_pandas=True).cast(kind)])
    return columns
