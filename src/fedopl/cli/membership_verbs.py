"""Verbs for clients that come after a run, or leave it: join, leave."""

from pathlib import Path
from typing import Annotated

import typer

from fedopl.cli.arguments import AsJson, ClientPath, RunFolder
from fedopl.cli.run_summary import say_run

OutJoined = Annotated[
    Path | None, typer.Option("--out", help="the new run's folder; default: RUN+CLIENT")
]
OutLeft = Annotated[
    Path | None, typer.Option("--out", help="the new run's folder; default: RUN-CLIENT")
]


def join(
    run: RunFolder,
    client: ClientPath,
    *,
    share: Annotated[
        float | None,
        typer.Option(help="of the mixture, where that gives every client a share"),
    ] = None,
    out: OutJoined = None,
    as_json: AsJson = False,
) -> None:
    """Add a client to a finished run; it alone is asked, and the policy is solved again."""
    from fedopl.engines.join_and_leave import join_folder
    from fedopl.report.page import write_report

    joined, folder = join_folder(run, client, share=share, out=out)
    say_run(joined, write_report(joined, folder / "report.html"), as_json=as_json)


def leave(
    run: RunFolder,
    client: Annotated[str, typer.Argument(metavar="CLIENT", help="the name of a client in it")],
    *,
    out: OutLeft = None,
    as_json: AsJson = False,
) -> None:
    """Take a client out of a finished run; solves the policy again and asks no client."""
    from fedopl.engines.join_and_leave import leave_folder
    from fedopl.report.page import write_report

    left, folder = leave_folder(run, client, out=out)
    say_run(left, write_report(left, folder / "report.html"), as_json=as_json)
