"""Opens a file or a frame as Arrow columns, and explains what cannot be read."""

import contextlib
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedopl.base.errors import DataError, OptionError
from fedopl.base.labels import is_missing, label_text, quoted
from fedopl.client.table.text_files import FileFormat, check_is_text, not_text, other_delimiter

# A table is a dictionary of its columns by name; each is a pyarrow.ChunkedArray.
Columns = dict[str, Any]
# A cell is None, text, a number, a truth value or a date.
Cells = list[Any]

# The function of pyreadstat that reads each format.
STATISTICS = {
    ".dta": "read_dta",
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".por": "read_por",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}
WORKBOOKS = (".xlsx", ".xls", ".ods")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which columns to read, by their names in the table; all of them if none is named."""

    name: str  # the table's name in errors
    columns: tuple[str, ...]
    labels: tuple[str, ...]  # columns of labels, even if they look like numbers
    file: FileFormat


def open_table(
    source: object,
    called: Mapping[str, str],
    label_columns: Iterable[str],
    name: str,
    file: FileFormat,
) -> Columns:
    """Columns of a file, or of a pandas, polars or pyarrow frame, by our names.

    `called` has the name of each in the table.
    """
    wanted = Wanted(
        name=name,
        columns=tuple(dict.fromkeys(called.values())),
        labels=tuple(called[column] for column in label_columns),
        file=file,
    )
    if isinstance(source, str | Path):
        found = _open_file(Path(source), wanted)
    else:
        found = _open_frame(source, wanted)
    return {column: found[own] for column, own in called.items()}


def open_whole(path: Path, file: FileFormat) -> Columns:
    """All columns of a file; text, and labels of codes, as they are written."""
    return _open_file(path, Wanted(name=str(path), columns=(), labels=(), file=file))


def table_name(source: object) -> str:
    """The table's name in errors: the file's path, or the kind of frame."""
    if isinstance(source, str | Path):
        return str(source)
    return f"the {type(source).__module__.partition('.')[0]} {type(source).__name__}"


def _open_file(path: Path, wanted: Wanted) -> Columns:
    check_file(path, wanted.name)
    with explained(path, wanted.name, wanted.file):
        return READERS[suffix_of(path)](path, wanted)


def suffix_of(path: Path) -> str:
    """The ending of the file's name; if that is .gz, with the ending before it."""
    zipped = path.suffix.lower() == ".gz"
    return "".join(path.suffixes[-2:]).lower() if zipped else path.suffix.lower()


def check_file(path: Path, name: str, endings: Iterable[str] = ()) -> None:
    """Raise an error if a file is missing, empty, or of no known format (of `endings`, if any)."""
    offered = [ending for ending in READERS if not endings or ending in endings]
    if suffix_of(path) not in offered:
        hint = CONVERTED.get(suffix_of(path), "")
        hint = "; convert it to one of these" if endings and suffix_of(path) in READERS else hint
        raise DataError(
            f"{name}: expected a file that ends in {', '.join(offered)}, came '{path.name}'{hint}"
        )
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is not there"
        raise DataError(f"{name}: the file {what}; check the path")
    if not path.stat().st_size:
        raise DataError(f"{name}: the file is empty; expected a header and at least one row")


@contextlib.contextmanager
def explained(path: Path, name: str, text: FileFormat) -> Iterator[None]:
    """Explain why a file cannot be read, without showing a row of it."""
    try:
        yield
    except (LookupError, UnicodeError):
        raise DataError(f"{name}: {not_text(path, text)}") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        # Arrow decodes while it parses, and its own error says so.
        if "invalid UTF8" in str(error):
            raise DataError(f"{name}: {not_text(path, text)}") from None
        is_text = suffix_of(path) in TEXT_ENDINGS
        why = (other_delimiter(path, text) if is_text else "") or _said(error)
        raise DataError(f"{name}: cannot be read as {suffix_of(path)}: {why}") from None


