"""`fedopl node` answers for a client, and serves its owner's page; `fedopl aggregate` adds up."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedopl.base.errors import OptionError
from fedopl.cli.arguments import Arrival, ClientPath, Port, StudyOption
from fedopl.cli.flower_verbs import need_flower
from fedopl.cli.https_verbs import need_https, say_line
from fedopl.cli.printing import stop_when_told

if TYPE_CHECKING:
    from fedopl.client.client_file import Client


def node(
    client: ClientPath = Path(),
    *,
    server: Annotated[
        str | None, typer.Option(metavar="URL", help="the address of `fedopl server`")
    ] = None,
    superlink: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="the server's SuperLink, over Flower")
    ] = None,
    study: StudyOption = Path("study.toml"),
    certificates: Annotated[
        Path,
        typer.Option(help="the folder of ca.crt, and of the client's NAME.key and NAME.crt"),
    ] = Path("keys"),
    patience: Annotated[
        float, typer.Option(min=1, help="with --server: seconds without it until giving up")
    ] = 86400.0,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="serve the owner's page on this machine: what is asked and answered; refuse, "
            "pause, and approve by hand",
        ),
    ] = False,
    port: Port = 0,
) -> None:
    """Answer a server's queries for one client, or serve the page of its owner, or both.

    With --server it calls `fedopl server` over HTTPS, until the run is over. With --superlink it is
    a node of Flower. It only calls out, and can be stopped and started at any time.
    """
    from fedopl.cli.following import check_port
    from fedopl.client.client_file import read_client

    check_port(port, serve=serve)
    if server is not None and superlink is not None:
        raise OptionError("node: --server is for HTTPS, --superlink for Flower; say one of them")
    if server is None and superlink is None and not serve:
        raise OptionError(
            "node: say --server URL or --superlink HOST:PORT to answer queries, --serve to serve "
            "the page of the client's owner, or both"
        )
    if server is not None:
        need_https()
    stop_when_told()
    here = read_client(client)
    here.check_folder()
    if not serve:
        here.check_approvals()
    run: Callable[[], object] = threading.Event().wait
    # Missing files are named before an owner is told of a page that would end at once.
    if server is not None:
        run = _caller(server, client, study, certificates, patience)
    elif superlink is not None:
        run = _flower_node(here, superlink, study, certificates)
    with _owners_page(here, port) if serve else nullcontext():
        run()


@contextmanager
def _owners_page(client: "Client", port: int) -> Iterator[None]:
    """Serve the client's page within a `with` block; prints its address."""
    from fedopl.live.client_page import ClientPage
    from fedopl.live.page_server import PageServer

    ended, page = threading.Event(), ClientPage(client)
    with client.approvals().serving(), PageServer(page, port) as server:
        following = threading.Thread(target=page.follow, args=(ended,), daemon=True)
        following.start()
        typer.echo(f"fedopl: the page of {client.name} is at {server.address}", err=True)
        try:
            yield
        finally:
            ended.set()
            following.join()


def _caller(
    server: str, client: Path, study: Path, certificates: Path, patience: float
) -> Callable[[], None]:
    """A function that answers the server's queries until the run is over; checks files first."""
    from fedopl.engines.https.https_node import checked_files, run_node

    checked_files(server, client, study, certificates)

    def call() -> None:
        run_node(server, client, study, certificates=certificates, patience=patience, tell=say_line)
        say_line(f"the run is over; what left: fedopl ledger {client}")

    return call


def _flower_node(
    client: "Client", superlink: str, study: Path, certificates: Path
) -> Callable[[], None]:
    """A function that runs a node of Flower until it ends; checks files first."""
    need_flower()
    from fedopl.engines.flower.flower_node import FlowerNode, NodeFiles
    from fedopl.study.study_file import read_study

    read_study(study)
    files = NodeFiles(
        client=client.path.parent,
        study=study,
        ca=certificates / "ca.crt",
        key=certificates / f"{client.name}.key",
    )

    def run() -> None:
        with FlowerNode(superlink, files) as running:
            running.wait()

    return run


def aggregate(
    folder: Annotated[
        Path, typer.Argument(help="the aggregator's folder, or its aggregator.toml")
    ] = Path(),
    *,
    server: Annotated[
        str, typer.Option(metavar="URL", help="the address of `fedopl server`, or of an aggregator")
    ],
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="where members call")
    ] = "127.0.0.1:8444",
    study: StudyOption = Path("study.toml"),
    certificates: Annotated[
        Path,
        typer.Option(help="the folder of ca.crt, and of the aggregator's NAME.key and NAME.crt"),
    ] = Path("keys"),
    members: Annotated[
        Path, typer.Option(help="the folder of server.crt, server.key and NAME.crt of each member")
    ] = Path("members"),
    arrival: Arrival = 120.0,
    patience: Annotated[
        float, typer.Option(min=1, help="seconds without the server until giving up")
    ] = 86400.0,
) -> None:
    """Add up the answers of members that call over HTTPS, and send the sums to a server.

    Members run `fedopl node --server` with this address. What they answer is added up here, and
    nobody above sees any member's own answer.
    """
    need_https()
    from fedopl.engines.https.https_aggregate import run_aggregator

    stop_when_told()
    run_aggregator(
        server,
        folder,
        study,
        certificates=certificates,
        listen=listen,
        members=members,
        arrival=arrival,
        patience=patience,
        tell=say_line,
    )
    say_line(f"the run is over; what left: fedopl ledger {folder}")
