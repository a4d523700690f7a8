"""`fedopl certificates`, `server`, `node`: a federation over HTTPS, for sites without Flower."""

import re
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from fedopl.base.errors import OptionError
from fedopl.cli.arguments import AsJson, Resume, StudyOption, StudyPath
from fedopl.cli.flower_verbs import Arrival, Deadline
from fedopl.cli.live import watched
from fedopl.cli.printing import resumable, say_paths
from fedopl.cli.run_summary import say_run

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
    as_json: AsJson = False,
) -> None:
    """Make keys and certificates for `fedopl server` and `fedopl node`.

    At the server, with --host: ca.crt, which every client gets, and the server's own. At a client,
    with --client: NAME.key, which stays there, and NAME.crt, which the server gets.
    """
    from fedopl.engines.certificates import make_certificates, make_client_certificate

    if not host and not client:
        raise OptionError("certificates: say --host of the server, or --client, or both")
    written = make_certificates(folder, host) if host else []
    for name in client or ():
        written += make_client_certificate(folder, name)
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
    as_json: AsJson = False,
) -> None:
    """Run the study with clients that call over HTTPS, each with `fedopl node`.

    Those take part whose certificate NAME.crt is in the folder of certificates. Nothing is started
    at clients, and nothing calls them.
    """
    _need_packages()
    from fedopl.engines.https_run import run_over_https
    from fedopl.report.page import write_report
    from fedopl.study.study_file import read_study

    _end_on_signals()
    folder = out or Path("runs") / _slug(read_study(study)[0].name)
    more = ("--join", join) if join else ()
    with resumable(
        *("server", study, "--listen", listen, "--certificates", keys),
        *("--out", folder, *more, "--resume"),
    ):
        record = run_over_https(
            study,
            certificates=keys,
            listen=listen,
            out=folder,
            resume=resume,
            join=join,
            arrival=arrival,
            deadline=deadline,
            watch=watched,
            tell=_say,
        )
        report = write_report(record, folder / "report.html")
    say_run(record, report, as_json=as_json)


def node(
    *,
    url: Annotated[
        str, typer.Option("--server", metavar="URL", help="the server, https://HOST:PORT")
    ],
    client: Annotated[Path, typer.Option(help="the client's folder, or its client.toml")] = Path(),
    study: StudyOption = Path("study.toml"),
    keys: Annotated[
        Path,
        typer.Option(
            "--certificates", help="the folder of ca.crt, and NAME.crt and NAME.key of the client"
        ),
    ] = Path("keys"),
    patience: Annotated[
        float, typer.Option(min=1, help="seconds without the server after which to give up")
    ] = 86400.0,
) -> None:
    """Answer the questions of `fedopl server` for one client, until its run is over.

    It only calls out, to the one address. It tries again by itself where the server or the network
    is away, and it can be stopped and started at any time.
    """
    _need_packages()
    from fedopl.engines.https_node import run_node

    _end_on_signals()
    run_node(url, client, study, certificates=keys, patience=patience, tell=_say)
    _say(f"the run is over; what left: fedopl ledger {client}")


def _say(text: str) -> None:
    """A line for a log: both verbs are left alone for a long time."""
    typer.echo(f"fedopl: {text}", err=True)


def _slug(name: str) -> str:
    return re.sub(r"[^\w-]+", "-", name.lower()).strip("-") or "study"


def _need_packages() -> None:
    missing = [package for package in PACKAGES if find_spec(package) is None]
    if missing:
        raise OptionError(f"{', '.join(missing)}: not installed; pip install 'fedopl[https]'")


def _end_on_signals() -> None:
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):  # Windows has but one of them
            signal.signal(getattr(signal, name), _stop)


def _stop(number: int, _frame: FrameType | None) -> None:
    """End as Ctrl-C does."""
    sys.exit(128 + number)
