"""Tables as plain text, for notebooks and as data frames."""

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.util import find_spec
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args

from fedopl.base.errors import OptionError

AnyRow = TypeVar("AnyRow")
# The first that is installed is used; pyarrow always is.
Backend = Literal["pandas", "polars", "pyarrow"]
# Widths in characters: of each of several text tables, between columns, and of one text table.
_WIDTH, _BETWEEN, _WIDEST = 200, 3, 100_000


def text_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The rows under their headers; the first column is left-aligned, the others right-aligned."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for position, header in enumerate(headers):
        table.add_column(header, justify="right" if position else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # Wide enough that no cell is cut off, and without colours: the same text in every terminal.
    console = Console(file=io.StringIO(), width=_WIDEST, color_system=None, markup=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def text_tables(headers: Sequence[str], rows: Sequence[Sequence[str]], n_names: int = 1) -> str:
    """The rows in several narrow tables, each of which repeats the first `n_names` columns."""
    widths = [max(map(len, own)) + _BETWEEN for own in zip(headers, *rows, strict=True)]
    names, start, found = slice(0, n_names), n_names, []
    while True:
        stop = start + 1
        while stop < len(widths) and sum(widths[names]) + sum(widths[start : stop + 1]) <= _WIDTH:
            stop += 1
        some = slice(start, stop)
        body = [[*row[names], *row[some]] for row in rows]
        found.append(text_table([*headers[names], *headers[some]], body))
        if stop >= len(widths):
            return "\n\n".join(found)
        start = stop


def html_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The table as HTML for notebooks; every cell is escaped as text."""
    head = "".join(f'<th scope="col">{escape(header)}</th>' for header in headers)
    body = "".join(f"<tr>{_html_cells(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_cells(row: Sequence[str]) -> str:
    first, *others = row
    numbers = "".join(f'<td style="text-align:right">{escape(cell)}</td>' for cell in others)
    return f'<th scope="row" style="text-align:left">{escape(first)}</th>{numbers}'


def html_text(text: str) -> str:
    """Text as HTML for notebooks; line breaks and spaces stay."""
    return f"<pre>{escape(text)}</pre>"


def html_fields(fields: Mapping[str, object]) -> str:
    """Names and their values, as HTML for notebooks; long texts are cut off."""
    texts = {name: " ".join(str(value).split()) for name, value in fields.items()}
    cut = {name: text if len(text) <= 200 else f"{text[:199]}…" for name, text in texts.items()}
    return html_table(["field", "value"], [[name, text] for name, text in cut.items()])


def frame_of(columns: Mapping[str, Sequence[object]], backend: Backend | None = None) -> Any:
    """A frame of `backend`; by default pandas if it is installed, else polars, else pyarrow."""
    import narwhals as nw

    known: tuple[Backend, ...] = get_args(Backend)
    chosen = backend or next(name for name in known if find_spec(name))
    if chosen not in known:
        raise OptionError(f"backend: expected one of {', '.join(known)}, came {backend!r}")
    if not find_spec(chosen):
        raise OptionError(f"{chosen} is not installed; run: pip install {chosen}")
    lists = {name: list(values) for name, values in columns.items()}
    return nw.from_dict(lists, backend=chosen).to_native()


class RowTable(tuple[AnyRow, ...], ABC, Generic[AnyRow]):
    """A tuple of rows; `print` it, show it in a notebook, or make it a data frame."""

    __slots__ = ()
    columns: ClassVar[tuple[str, ...]]  # of data frames and files

    @property
    def rows(self) -> tuple[AnyRow, ...]:
        """The rows themselves."""
        return self

    def column(self, name: str) -> list[Any]:
        """What every row says under this name."""
        return [getattr(row, name) for row in self]

    def to_frame(self, backend: Backend | None = None) -> Any:
        """The table as a data frame of pandas, polars or pyarrow."""
        return frame_of({name: self.column(name) for name in self.columns}, backend)

    def __str__(self) -> str:
        return text_table(*self._cells())

    def _repr_html_(self) -> str:
        return html_table(*self._cells())

    @abstractmethod
    def _cells(self) -> tuple[list[str], list[list[str]]]:
        """Headers and rows."""
