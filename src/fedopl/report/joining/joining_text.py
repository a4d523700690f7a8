"""Parts of the page as plain text, for the command line; figures are left to the page."""

import textwrap

from fedopl.base.tables import text_table
from fedopl.report.parts import Folded, Heading, Part, Picture, Points, Table, Text
from fedopl.report.words.printable_text import printable

_WIDTH = 100  # letters on a line


def as_text(parts: tuple[Part, ...]) -> str:
    """One part below the other, with an empty line between."""
    texts = [_text(part) for part in parts if not isinstance(part, Picture)]
    return "\n\n".join(text for text in texts if text)


def _text(part: Part) -> str:
    if isinstance(part, Text):
        return _wrapped(part.text)
    if isinstance(part, Heading):
        return f"{printable(part.text)}\n{'─' * len(part.text)}"
    if isinstance(part, Points):
        return "\n".join(_wrapped(item, "- ") for item in part.items)
    if isinstance(part, Table):
        return f"{_wrapped(part.caption)}\n\n{_table(part)}"
    if isinstance(part, Folded):
        return as_text(part.parts)
    return ""


def _table(table: Table) -> str:
    rows = [[printable(cell).replace("\n", " ") for cell in row] for row in table.rows]
    return text_table([printable(header) for header in table.headers], rows)


def _wrapped(text: str, mark: str = "") -> str:
    return textwrap.fill(
        printable(text), _WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark)
    )
