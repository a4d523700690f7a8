"""`fedopl reproduce`: the paper's experiments."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from fedopl.cli.arguments import AsJson
from fedopl.cli.printing import say_paths

if TYPE_CHECKING:
    from fedopl.reproduction.run_cells import CellProgress


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
