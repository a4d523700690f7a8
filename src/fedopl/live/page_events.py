"""The events of a live page, in order. A browser that connects late, or again, gets all of them.

An event tells the page's script what to show from now on: a text, a bar, a row of a table, or
another page to go to. The server chooses all words, so the script needs to know nothing of studies.
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fedopl.report.words.numbers import printable


@dataclass(frozen=True, kw_only=True)
class Button:
    """A button in a row: its label, and the action and value that it sends."""

    label: str
    about: str  # for screen readers: which row the button belongs to
    action: str
    value: str = ""


@dataclass
class PageEvents:
    """A list of events that only grows, and a way to wait for more of them."""

    _events: list[str] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _is_closed: bool = False

    def set_text(self, element: str, text: str) -> None:
        """Set the text of an element of the page."""
        self._append(kind="text", id=element, text=printable(text))

    def set_bar(self, element: str, done: int, of: int) -> None:
        """Set a progress bar."""
        self._append(kind="bar", id=element, done=done, of=of)

    def show(self, element: str, *, shown: bool) -> None:
        """Show an element, or hide it."""
        self._append(kind="show", id=element, shown=shown)

    def put_row(
        self, table: str, key: str, cells: Sequence[str | None], buttons: Sequence[Button] = ()
    ) -> None:
        """Add a row to a table, or replace the row with this key.

        The buttons go into the cell that is None.
        """
        shown = [None if text is None else printable(text) for text in cells]
        self._append(
            kind="row", id=table, key=key, cells=shown, buttons=[vars(one) for one in buttons]
        )

    def drop_row(self, table: str, key: str) -> None:
        """Remove a row from a table."""
        self._append(kind="drop", id=table, key=key)

    def go_to(self, address: str) -> None:
        """Make the browser go to another page."""
        self._append(kind="go", to=address)

    def close(self) -> None:
        """Say that no more events will come."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def after(self, position: int, seconds: float) -> tuple[list[str], int, bool]:
        """The events from a position on, the position after them, and whether events have ended.

        If there are none yet, wait for some, but at most this many seconds.
        """
        with self._changed:
            start = position if 0 <= position <= len(self._events) else 0
            self._changed.wait_for(
                lambda: self._is_closed or len(self._events) > start, timeout=seconds
            )
            return self._events[start:], len(self._events), self._is_closed

    def _append(self, **event: Any) -> None:
        with self._changed:
            self._events.append(json.dumps(event, ensure_ascii=False))
            self._changed.notify_all()
