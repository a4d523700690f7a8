"""`--serve`: a page on this machine that follows a run or a client, until its reader is done."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedopl.base.errors import FedoplError, OptionError
from fedopl.cli.live import watched

if TYPE_CHECKING:
    from fedopl.engines.run import Watch
    from fedopl.live.page_server import PageServer
    from fedopl.live.run_page import RunPage
    from fedopl.results.round import Round
    from fedopl.server.exchange.conversation import Progress
    from fedopl.study.study import Study

Serve = Annotated[
    bool,
    typer.Option(
        "--serve", help="also show the run on a page of this machine, which turns into the report"
    ),
]
Port = Annotated[
    int, typer.Option(min=0, max=65535, help="of the page that --serve serves; 0: a free one")
]
# Where no terminal is there to press Ctrl-C in, pages end by themselves.
MOST_SECONDS = 600.0


def check_port(port: int, *, serve: bool) -> None:
    """Refuse a port where nothing is served."""
    if port and not serve:
        raise OptionError("--port: is that of the page of --serve; add --serve, or leave it out")


@contextmanager
def serving_run(study: Path, *, serve: bool, port: int) -> Iterator["RunPage | None"]:
    """A page that follows a run, if one is wanted; it stays after the run, with its report.

    If the run fails, the page says so in the words of the terminal, and stays as well.
    """
    check_port(port, serve=serve)
    if not serve:
        yield None
        return
    from fedopl.live.page_server import PageServer
    from fedopl.live.run_page import RunPage
    from fedopl.study.study_file import read_study

    page = RunPage(read_study(study)[0])
    with PageServer(page, port) as server:
        typer.echo(f"fedopl: the run can be followed at {server.address}", err=True)
        try:
            yield page
        except FedoplError as error:
            typer.echo(f"fedopl: {error}", err=True)
            page.fail(str(error))
            _stay(server, "what went wrong")
            raise typer.Exit(1) from None
        _stay(server, "the report")


def watch_of(page: "RunPage | None") -> "Watch":
    """A watch for the terminal, and for the page if there is one."""
    if page is None:
        return watched

    @contextmanager
    def both(
        study: "Study", clients: tuple[str, ...], n_expected: int
    ) -> "Iterator[Progress | None]":
        page.begin(clients, n_expected)
        with watched(study, clients, n_expected) as drawn:

            def tell(latest: "Round") -> None:
                page.tell(latest)
                if drawn is not None:
                    drawn(latest)

            yield tell

    return both


def _stay(server: "PageServer", what: str) -> None:
    """Go on serving: until Ctrl-C, or, without a terminal, until it was read."""
    if not sys.stderr.isatty():
        server.end_was_read.wait(MOST_SECONDS)
        return
    typer.echo(f"fedopl: {what} is served at {server.address} until Ctrl-C", err=True)
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
