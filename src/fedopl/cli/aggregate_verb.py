"""`fedopl aggregate`: a node that adds up other clients' answers, over HTTPS."""

from pathlib import Path
from typing import Annotated

import typer

from fedopl.cli.arguments import StudyOption
from fedopl.cli.flower_verbs import Arrival
from fedopl.cli.https_verbs import need_https, say_line
from fedopl.cli.signals import stop_when_told


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
