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
    from fedopl.engines.folders import run as run_folders
    from fedopl.report.page import write_report

    folder = out or _default_folder(study)
    finished = run_folders(
        study, clients, out=folder, resume=resume, threads=threads, watch=watched
    )
    _say_run(finished, write_report(finished, folder / "report.html"), as_json=as_json)


def _default_folder(study: Path) -> Path:
    from fedopl.study_file import read_study

    agreed, _ = read_study(study)
    return Path("runs") / _slug(agreed.name)


def _slug(name: str) -> str:
    return re.sub(r"[^\w-]+", "-", name.lower()).strip("-") or "study"


def _say_run(finished: "Run", report: Path, *, as_json: bool) -> None:
    if as_json:
        say_json(run_as_json(finished) | {"report": str(report)})
        return
    say(str(finished))
    say(_refusals_as_text(finished))
    note_direction(finished)
    say(f"The report is {report}")


def note_direction(finished: "Run") -> None:
    """Say what a value is where a lower outcome is better."""
    table = finished.study.table
    if table and table.direction == "lower":
        say(f"Less {table.reward} is better: values are shown as minus {table.reward}.\n")


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
    from fedopl.engines.folders import evaluate as evaluate_folders
    from fedopl.policies.kinds import load_policy

    named = {str(path): load_policy(path) for path in policies}
    valued = evaluate_folders(named, study, clients, threads=threads, watch=watched)
    if as_json:
        say_json(run_as_json(valued))
    else:
        say(str(valued))
        say(_refusals_as_text(valued))
        note_direction(valued)
