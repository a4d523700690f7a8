"""What happened on a page so far, in order: whoever comes late, or again, gets all of it.

An event says what a page shows from now on, in words made here, so that the page's script knows
nothing of studies: a text, a row of a table, the end of one, or where to go next.
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fedopl.report.words.printable_text import printable


@dataclass(frozen=True, kw_only=True)
class Button:
    """What the owner can do about a row: the word on it, and where that is sent."""

    label: str
    about: str  # for people who hear a button and do not see its row
    action: str
    value: str = ""


@dataclass
class PageEvents:
    """A list that only grows, and whoever waits for more of it."""

    _events: list[str] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _is_closed: bool = False

    def set_text(self, element: str, text: str) -> None:
        """Let an element of the page hold this text."""
        self._append(kind="text", id=element, text=printable(text))

    def set_bar(self, element: str, done: int, of: int) -> None:
        """Let a bar show how much is done."""
        self._append(kind="bar", id=element, done=done, of=of)

    def show(self, element: str, *, shown: bool) -> None:
        """Show an element, or hide it."""
        self._append(kind="show", id=element, shown=shown)

    def put_row(
        self, table: str, key: str, cells: Sequence[str | None], buttons: Sequence[Button] = ()
    ) -> None:
        """Put a row into a table, or in the place of the row with this key.

        Its buttons go into the cell that is None.
        """
        shown = [None if text is None else printable(text) for text in cells]
        self._append(
            kind="row", id=table, key=key, cells=shown, buttons=[vars(one) for one in buttons]
        )

    def drop_row(self, table: str, key: str) -> None:
        """Take a row out of a table."""
        self._append(kind="drop", id=table, key=key)

    def go_to(self, address: str) -> None:
        """Let the page become another."""
        self._append(kind="go", to=address)

    def close(self) -> None:
        """Nothing more will come."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def after(self, position: int, seconds: float) -> tuple[list[str], int, bool]:
        """Events from a position on, the position after them, and whether it was the end.

        Where there are none yet, waits for some, but no longer than so many seconds.
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
