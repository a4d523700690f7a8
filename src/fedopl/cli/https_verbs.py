"""`fedopl certificates` for any network, and `server`: a federation over plain HTTPS."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedopl.base.errors import OptionError
from fedopl.cli.arguments import Arrival, AsJson, Deadline, Port, Resume, Serve, StudyPath
from fedopl.cli.printing import resumable, say_paths, stop_when_told
from fedopl.cli.run_verbs import default_folder

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
