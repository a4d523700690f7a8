"""The parts of sections. The template turns parts into HTML, `as_text` into plain text."""

import textwrap
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Protocol

from fedopl.base.tables import text_table
from fedopl.report.words.numbers import printable

_TEXT_WIDTH = 100  # letters on a line


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str
    quiet: bool = False


def texts(*said: str) -> tuple[Text, ...]:
    """A paragraph for each of these that is not empty."""
    return tuple(Text(text) for text in said if text)


@dataclass(frozen=True)
class Heading:
    """A heading inside a section."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class Points:
    """A list of sentences."""

    kind: ClassVar[str] = "points"
    items: tuple[str, ...]


MOST_ROWS = 5_000  # of a table, on the page


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table whose first column names its rows; columns of text are left-aligned."""

    kind: ClassVar[str] = "table"
    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: tuple[int, ...] = ()
    long_names: bool = False  # of rows: they get more room


@dataclass(frozen=True, kw_only=True)
class Key:
    """One entry of a legend: a colour of the page, or a mark, and its meaning."""

    colour: str
    text: str
    mark: str = "■"


class Drawn(Protocol):
    """The content of a picture."""

    @property
    def svg(self) -> str:
        """The picture as SVG, for the page."""

    def figure(self) -> Any:
        """The picture as a matplotlib figure."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure: the drawing, a description for readers who cannot see it, and a legend."""

    kind: ClassVar[str] = "picture"
    name: str
    drawing: Drawn
    label: str
    caption: str
    keys: tuple[Key, ...] = ()
    width: float | None = None  # in inches, where it is wider than figures are


@dataclass(frozen=True, kw_only=True)
class Code:
    """Text to copy."""

    kind: ClassVar[str] = "code"
    text: str
    label: str


@dataclass(frozen=True, kw_only=True)
class Folded:
    """Parts that are hidden until asked for, but printed."""

    kind: ClassVar[str] = "folded"
    summary: str
    parts: tuple["Part", ...]


Part = Text | Heading | Points | Table | Picture | Code | Folded


def folded_if_long(table: Table, most: int = 30, summary: str = "All clients") -> Part:
    """The table; with more rows than this, shown when asked for, and of very many the first."""
    if len(table.rows) > MOST_ROWS:
        caption = f"{table.caption}; the first {MOST_ROWS:,} of {len(table.rows):,} rows"
        table = replace(table, caption=caption, rows=table.rows[:MOST_ROWS])
        return Folded(summary=f"The first {MOST_ROWS:,} rows", parts=(table,))
    return table if len(table.rows) <= most else Folded(summary=summary, parts=(table,))


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of the page; `name` is the anchor for links."""

    name: str
    title: str
    parts: tuple[Part, ...]


class Caution(NamedTuple):
    """One caution: its name, what it says, and what it means or what to do."""

    title: str
    what: str
    advice: str


def as_text(parts: tuple[Part, ...]) -> str:
    """Plain text for the command line: part below part, without figures and code."""
    return "\n\n".join(text for part in parts if (text := _text(part)))


def _text(part: Part) -> str:
    match part:
        case Text():
            return _wrapped(part.text)
        case Heading():
            return f"{printable(part.text)}\n{'─' * len(part.text)}"
        case Points():
            return "\n".join(_wrapped(item, "- ") for item in part.items)
        case Table():
            headers = [printable(header) for header in part.headers]
            rows = [[printable(cell).replace("\n", " ") for cell in row] for row in part.rows]
            return f"{_wrapped(part.caption)}\n\n{text_table(headers, rows)}"
        case Folded():
            return as_text(part.parts)
    return ""


def _wrapped(text: str, mark: str = "") -> str:
    indent = " " * len(mark)
    return textwrap.fill(
        printable(text), _TEXT_WIDTH, initial_indent=mark, subsequent_indent=indent
    )
