"""`fedopl flower`: runs a real federation on this machine, or prepares one for many machines."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from fedopl.base.errors import OptionError
from fedopl.cli.arguments import (
    Arrival,
    AsJson,
    ClientsFolder,
    Deadline,
    Port,
    Resume,
    Serve,
    StudyOption,
    StudyPath,
)
from fedopl.cli.printing import note, resumable, say_paths, stop_when_told

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
    from fedopl.engines.flower.flower_app_folder import WaitSeconds, write_flower_app

    names = [name.strip() for name in clients.split(",") if name.strip()]
    wait = WaitSeconds(arrival=arrival, deadline=deadline)
    written = write_flower_app(folder, study, names, out=out, wait=wait, join=join)
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
    from fedopl.engines.flower.flower_app_folder import WaitSeconds
    from fedopl.engines.flower.flower_up import run_over_flower
    from fedopl.engines.run import check_folder
    from fedopl.server.exchange_counts import expected_exchanges, expected_trips
    from fedopl.study.study_file import read_study

    stop_when_told()
    agreed, _ = read_study(study)
    check_folder(out, agreed, resume=resume)
    taking_part = read_clients(clients)
    trips = expected_trips(agreed, len(taking_part))
    note(f"{trips} trips at most, of 3 to 12 s each: {trips * 3} to {trips * 12} s, and the start")
    wait = WaitSeconds(arrival=arrival, deadline=deadline)
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
            wait=wait,
            tell=tell,
            progress=None if page is None else page.tell,
        )
        report_run(record, out, as_json=as_json, page=page)


def need_flower() -> None:
    """Refuse to continue if Flower is not installed."""
    if find_spec("flwr") is None:
        raise OptionError("flwr is not installed; pip install 'fedopl[flower]'")
