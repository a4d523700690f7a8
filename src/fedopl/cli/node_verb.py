"""`fedopl node`: one client's node of a federation, and its owner's page."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedopl.base.errors import OptionError
from fedopl.cli.arguments import ClientPath, StudyOption
from fedopl.cli.serving import Port, check_port
from fedopl.cli.signals import stop_when_told

if TYPE_CHECKING:
    from fedopl.client.client_file import Client


def node(
    client: ClientPath,
    *,
    superlink: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="the server's SuperLink; without it, only --serve's page"
        ),
    ] = None,
    study: StudyOption = Path("study.toml"),
    ca: Annotated[Path, typer.Option(help="the certificate of the server's CA")] = Path(
        "keys/ca.crt"
    ),
    key: Annotated[
        Path | None, typer.Option(help="the client's private key; keys/NAME.key if not said")
    ] = None,
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
    """Run a client's Flower node, or serve its owner's page, or both."""
    from fedopl.client.client_file import read_client

    check_port(port, serve=serve)
    if superlink is None and not serve:
        raise OptionError(
            "node: say --superlink HOST:PORT to run a node, --serve to serve its owner's page, or "
            "both"
        )
    stop_when_told()
    here = read_client(client)
    here.check_folder()
    with ExitStack() as parts:
        if serve:
            parts.enter_context(_owners_page(here, port))
        else:
            here.check_approvals()
        if superlink is None:
            threading.Event().wait()
        else:
            _run_node(here, superlink, study, ca, key or Path("keys") / f"{here.name}.key")


@contextmanager
def _owners_page(client: "Client", port: int) -> Iterator[None]:
    """The client's page, as a context; its address is said."""
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


def _run_node(client: "Client", superlink: str, study: Path, ca: Path, key: Path) -> None:
    if find_spec("flwr") is None:
        raise OptionError("flwr is not installed; pip install 'fedopl[flower]'")
    from fedopl.engines.flower_node import FlowerNode, NodeFiles
    from fedopl.study.study_file import read_study

    read_study(study)  # or an error before anything is started
    files = NodeFiles(client=client.path.parent, study=study, ca=ca, key=key)
    with FlowerNode(superlink, files) as running:
        running.wait()
