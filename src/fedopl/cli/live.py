"""The live view of a run in a terminal: exchanges, answers, value so far, time left."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fedopl.results.round import Round
    from fedopl.server.exchange.conversation import Progress
    from fedopl.study.study import Study

SHOWN_CLIENTS = 20


class LiveView:
    """Draws what is known so far, again after every exchange."""

    def __init__(self, study: "Study", clients: tuple[str, ...], n_expected: int) -> None:
        from fedopl.results.round import SoFar

        self.study, self.clients, self.n_expected = study, clients, n_expected
        self.so_far = SoFar()
        self.started = time.monotonic()
        self.scored: tuple[int, float] | None = None  # exchanges until rows were scored, and when

    def tell(self, latest: "Round") -> None:
        """Record an exchange, or its loss and value."""
        self.so_far.tell(latest)
        if latest.query == "SumScores":
            self.scored = (len(self.rounds), time.monotonic())

    @property
    def rounds(self) -> "Mapping[int, Round]":
        """All exchanges, by their number."""
        return self.so_far.rounds

    def seconds_left(self) -> float | None:
        """The seconds left, by the pace since rows were scored; None before that.

        Earlier exchanges say little about the pace, as scoring happens only once.
        """
        if self.scored is None or len(self.rounds) == self.scored[0]:
            return None
        before, when = self.scored
        pace = (time.monotonic() - when) / (len(self.rounds) - before)
        return pace * max(self.n_expected - len(self.rounds), 0)

    def __rich__(self) -> "RenderableType":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        line = Table.grid()
        line.add_row(ProgressBar(total=self.n_expected, completed=len(self.rounds), width=40))
        return Group(Text(self._headline(), style="bold"), line, self._table())

    def _headline(self) -> str:
        done, left = len(self.rounds), self.seconds_left()
        parts = [f"{self.study.name}: {done} of {self.n_expected} exchanges"]
        loss, value = self.so_far.loss, self.so_far.value
        parts += [f"loss {loss:.4g}"] if loss is not None else []
        parts += [f"value {value:.4g}"] if value is not None else []
        parts.append(f"{time.monotonic() - self.started:.0f} s so far")
        parts += [f"about {left:.0f} s left"] if left is not None else []
        return " · ".join(parts)

    def _table(self) -> "RenderableType":
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        for header in ("client", "state", "answers", "sent"):
            table.add_column(header, justify="left" if header in ("client", "state") else "right")
        for name in self.clients[:SHOWN_CLIENTS]:
            table.add_row(name, *self._state(name))
        hidden = len(self.clients) - SHOWN_CLIENTS
        if hidden > 0:
            table.add_row(f"… and {hidden} more")
        return table

    def _state(self, name: str) -> tuple[str, str, str]:
        own = self.so_far.client(name)
        state = "waiting" if own.last is None else _state_in(own.last, name)
        return state, f"{own.answers}", f"{own.n_bytes / 1024:.1f} KB"


def _state_in(latest: "Round", name: str) -> str:
    if name in latest.refused:
        return f"refused {latest.query} ({latest.refused[name]})"
    if name in latest.rejected:
        return f"rejected: {latest.rejected[name]}"
    return f"no answer to {latest.query}" if name in latest.silent else "answered"


@contextmanager
def watched(
    study: "Study", clients: tuple[str, ...], n_expected: int
) -> Iterator["Progress | None"]:
    """A progress function that draws on a terminal, or none if the output is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.live import Live

    view = LiveView(study, clients, n_expected)
    with Live(view, console=Console(stderr=True), refresh_per_second=8):
        yield view.tell
