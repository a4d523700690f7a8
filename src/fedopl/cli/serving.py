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
# Without a terminal for Ctrl-C, a page ends by itself after this many seconds at most.
MOST_SECONDS = 600.0
# A run can fail while a browser is still about to open the address that was just printed.
COMING_SECONDS = 2.0


def check_port(port: int, *, serve: bool) -> None:
    """Refuse `--port` without `--serve`."""
    if port and not serve:
        raise OptionError(
            "--port: is the port of the page of --serve; add --serve, or leave --port out"
        )


@contextmanager
def serving_run(study: Path, *, serve: bool, port: int) -> Iterator["RunPage | None"]:
    """Serve a page that follows a run, if `serve`; after the run it stays, with the report.

    If the run fails, the page shows the same error as the terminal, and stays for whoever follows.
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
            if server.was_followed.wait(COMING_SECONDS):
                _stay(server, "what went wrong")
            raise typer.Exit(1) from None
        _stay(server, "the report")


def watch_of(page: "RunPage | None") -> "Watch":
    """A watch that updates the terminal, and the page if there is one."""
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
    """Keep serving until Ctrl-C; without a terminal, until a browser has read the result."""
    if not sys.stderr.isatty():
        server.end_was_read.wait(MOST_SECONDS)
        return
    typer.echo(f"fedopl: {what} is served at {server.address} until Ctrl-C", err=True)
    with suppress(KeyboardInterrupt):
        threading.Event().wait()
