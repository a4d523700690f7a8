"""Verbs of a federation: `certificates`, `server`, `flower`, `node` and `aggregate`.

`node` answers for a client, and serves its owner's page; `aggregate` adds up others' answers.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedopl.base.errors import OptionError
from fedopl.cli.arguments import (
    Arrival,
    AsJson,
    ClientPath,
    ClientsFolder,
    Deadline,
    Port,
    Resume,
    Serve,
    StudyOption,
    StudyPath,
)
from fedopl.cli.printing import note, resumable, say_paths, stop_when_told
from fedopl.cli.run_verbs import default_folder

if TYPE_CHECKING:
    from fedopl.client.client_file import Client

PACKAGES = ("httpx", "starlette", "uvicorn")


def certificates(
    folder: Annotated[Path, typer.Argument(help="where to write")] = Path("keys"),
    *,
    host: Annotated[
        list[str] | None, typer.Option(help="the server's name or address; may be repeated")
    ] = None,
    client: Annotated[
        list[str] | None,
        typer.Option(help="make this client's key and certificate; may be repeated"),
    ] = None,
    for_flower: Annotated[
        bool,
        typer.Option("--flower", help="make clients' keys for Flower: NAME.key and NAME.pub"),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make keys and certificates for a federation over HTTPS or Flower.

    At the server, with --host: ca.crt, which every client gets, and the server's own. At a client,
    with --client: NAME.key, which stays there, and NAME.crt, which the server gets. With --flower,
    the server registers NAME.pub instead.
    """
    from fedopl.engines.network.certificates import (
        make_certificates,
        make_client_certificate,
        make_client_key,
    )

    if not host and not client:
        raise OptionError("certificates: say --host of the server, or --client, or both")
    written = make_certificates(folder, host) if host else []
    make_own = make_client_key if for_flower else make_client_certificate
    for name in client or ():
        written += make_own(folder, name)
    say_paths(written, as_json=as_json)


def server(
    study: StudyPath = Path("study.toml"),
    *,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="where clients call")
    ] = "127.0.0.1:8443",
    keys: Annotated[
        Path,
        typer.Option(
            "--certificates",
            help="the folder of server.crt, server.key and NAME.crt of each client",
        ),
    ] = Path("keys"),
    out: Annotated[
        Path | None, typer.Option(help="the run's folder; runs/NAME of the study if not said")
    ] = None,
    resume: Resume = False,
    join: Annotated[
        Path | None, typer.Option(help="a finished run that these clients join")
    ] = None,
    arrival: Arrival = 120.0,
    deadline: Deadline = 120.0,
    serve: Serve = False,
    port: Port = 0,
    as_json: AsJson = False,
) -> None:
    """Run the study with clients that call over HTTPS, each with `fedopl node`.

    Those take part whose certificate NAME.crt is in the folder of certificates. Nothing is started
    at clients, and nothing calls them.
    """
    need_https()
    from fedopl.cli.following import serving_run, watch_of
    from fedopl.cli.run_summary import report_run
    from fedopl.engines.https.https_server import run_over_https

    stop_when_told()
    folder = out or default_folder(study)
    more = ("--join", join) if join else ()
    again = ("server", study, "--listen", listen, "--certificates", keys, "--out", folder, *more)
    with serving_run(study, serve=serve, port=port) as page, resumable(*again, "--resume"):
        record = run_over_https(
            study,
            certificates=keys,
            listen=listen,
            out=folder,
            resume=resume,
            join=join,
            arrival=arrival,
            deadline=deadline,
            watch=watch_of(page),
            tell=say_line,
        )
        report_run(record, folder, as_json=as_json, page=page)


def say_line(text: str) -> None:
    """Print a line for a log, as both verbs run for a long time without a person watching."""
    typer.echo(f"fedopl: {text}", err=True)


def need_https() -> None:
    """Refuse to continue if the packages of the extra `https` are not installed."""
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise OptionError(f"{', '.join(missing)}: not installed; pip install 'fedopl[https]'")


flower = typer.Typer(
    help="A real federation over Flower: prepared for many machines, or tried on this one.",
    no_args_is_help=True,
)


@flower.command("app")
def write_app(
    folder: Annotated[Path, typer.Argument(help="where to write; made if it is not there")],
    *,
    study: StudyOption = Path("study.toml"),
    clients: Annotated[str, typer.Option(help="names of the clients, with commas between")],
    out: Annotated[Path, typer.Option(help="the run's folder, at the server")] = Path("run"),
    join: Annotated[
        Path | None, typer.Option(help="a finished run, at the server, that these clients join")
    ] = None,
    arrival: Arrival = 120.0,
    deadline: Deadline = 120.0,
    as_json: AsJson = False,
) -> None:
    """Write a Flower App that `flwr run` accepts."""
    from fedopl.engines.flower.flower_study import write_flower_app

    names = [name.strip() for name in clients.split(",") if name.strip()]
    written = write_flower_app(
        folder, study, names, out=out, arrival=arrival, deadline=deadline, join=join
    )
    say_paths(written, as_json=as_json)


@flower.command()
def up(
    study: StudyPath = Path("study.toml"),
    *,
    clients: ClientsFolder = Path("clients"),
    out: Annotated[Path, typer.Option(help="the run's folder")] = Path("runs/flower"),
    resume: Resume = False,
    arrival: Arrival = 120.0,
    deadline: Deadline = 120.0,
    serve: Serve = False,
    port: Port = 0,
    as_json: AsJson = False,
) -> None:
    """Run the study with a SuperLink and a SuperNode for each client, all on this machine."""
    need_flower()
    from fedopl.cli.following import serving_run
    from fedopl.cli.run_summary import report_run
    from fedopl.client.client_file import read_clients
    from fedopl.engines.flower.flower_study import run_over_flower
    from fedopl.engines.run import check_folder
    from fedopl.server.exchange_counts import expected_exchanges, expected_trips
    from fedopl.study.study_file import read_study

    stop_when_told()
    agreed, _ = read_study(study)
    check_folder(out, agreed, resume=resume)
    taking_part = read_clients(clients)
    trips = expected_trips(agreed, len(taking_part))
    note(f"{trips} trips at most, of 3 to 12 s each: {trips * 3} to {trips * 12} s, and the start")
    again = ("flower", "up", study, "--clients", clients, "--out", out, "--resume")
    with serving_run(study, serve=serve, port=port) as page, resumable(*again):

        def tell(text: str) -> None:
            note(text)
            if page is not None:
                page.note(text)

        if page is not None:
            names = tuple(sorted(taking_part))
            page.begin(names, expected_exchanges(agreed, len(names)))
        record = run_over_flower(
            study,
            taking_part,
            out=out,
            arrival=arrival,
            deadline=deadline,
            tell=tell,
            progress=None if page is None else page.tell,
        )
        report_run(record, out, as_json=as_json, page=page)


def need_flower() -> None:
    """Refuse to continue if Flower is not installed."""
    if find_spec("flwr") is None:
        raise OptionError("flwr is not installed; pip install 'fedopl[flower]'")


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
    from fedopl.engines.flower.local_federation import FlowerNode, NodeFiles
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
