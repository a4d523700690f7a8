"""Opens a file or a frame as Arrow columns, and explains what cannot be read."""

import contextlib
import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedopl.base.errors import DataError, OptionError
from fedopl.base.labels import quoted

# A table is its columns by name; each a pyarrow.ChunkedArray.
Columns = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which columns to read, by their names in the table."""

    name: str  # what errors call the table
    columns: tuple[str, ...]
    labels: tuple[str, ...]  # those whose values are labels, even where they look like numbers
    encoding: str


def open_table(
    source: object,
    called: Mapping[str, str],
    label_columns: Iterable[str],
    name: str,
    encoding: str = "utf-8",
) -> Columns:
    """Columns of a CSV or Parquet file, or of a pandas, polars or pyarrow frame, by our names.

    `called` says what each is called in the table.
    """
    wanted = Wanted(
        name=name,
        columns=tuple(dict.fromkeys(called.values())),
        labels=tuple(called[column] for column in label_columns),
        encoding=encoding,
    )
    if isinstance(source, str | Path):
        found = _open_file(Path(source), wanted)
    else:
        found = _open_frame(source, wanted)
    return {column: found[own] for column, own in called.items()}


def table_name(source: object) -> str:
    """What errors call the table: the file's path, or what kind of frame it is."""
    if isinstance(source, str | Path):
        return str(source)
    return f"the {type(source).__module__.partition('.')[0]} {type(source).__name__}"


def _open_file(path: Path, wanted: Wanted) -> Columns:
    check_file(path, wanted.name)
    with explained(path, wanted.name, wanted.encoding):
        return READERS[suffix_of(path)](path, wanted)


def suffix_of(path: Path) -> str:
    """The ending of the file's name, with the one before it if the last is .gz."""
    zipped = path.suffix.lower() == ".gz"
    return "".join(path.suffixes[-2:]).lower() if zipped else path.suffix.lower()


def check_file(path: Path, name: str) -> None:
    """Refuse a file that is missing, empty, or of an unknown format."""
    if suffix_of(path) not in READERS:
        raise DataError(
            f"{name}: expected a file that ends in {', '.join(READERS)}, came '{path.name}'"
        )
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "is not there"
        raise DataError(f"{name}: the file {what}; check the path")
    if not path.stat().st_size:
        raise DataError(f"{name}: the file is empty; expected a header and at least one row")


@contextlib.contextmanager
def explained(path: Path, name: str, encoding: str) -> Iterator[None]:
    """Explain why a file cannot be read, without showing a row of it."""
    not_text = f"{name}: is not {encoding} text; say its encoding, such as latin-1"
    try:
        yield
    except (LookupError, UnicodeError):
        raise DataError(not_text) from None
    except (pa.ArrowException, OSError, EOFError) as error:
        # Arrow decodes while it parses, and says so in its own error.
        if "invalid UTF8" in str(error):
            raise DataError(not_text) from None
        raise DataError(f"{name}: cannot be read as {suffix_of(path)}: {_said(error)}") from None


def first_line(error: Exception) -> str:
    """The first line of what an error says, or else its kind."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _said(error: Exception) -> str:
    text = first_line(error)
    if "straddling" in text:
        return "a row is too long to be one; is a quotation mark never closed?"
    # Arrow goes on with the row itself.
    return re.sub(r"(Expected \d+ columns, got \d+).*", r"\1", text)


def _open_csv(path: Path, wanted: Wanted) -> Columns:
    from pyarrow import csv

    reading = csv.ReadOptions(encoding=wanted.encoding)
    parsing = csv.ParseOptions(newlines_in_values=True)
    with csv.open_csv(path, reading, parsing) as reader:
        check_header(reader.schema.names, wanted.columns, wanted.name)
    # Labels are read as written, so that '01' stays '01' and a level may be called 'NA'.
    options = csv.ConvertOptions(
        include_columns=list(wanted.columns),
        column_types=dict.fromkeys(wanted.labels, pa.string()),
    )
    table = csv.read_csv(path, reading, parsing, options)
    return {column: table[column] for column in wanted.columns}


def _open_parquet(path: Path, wanted: Wanted) -> Columns:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        check_header(file.schema_arrow.names, wanted.columns, wanted.name)
        table = file.read(columns=list(wanted.columns))
    return {column: table[column] for column in wanted.columns}


READERS: dict[str, Callable[[Path, Wanted], Columns]] = {
    ".csv": _open_csv,
    ".csv.gz": _open_csv,
    ".parquet": _open_parquet,
}


def _open_frame(frame: object, wanted: Wanted) -> Columns:
    # Imported late, as a table in a file does not need it.
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


def check_header(header: list[str], wanted: Sequence[str], name: str) -> None:
    """Refuse a table without the columns that are wanted, or with two of one name."""
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
