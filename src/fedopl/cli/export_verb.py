"""`fedopl export`: a policy for programs without fedopl."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from fedopl.cli.arguments import AsJson, ClientHere, PolicyPath, Shared
from fedopl.cli.printing import say_paths
from fedopl.cli.saved_policy import policy_here


def export(
    policy: PolicyPath,
    *,
    to: Annotated[
        Literal["sql", "python", "excel", "onnx"],
        typer.Option(help="the format or language to write"),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="where to write; default: policy.sql, .py, .xlsx or .onnx beside it"),
    ] = None,
    column: Annotated[str, typer.Option(help="name of the column of actions")] = "action",
    table: Annotated[
        str | None, typer.Option(help="name of the table in SQL; default: rows")
    ] = None,
    client: ClientHere = None,
    shared: Shared = False,
    as_json: AsJson = False,
) -> None:
    """Write a policy for a database, for Python alone, a spreadsheet or an ONNX runtime."""
    from fedopl.base.errors import OptionError
    from fedopl.policies.export.export_file import LANGUAGES

    if table is not None and to != "sql":
        raise OptionError(f"--table: only SQL names a table; leave it out with --to {to}")
    found, settings = policy_here(policy, client, shared=shared)
    folder = policy if policy.is_dir() else policy.parent
    written = found.export(
        out or folder / f"policy{LANGUAGES[to].ending}",
        to,
        column=column,
        table=table or "rows",
        columns=settings.columns if settings else None,
        labels=settings.labels if settings else None,
    )
    say_paths([written], as_json=as_json)