def first_line(error: Exception) -> str:
    """The first line of an error's message, or else its type."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _said(error: Exception) -> str:
    text = first_line(error)
    if "straddling" in text:
        return "a row is too long to be one; is a quotation mark never closed?"
    # Arrow's message continues with the row itself.
    return re.sub(r"(Expected \d+ columns, got \d+).*", r"\1", text)


def check_delimiter(header: list[str], path: Path, name: str, text: FileFormat) -> None:
    """Raise an error for a one-column text that another delimiter divides into several."""
    if len(header) == 1 and (why := other_delimiter(path, text)):
        raise DataError(f"{name}: {why}")


def _open_csv(path: Path, wanted: Wanted) -> Columns:
    from pyarrow import csv

    text = wanted.file
    check_is_text(path, wanted.name, text)
    reading = csv.ReadOptions(encoding=text.encoding)
    parsing = csv.ParseOptions(delimiter=text.between(path), newlines_in_values=True)
    with csv.open_csv(path, reading, parsing) as reader:
        header = reader.schema.names
    check_delimiter(header, path, wanted.name, text)
    wanted = checked_columns(header, wanted)
    # Labels are read as written, so that '01' stays '01' and a level may be called 'NA'.
    options = csv.ConvertOptions(
        include_columns=list(wanted.columns),
        column_types=dict.fromkeys(wanted.labels, pa.string()),
        decimal_point=text.decimal,
    )
    table = csv.read_csv(path, reading, parsing, options)
    return {column: table[column] for column in wanted.columns}


def _open_parquet(path: Path, wanted: Wanted) -> Columns:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        wanted = checked_columns(file.schema_arrow.names, wanted)
        table = file.read(columns=list(wanted.columns))
    return {column: table[column] for column in wanted.columns}


def _open_feather(path: Path, wanted: Wanted) -> Columns:
    from pyarrow import ipc

    with ipc.open_file(path) as file:
        wanted = checked_columns(file.schema.names, wanted)
        table = file.read_all()
    return {column: table[column] for column in wanted.columns}


def _open_workbook(path: Path, wanted: Wanted) -> Columns:
    _need("python_calamine", "excel", path)
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        with CalamineWorkbook.from_path(path) as book:
            sheet = _sheet(book.sheet_names, wanted.file.sheet, path)
            first, *body = book.get_sheet_by_name(sheet).to_python() or [[]]
    except CalamineError as error:
        raise DataError(f"{path}: cannot be read as a workbook: {error}") from None
    header = [label_text(name) for name in first]
    rows = [row for row in body if any(cell != "" for cell in row)]
    places = {name: header.index(name) for name in checked_columns(header, wanted).columns}
    return {name: _as_one_type(row[place] for row in rows) for name, place in places.items()}


def _open_statistics(path: Path, wanted: Wanted) -> Columns:
    """Codes with labels in the file are labels where those are wanted, and numbers elsewhere."""
    header = list(_statistics(path, metadataonly=True)[1].column_names)
    wanted = checked_columns(header, wanted)
    cells, about = _statistics(path, usecols=list(wanted.columns))
    known = {name: about.variable_value_labels.get(name, {}) for name in wanted.labels}
    return {
        name: _as_one_type(known.get(name, {}).get(cell, cell) for cell in cells[name])
        for name in wanted.columns
    }


TEXT_ENDINGS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".tab", ".txt")
READERS: dict[str, Callable[[Path, Wanted], Columns]] = {
    **dict.fromkeys(TEXT_ENDINGS, _open_csv),
    ".parquet": _open_parquet,
    ".feather": _open_feather,
    ".arrow": _open_feather,
    **dict.fromkeys(WORKBOOKS, _open_workbook),
    **dict.fromkeys(STATISTICS, _open_statistics),
}
# How to convert files of formats that are not read.
CONVERTED = {
    ".rds": "; in R: arrow::write_parquet(readRDS('rows.rds'), 'rows.parquet')",
    ".rdata": "; in R: load it, then arrow::write_parquet(rows, 'rows.parquet')",
    ".zip": "; unpack it first",
    ".json": '; with DuckDB: database = "duckdb", query = "select * from \'rows.json\'"',
    ".db": '; with SQLite: database = "sqlite:///rows.db" and a query',
    ".pkl": "; in Python: pandas.read_pickle('rows.pkl').to_parquet('rows.parquet')",
}


def _open_frame(frame: object, wanted: Wanted) -> Columns:
    # Imported late, because a table in a file does not need it.
    import narwhals as nw

    try:
        table = nw.from_native(frame)  # type: ignore[call-overload]
    except TypeError:
        raise OptionError(
            "read_logged: expected a path or a pandas, polars or pyarrow frame, "
            f"came {type(frame).__name__}"
        ) from None
    check_header(table.collect_schema().names(), wanted.columns, wanted.name)
    table = table.select(*wanted.columns)
    if isinstance(table, nw.LazyFrame):
        table = table.collect()
    return {column: _arrow_column(table[column], column, wanted.name) for column in wanted.columns}


def _arrow_column(series: Any, column: str, name: str) -> Any:
    try:
        array = series.to_arrow()
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise DataError(
            f"{name}: column '{column}' mixes values of different types; make them one type"
        ) from None
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def checked_columns(header: list[str], wanted: Wanted) -> Wanted:
    """The wanted columns, all if none is named; an error if the header lacks one."""
    if not wanted.columns:
        wanted = replace(wanted, columns=tuple(header), labels=tuple(header))
    check_header(header, wanted.columns, wanted.name)
    return wanted


def check_header(header: list[str], wanted: Sequence[str], name: str) -> None:
    """Raise an error for a table that lacks a wanted column, or has two of one name."""
    repeated = sorted({column for column in wanted if header.count(column) > 1})
    if repeated:
        raise DataError(f"{name}: more than one column is called {quoted(repeated)}; rename them")
    missing = [column for column in wanted if column not in header]
    if missing:
        near = {column: difflib.get_close_matches(column, header, n=1) for column in missing}
        guesses = [f"'{match[0]}' for '{column}'" for column, match in near.items() if match]
        guess = f"is it {', '.join(guesses[:3])}?" if guesses else f"the table has {quoted(header)}"
        raise DataError(
            f"{name}: {len(missing)} of the schema's {len(wanted)} columns missing: "
            f"{quoted(missing)}; {guess}"
        )


# --- what other programs wrote --------------------------------------------------------------------


def _need(package: str, extra: str, path: Path) -> None:
    if find_spec(package) is None:
        raise OptionError(
            f"{path}: a file that ends in {path.suffix} needs {package.replace('_', '-')}; "
            f"pip install 'fedopl[{extra}]', or convert it to CSV or Parquet"
        )


def _as_one_type(cells: Iterable[Any]) -> Any:  # a pyarrow.ChunkedArray
    """Cells as an Arrow column: of one type if all cells have one, else text."""
    values = [None if is_missing(cell) or cell == "" else cell for cell in cells]
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {date, datetime}:  # the reader turns midnight into a day
        values = [v and datetime(v.year, v.month, v.day) if type(v) is date else v for v in values]
    elif len(kinds) > 1 and kinds != {int, float}:
        values = [None if value is None else label_text(value) for value in values]
    return pa.chunked_array([pa.array(values)])


def _sheet(names: list[str], wanted: str | None, path: Path) -> str:
    if wanted is None and len(names) == 1:
        return names[0]
    if wanted not in names:
        came = "none is named" if wanted is None else f"came '{wanted}'"
        raise OptionError(
            f'{path}: sheet: expected one of {quoted(names)}, {came}; say sheet = "{names[0]}"'
        )
    return wanted


def _statistics(path: Path, **options: Any) -> tuple[dict[str, Cells], Any]:
    """Cells by column, and the file's metadata about columns."""
    _need("pyreadstat", "statistics", path)
    import pyreadstat

    read = getattr(pyreadstat, STATISTICS[path.suffix.lower()])
    try:
        found: tuple[dict[str, Cells], Any] = read(path, output_format="dict", **options)
    except (pyreadstat.ReadstatError, pyreadstat.PyreadstatError, UnicodeError) as error:
        raise DataError(f"{path}: cannot be read as {path.suffix}: {error}") from None
    return found
