"""Tables, as plain text and for notebooks."""

import io
from collections.abc import Iterable, Sequence
from html import escape


def text_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The rows under their headers: the first column to the left, the others to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for position, header in enumerate(headers):
        table.add_column(header, justify="right" if position else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    # Wide and without colours, so that the text is the same in every terminal.
    console = Console(file=io.StringIO(), width=200, color_system=None, markup=False)
    with console.capture() as capture:
        console.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def html_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The same for notebooks; every cell is text, whatever it holds."""
    head = "".join(f'<th scope="col">{escape(header)}</th>' for header in headers)
    body = "".join(f"<tr>{_html_cells(row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _html_cells(row: Sequence[str]) -> str:
    first, *others = row
    numbers = "".join(f'<td style="text-align:right">{escape(cell)}</td>' for cell in others)
    return f'<th scope="row" style="text-align:left">{escape(first)}</th>{numbers}'
