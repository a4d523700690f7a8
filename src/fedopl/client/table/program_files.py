"""Tables that other programs wrote: workbooks, and files of Stata, SPSS and SAS."""

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedopl.base.errors import DataError, OptionError
from fedopl.base.labels import is_missing, label_text, quoted

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


def _need(package: str, extra: str, path: Path) -> None:
    if find_spec(package) is None:
        raise OptionError(
            f"{path}: a file that ends in {path.suffix} needs {package.replace('_', '-')}; "
            f"pip install 'fedopl[{extra}]', or convert it to CSV or Parquet"
        )


def _arrow_column(cells: Iterable[Any]) -> Any:  # a pyarrow.ChunkedArray
    """Cells as an Arrow column: of one type if all cells have one, else text."""
    values = [None if is_missing(cell) or cell == "" else cell for cell in cells]
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {date, datetime}:  # the reader turns midnight into a day
        values = [v and datetime(v.year, v.month, v.day) if type(v) is date else v for v in values]
    elif len(kinds) > 1 and kinds != {int, float}:
        values = [None if value is None else label_text(value) for value in values]
    return pa.chunked_array([pa.array(values)])


# --- workbooks ------------------------------------------------------------------------------------


def workbook(path: Path, sheet: str | None) -> tuple[list[str], list[Cells]]:
    """The header of a sheet, and its rows that are not empty."""
    _need("python_calamine", "excel", path)
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        with CalamineWorkbook.from_path(path) as book:
            rows = book.get_sheet_by_name(_sheet(book.sheet_names, sheet, path)).to_python()
    except CalamineError as error:
        raise DataError(f"{path}: cannot be read as a workbook: {error}") from None
    header, *body = rows or [[]]
    return [label_text(name) for name in header], [row for row in body if any(c != "" for c in row)]


def _sheet(names: list[str], wanted: str | None, path: Path) -> str:
    if wanted is None and len(names) == 1:
        return names[0]
    if wanted not in names:
        came = "none is named" if wanted is None else f"came '{wanted}'"
        raise OptionError(
            f'{path}: sheet: expected one of {quoted(names)}, {came}; say sheet = "{names[0]}"'
        )
    return wanted


def workbook_columns(
    header: list[str], rows: list[Cells], columns: Sequence[str]
) -> dict[str, Any]:  # of pyarrow.ChunkedArray
    """These columns of a sheet."""
    places = {name: header.index(name) for name in columns}
    return {name: _arrow_column(row[place] for row in rows) for name, place in places.items()}


# --- Stata, SPSS, SAS -----------------------------------------------------------------------------


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


def statistics_header(path: Path) -> list[str]:
    """The columns of a Stata, SPSS or SAS file."""
    return list(_statistics(path, metadataonly=True)[1].column_names)


def statistics_columns(
    path: Path, columns: Sequence[str], labels: Sequence[str]
) -> dict[str, Any]:  # of pyarrow.ChunkedArray
    """These columns of such a file.

    Codes with labels in the file are read as labels in columns where labels are wanted, and as
    numbers elsewhere.
    """
    cells, about = _statistics(path, usecols=list(columns))
    known = {name: about.variable_value_labels.get(name, {}) for name in labels}
    return {
        name: _arrow_column(known.get(name, {}).get(cell, cell) for cell in cells[name])
        for name in columns
    }
