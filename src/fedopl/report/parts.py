"""What sections are made of. The template turns each into HTML, and the command line into text."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str
    quiet: bool = False


@dataclass(frozen=True, kw_only=True)
class Heading:
    """A heading inside a section."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True, kw_only=True)
class Points:
    """A list of sentences."""

    kind: ClassVar[str] = "points"
    items: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table whose first column names its rows; columns of text are to the left."""

    kind: ClassVar[str] = "table"
    caption: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: tuple[int, ...] = ()
    long_names: bool = False  # of rows: they get more room


@dataclass(frozen=True, kw_only=True)
class Key:
    """One entry of a legend: a colour of the page, or a mark, and what it stands for."""

    colour: str
    text: str
    mark: str = "■"


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A figure: SVG, what it shows in words for those who cannot see it, and a legend."""

    kind: ClassVar[str] = "picture"
    name: str
    svg: str
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
    """Parts that are shown when asked for, and in print."""

    kind: ClassVar[str] = "folded"
    summary: str
    parts: tuple["Part", ...]


Part = Text | Heading | Points | Table | Picture | Code | Folded


def folded_if_long(table: Table, most: int, summary: str) -> Part:
    """The table; with more rows than this, shown when asked for."""
    return table if len(table.rows) <= most else Folded(summary=summary, parts=(table,))


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of the page; `name` is where links lead."""

    name: str
    title: str
    parts: tuple[Part, ...]

    @property
    def headed(self) -> tuple[Part, ...]:
        """Its parts below its title, where it is no section but one part of something."""
        return (Heading(text=self.title), *self.parts)
