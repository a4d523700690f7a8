"""How a run is followed: in a terminal, and with `--serve` on a page of this machine.

The terminal shows exchanges, answers, the value so far and the time left. The page also follows a
client, and stays until its reader is done. Verbs import this file when they are called.
"""

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from fedopl.base.errors import FedoplError, OptionError
from fedopl.engines.run import Watch
from fedopl.live.page_server import PageServer
from fedopl.live.run_page import RunPage
from fedopl.results.round import Round, SoFar
from fedopl.server.exchange.conversation import Progress
from fedopl.study.study import Study
from fedopl.study.study_file import read_study

# Without a terminal for Ctrl-C, a page ends by itself after this many seconds at most.
MOST_SECONDS = 600.0
# A run can fail while a browser is still about to open the address that was just printed.
COMING_SECONDS = 2.0
SHOWN_CLIENTS = 20


class LiveView:
    """Draws what is known so far, again after every exchange."""

    def __init__(self, study: Study, clients: tuple[str, ...], n_expected: int) -> None:
        self.study, self.clients, self.n_expected = study, clients, n_expected
        self.so_far = SoFar()
        self.started = time.monotonic()
        self.scored: tuple[int, float] | None = None  # exchanges until rows were scored, and when

    def tell(self, latest: Round) -> None:
        """Record an exchange, or its loss and value."""
        self.so_far.tell(latest)
        if latest.query == "SumScores":
            self.scored = (len(self.rounds), time.monotonic())

    @property
    def rounds(self) -> Mapping[int, Round]:
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

    def __rich__(self) -> RenderableType:
        line = Table.grid()
        line.add_row(ProgressBar(total=self.n_expected, completed=len(self.rounds), width=40))
        return Group(Text(self._headline(), style="bold"), line, self._table())

    def _headline(self) -> str:
        done, left = len(self.rounds), self.seconds_left()
        parts = [f"{self.study.name}: {done} of {self.n_expected} exchanges"]
        loss, value = self.so_far.last("loss"), self.so_far.last("value")
        parts += [f"loss {loss:.4g}"] if loss is not None else []
        parts += [f"value {value:.4g}"] if value is not None else []
        parts.append(f"{time.monotonic() - self.started:.0f} s so far")
        parts += [f"about {left:.0f} s left"] if left is not None else []
        return " · ".join(parts)

    def _table(self) -> RenderableType:
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


def _state_in(latest: Round, name: str) -> str:
    if name in latest.refused:
        return f"refused {latest.query} ({latest.refused[name]})"
    if name in latest.rejected:
        return f"rejected: {latest.rejected[name]}"
    return f"no answer to {latest.query}" if name in latest.silent else "answered"


@contextmanager
def watched(study: Study, clients: tuple[str, ...], n_expected: int) -> Iterator[Progress | None]:
    """A progress function that draws on a terminal, or none if the output is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    view = LiveView(study, clients, n_expected)
    with Live(view, console=Console(stderr=True), refresh_per_second=8):
        yield view.tell


def check_port(port: int, *, serve: bool) -> None:
    """Refuse `--port` without `--serve`."""
    if port and not serve:
        raise OptionError(
            "--port: is the port of the page of --serve; add --serve, or leave --port out"
        )


@contextmanager
def serving_run(study: Path, *, serve: bool, port: int) -> Iterator[RunPage | None]:
    """Serve a page that follows a run, if `serve`; after the run it stays, with the report.

    If the run fails, the page shows the same error as the terminal, and stays for whoever follows.
    """
    check_port(port, serve=serve)
    if not serve:
        yield None
        return
    page = RunPage(read_study(study)[0])
    with PageServer(page, port) as server:
        typer.echo(f"fedopl: the run can be followed at {server.address}", err=True)
        try:
            yield page
        except FedoplError as error:
            typer.echo(f"fedopl: {error}", err=True)
            page.fail(str(error))
            if server.was_followed.wait(COMING_SECONDS):
                _stay(server, "what went wrong")
            raise typer.Exit(1) from None
        _stay(server, "the report")


def watch_of(page: RunPage | None) -> Watch:
    """A watch that updates the terminal, and the page if there is one."""
    if page is None:
        return watched

    @contextmanager
    def both(study: Study, clients: tuple[str, ...], n_expected: int) -> Iterator[Progress | None]:
        page.begin(clients, n_expected)
        with watched(study, clients, n_expected) as drawn:

            def tell(latest: Round) -> None:
                page.tell(latest)
                if drawn is not None:
                    drawn(latest)

            yield tell

    return both


def _stay(server: PageServer, what: str) -> None:
    """Keep serving until Ctrl-C; without a terminal, until a browser has read the result."""
    if not sys.stderr.isatty():
        server.end_was_read.wait(MOST_SECONDS)
        return
    typer.echo(f"fedopl: {what} is served at {server.address} until Ctrl-C", err=True)
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
