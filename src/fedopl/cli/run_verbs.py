"""Verbs that learn: demo, run, evaluate, join and leave after a run, reproduce the paper."""

import re
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from fedopl.base.errors import OptionError
from fedopl.cli.arguments import (
    AsJson,
    ClientPath,
    ClientsFolder,
    Port,
    Resume,
    RunFolder,
    Serve,
    StudyOption,
    StudyPath,
    Threads,
)
from fedopl.cli.printing import note, resumable, say_paths

if TYPE_CHECKING:
    from fedopl.reproduction.run_cells import CellProgress


def demo(
    folder: Annotated[
        Path | None,
        typer.Argument(help="where to write; created if missing; default: fedopl-demo"),
    ] = None,
    *,
    data: Annotated[
        Literal["hospitals", "three-hospitals", "rand-hie"],
        typer.Option(help="eight made-up hospitals, three, or the RAND experiment"),
    ] = "hospitals",
    private: Annotated[
        bool,
        typer.Option("--private", help="with differential privacy (ε = 2) and secure aggregation"),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a complete example, run it, and name the report."""
    from fedopl.cli.following import watched
    from fedopl.cli.run_summary import report_run, say_demo
    from fedopl.demo.writing import write_demo
    from fedopl.engines.run import run as run_folders

    if private and data != "hospitals":
        raise OptionError(
            f"--private: is for the eight hospitals, and not for {data}; leave it out"
        )
    folder = folder or Path("fedopl-demo-private" if private else "fedopl-demo")
    study = write_demo(folder, "private-hospitals" if private else data)
    note(f"The example is in {folder}: {study}, and a folder for each client.")
    clients, out = folder / "clients", folder / "run"
    with _resumable(study, clients, out):
        # With `resume`, the demo can be called again in the same folder.
        finished = run_folders(study, clients, out=out, resume=True, watch=watched)
        if data == "hospitals" and not as_json:
            say_demo(finished, clients, out)
        else:
            report_run(finished, out, as_json=as_json)


def run(
    study: StudyPath = Path("study.toml"),
    *,
    clients: ClientsFolder = Path("clients"),
    out: Annotated[
        Path | None, typer.Option(help="the run's folder; default: runs/NAME of the study")
    ] = None,
    resume: Resume = False,
    threads: Threads = 1,
    serve: Serve = False,
    port: Port = 0,
    as_json: AsJson = False,
) -> None:
    """Learn one policy from everybody's data, value it, and write a report."""
    from fedopl.cli.following import serving_run, watch_of
    from fedopl.cli.run_summary import report_run
    from fedopl.engines.run import run as run_folders

    folder = out or default_folder(study)
    with serving_run(study, serve=serve, port=port) as page, _resumable(study, clients, folder):
        finished = run_folders(
            study, clients, out=folder, resume=resume, threads=threads, watch=watch_of(page)
        )
        report_run(finished, folder, as_json=as_json, page=page)


def _resumable(study: Path, clients: Path, folder: Path) -> AbstractContextManager[None]:
    return resumable("run", study, "--clients", clients, "--out", folder, "--resume")


def default_folder(study: Path) -> Path:
    """The default folder of a run: runs/NAME, with the name of the study."""
    from fedopl.study.study_file import read_study

    name = read_study(study)[0].name
    return Path("runs") / (re.sub(r"[^\w-]+", "-", name.lower()).strip("-") or "study")


def evaluate(
    policies: Annotated[
        list[Path],
        typer.Argument(
            metavar="POLICY",
            help="policy.json files or run folders; the first is compared with the others",
        ),
    ],
    *,
    study: StudyOption = Path("study.toml"),
    clients: ClientsFolder = Path("clients"),
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """Value saved policies on rows that they were not learned from, as paired differences."""
    from fedopl.cli.following import watched
    from fedopl.cli.run_summary import say_run
    from fedopl.engines.run import evaluate as evaluate_folders
    from fedopl.policies.kinds import load_policy

    named = {str(p): load_policy(p / "policy.json" if p.is_dir() else p) for p in policies}
    _note_other_studies(policies, study)
    valued = evaluate_folders(named, study, clients, threads=threads, watch=watched)
    say_run(valued, None, as_json=as_json)


def _note_other_studies(policies: list[Path], study: Path) -> None:
    """Note which policies come from other studies: they may have learned from rows valued here.

    If the study holds nothing out, a policy of its own has learned from all rows valued here.
    """
    from fedopl.results.files.run_folder import load_record
    from fedopl.study.study_file import read_study

    agreed, _ = read_study(study)
    for policy in policies:
        run = policy if policy.is_dir() else policy.parent
        if not (run / "run.json").is_file():
            continue
        is_other = load_record(run).study.before_screening != agreed
        if not is_other and agreed.evaluation.is_cross_fitted:
            raise OptionError(
                f"{policy}: was learned in this study, from all of the rows that would value it. "
                f"What policies learned in this way are worth is in the report of {run}. To value "
                "this one, take rows that it was not learned from"
            )
        if is_other:
            typer.echo(
                f"fedopl: note: {policy}: was learned in another study, which held out other "
                "rows, or none. If these are the same clients, the policy has learned from most of "
                "the rows that value it here. It may then look better than it is",
                err=True,
            )


def join(
    run: RunFolder,
    client: ClientPath,
    *,
    share: Annotated[
        float | None,
        typer.Option(help="of the mixture, where that gives every client a share"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="the new run's folder; default: RUN+CLIENT")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add a client to a finished run; it alone is asked, and the policy is solved again."""
    from fedopl.cli.run_summary import report_run
    from fedopl.engines.run import join_folder

    report_run(*join_folder(run, client, share=share, out=out), as_json=as_json)


def leave(
    run: RunFolder,
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="the name of a client in it")],
    *,
    out: Annotated[
        Path | None, typer.Option(help="the new run's folder; default: RUN-CLIENT")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Take a client out of a finished run; solves the policy again and asks no client."""
    from fedopl.cli.run_summary import report_run
    from fedopl.engines.run import leave_folder

    report_run(*leave_folder(run, client, out=out), as_json=as_json)


Experiment = Literal["homogeneous", "heterogeneous", "skewed", "client-2", "all"]
ReadingChoice = Literal["variance", "sd", "both"]  # how to read the paper's σ² and ρ²


def reproduce(
    experiment: Annotated[Experiment, typer.Argument(help="which figure")] = "all",
    *,
    reading: Annotated[
        ReadingChoice, typer.Option(help="whether printed squares are variances or sds")
    ] = "both",
    pipeline: Annotated[
        Literal["default", "paper"],
        typer.Option(help="fedopl's defaults, or the paper's own models and oracle"),
    ] = "default",
    seeds: Annotated[int, typer.Option(min=1, help="number of draws for each figure")] = 5,
    draws: Annotated[
        int,
        typer.Option(min=0, help="number of draws for the claims; 0 leaves them out, 40 decide"),
    ] = 0,
    rows: Annotated[
        int, typer.Option(min=100, help="leave out sizes above this", metavar="N")
    ] = 10_000,
    out: Annotated[
        Path, typer.Option(help="where to write; an interrupted run continues there")
    ] = Path("reproduction"),
    workers: Annotated[
        int | None, typer.Option(min=1, help="number of processes; default: all cores")
    ] = (None),
    as_json: AsJson = False,
) -> None:
    """Regenerate the paper's figures, and judge its claims."""
    from fedopl.reproduction.run_cells import Scope, run_reproduction

    everything = [name for name in get_args(Experiment) if name != "all"]
    scope = Scope(
        experiments=everything if experiment == "all" else [experiment],
        readings=["variance", "sd"] if reading == "both" else [reading],
        pipeline=pipeline,
        n_seeds=seeds,
        n_draws=draws,
        most_rows=rows,
    )
    say_paths(run_reproduction(scope, out, _tell, workers), as_json=as_json)


def _tell(progress: "CellProgress") -> None:
    """Print progress on a terminal, in a line that is overwritten; otherwise print nothing."""
    if not sys.stderr.isatty():
        return
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    end = "\n" if progress.done == progress.total else ""
    text = f"\r{progress.done} of {progress.total} cells, about {minutes}:{seconds:02d} left "
    typer.echo(text + end, nl=False, err=True)
