"""Verbs that learn: demo, run, evaluate."""

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedopl.cli.arguments import AsJson, ClientsFolder, StudyPath, Threads
from fedopl.cli.live import watched
from fedopl.cli.printing import note, say, say_json

if TYPE_CHECKING:
    from fedopl.engines.runs import Run
    from fedopl.study import Study


class DemoData(StrEnum):
    """What the demo learns from."""

    hospitals = "hospitals"
    rand_hie = "rand-hie"


def demo(
    folder: Annotated[Path, typer.Argument(help="where to write; made if it is not there")] = Path(
        "fedopl-demo"
    ),
    *,
    data: Annotated[
        DemoData, typer.Option(help="three made-up hospitals, or the RAND experiment")
    ] = DemoData.hospitals,
    as_json: AsJson = False,
) -> None:
    """Write a complete example, run it, and name the report."""
    from fedopl.demo.writing import write_demo

    study = write_demo(folder, data.value)
    note(f"The example is in {folder}: {study}, and a folder for each client.")
    run(study, clients=folder / "clients", out=folder / "run", resume=True, as_json=as_json)


def run(
    study: StudyPath = Path("study.toml"),
    *,
    clients: ClientsFolder = Path("clients"),
    out: Annotated[
        Path | None, typer.Option(help="the run's folder; runs/NAME of the study if not said")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="go on with what is in the folder")
    ] = False,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Learn one policy from everybody's data, value it, and write a report."""
    from fedopl.client.client_file import read_clients
    from fedopl.engines.folders import open_clients, run_with_clients
    from fedopl.files import write_atomically
    from fedopl.report.page import write_report
    from fedopl.server.federation import expected_exchanges
    from fedopl.study_file import read_study

    agreed, candidates = read_study(study)
    folder = out or Path("runs") / _slug(agreed.name)
    _check_folder(folder, resume=resume)
    opened = open_clients(agreed, read_clients(clients))
    write_atomically(folder / "study.toml", study.read_bytes())
    with watched(agreed, tuple(sorted(opened.doors)), expected_exchanges(agreed)) as tell:
        finished = run_with_clients(
            agreed,
            opened,
            policies=candidates,
            journal=folder / "exchanges",
            threads=threads,
            progress=tell,
        )
    finished.save(folder)
    report = write_report(finished, folder / "report.html")
    _say_run(finished, report, as_json=as_json)


def _slug(name: str) -> str:
    return re.sub(r"[^\w-]+", "-", name.lower()).strip("-") or "study"


def _check_folder(folder: Path, *, resume: bool) -> None:
    from fedopl.errors import StorageError

    if folder.exists() and not folder.is_dir():
        raise StorageError(f"{folder}: is a file; choose another folder with --out")
    if not resume and folder.is_dir() and any(folder.iterdir()):
        raise StorageError(
            f"{folder}: is not empty; --resume goes on with the run in it, --out names another"
        )


def _say_run(finished: "Run", report: Path, *, as_json: bool) -> None:
    if as_json:
        say_json(run_as_json(finished) | {"report": str(report)})
        return
    say(str(finished))
    say(_refusals_as_text(finished))
    say(f"The report is {report}")


def _refusals_as_text(finished: "Run") -> str:
    from fedopl.server.refusals import in_words

    lines = [
        f"{name} did not answer exchange {exchange} ({why}): {in_words(why).why}. "
        f"{in_words(why).remedy}"
        for exchange, name, why in finished.refusals
    ]
    return "\n".join(["", *lines, ""] if lines else [""])


def run_as_json(finished: "Run") -> dict[str, Any]:
    """A run for programs: the verdict, every value and gain, and how it went."""
    return {
        "study": finished.study.name,
        "digest": finished.study.digest.hex(),
        "verdict": finished.verdict,
        "chosen": finished.chosen,
        "best_arm": finished.best_arm,
        "mixture": finished.mixture,
        "rows": finished.rows,
        "values": [
            {
                "policy": row.policy,
                "client": row.client,
                **vars(row.estimate),
                "interval": row.interval,
            }
            for row in finished.values.rows
        ],
        "gains": [
            {
                "against": row.against,
                "client": row.client,
                **vars(row.estimate),
                "interval": row.interval,
            }
            for row in finished.gains.rows
        ],
        "exchanges": len(finished.rounds),
        "bytes_received": sum(latest.bytes_received for latest in finished.rounds),
        "refusals": [
            {"exchange": exchange, "client": name, "why": why}
            for exchange, name, why in finished.refusals
        ],
    }


def evaluate(
    policies: Annotated[
        list[Path],
        typer.Argument(metavar="POLICY...", help="saved policies; the first is compared"),
    ],
    *,
    study: Annotated[Path, typer.Option(help="the study file")] = Path("study.toml"),
    clients: ClientsFolder = Path("clients"),
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Value saved policies on everybody's held-out rows, as paired differences."""
    from fedopl.client.client_file import read_clients
    from fedopl.engines.folders import evaluate_with_clients, open_clients
    from fedopl.policies.kinds import load_policy
    from fedopl.study_file import read_study

    agreed, _ = read_study(study)
    named = {str(path): load_policy(path) for path in policies}
    opened = open_clients(agreed, read_clients(clients))
    with watched(agreed, tuple(sorted(opened.doors)), _exchanges_to_evaluate(agreed)) as tell:
        valued = evaluate_with_clients(agreed, opened, named, threads=threads, progress=tell)
    if as_json:
        say_json(run_as_json(valued))
    else:
        say(str(valued))
        say(_refusals_as_text(valued))


def _exchanges_to_evaluate(study: "Study") -> int:
    return 3 + (study.nuisances.kind == "federated") + study.describe
