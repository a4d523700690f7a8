"""Verbs for the results of a run: its report, its policy, and what a budget buys."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedopl.base.errors import OptionError
from fedopl.cli.arguments import AsJson, ClientHere, ClientPath, PolicyPath, RunFolder, Shared
from fedopl.cli.printing import say_json, say_paths


def report(
    run: RunFolder,
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="where to write; default: report.html in the run's folder"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the report of a finished run again, and name it."""
    from fedopl.engines.runs import load_run
    from fedopl.report.page import write_report

    say_paths([write_report(load_run(run), out or run / "report.html")], as_json=as_json)


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="folders of finished runs")],
    *,
    as_json: AsJson = False,
) -> None:
    """Put runs side by side: what was set differently, and what each is worth."""
    from fedopl.engines.runs import compare_runs, load_run

    compared = compare_runs({str(path): load_run(path) for path in runs})
    if as_json:
        say_json(compared.as_json())
    else:
        typer.echo(str(compared))


def diagnose(
    run: RunFolder,
    *,
    client: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="about this client only; default: all clients"),
    ] = None,
    constant: Annotated[
        float, typer.Option(help="constant of the regret bounds, which the theorems leave open")
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Show whether joining pays: for whom, how surely, where clients differ, with which ones."""
    from fedopl.engines.runs import load_run
    from fedopl.report.joining.advising import joining_facts
    from fedopl.report.joining.joining_json import joining_json
    from fedopl.report.parts import Heading, as_text
    from fedopl.report.sections.joining import joining_parts
    from fedopl.report.sections.mixture_weights import mixture_weights

    finished = load_run(run)
    if as_json:
        say_json(joining_json(joining_facts(finished, constant, client)))
        return
    typer.echo(as_text(joining_parts(finished, constant, client)))
    if client is None:
        weights = mixture_weights(finished)
        typer.echo(f"\n{as_text((Heading(weights.title), *weights.parts))}")


def personal(run: RunFolder, client: ClientPath, *, as_json: AsJson = False) -> None:
    """Show what a client's personal policy is worth, at the client, where it may not leave.

    For runs with differential privacy: these numbers have no noise, and are for the client alone.
    """
    from fedopl.cli.run_summary import rows_as_json
    from fedopl.client.client_file import read_client
    from fedopl.engines.folder_doors import policy_at_home
    from fedopl.engines.runs import load_run

    here = read_client(client)
    found = policy_at_home(load_run(run), here)
    if as_json:
        values, gains = rows_as_json(found.values), rows_as_json(found.gains)
        say_json({"client": here.name, "values": values, "gains": gains})
        return
    typer.echo(f"{found.values}\n\n{found.gains}")
    typer.echo(
        f"\nOf {here.name}'s own held-out rows, without noise: for {here.name} alone. What was "
        "promised of its rows does not cover these numbers, nor the policy."
    )


def explain(
    policy: PolicyPath,
    *,
    client: ClientHere = None,
    shared: Shared = False,
    top: Annotated[int, typer.Option(min=1, help="number of features to name for each action")] = 5,
    as_json: AsJson = False,
) -> None:
    """Say in words what drives a policy's decisions; a tree is drawn."""
    from fedopl.cli.saved_policy import policy_to_explain
    from fedopl.report.sections.decisions import explainer_of
    from fedopl.report.words.policy_labels import permission_sentences

    found, run = policy_to_explain(policy, client, shared=shared)
    explainer = explainer_of(found)
    rules = found.permissions
    if as_json:
        permissions = {"permissions": rules.model_dump(mode="json")} if rules else {}
        say_json({**explainer.as_json(found, run), **permissions})
        return
    typer.echo(explainer.as_text(found, run, top))
    if rules:
        typer.echo("\n" + "\n".join(permission_sentences(rules, found.kind)))


def decide(
    policy: PolicyPath,
    table: Annotated[Path, typer.Argument(help="a CSV or Parquet file with the study's features")],
    *,
    out: Annotated[
        Path | None, typer.Option(help="where to write; default: TABLE-decided beside it")
    ] = None,
    column: Annotated[str, typer.Option(help="name of the new column")] = "action",
    client: ClientHere = None,
    shared: Shared = False,
    undecided: Annotated[
        Literal["error", "blank"],
        typer.Option(
            help="rows with missing or unknown values: stop, or leave their decision blank"
        ),
    ] = "error",
    formulas: Annotated[
        Literal["escape", "keep"],
        typer.Option(help="text in CSV that a spreadsheet would run: escape it, or keep it"),
    ] = "escape",
    with_scores: Annotated[
        bool,
        typer.Option(
            "--with-scores",
            help="add each action's score, the margin of the decision and the rank by margin",
        ),
    ] = False,
    over: Annotated[
        str | None,
        typer.Option(help="the action that margins compare with; default: the best other action"),
    ] = None,
    places: Annotated[
        list[str] | None,
        typer.Option(
            help="how many rows can get an action, for example A=200; the rows that gain most get "
            "it"
        ),
    ] = None,
    fill: Annotated[
        bool, typer.Option("--fill", help="fill every place, even if that is worse for a row")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            help="the largest mean cost of a decision in this table, by the costs of the run's "
            "study; the rows that gain most for it get the costly actions"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add the action to take to every row of a table, however long it is."""
    from fedopl.cli.saved_policy import affordable_by, policy_here, ranking_of
    from fedopl.client.apply_policy import decide_table

    ranking = None
    affordable = None if budget is None else affordable_by(policy, budget)
    if with_scores or over is not None or places or fill or affordable:
        ranking = ranking_of(over, places or [], fill=fill, affordable=affordable)
    found, settings = policy_here(
        policy,
        client,
        scored=ranking is not None,
        priced=affordable is None,
        shared=shared,
    )
    stem = table.name.removesuffix(".gz").rpartition(".")[0] or table.name
    decided_path = out or table.with_name(f"{stem}-decided{table.name[len(stem) :]}")
    decided = decide_table(
        found,
        table,
        decided_path,
        column=column,
        columns=settings.columns if settings else None,
        labels=settings.labels if settings else None,
        encoding=settings.data.encoding if settings else "utf-8",
        delimiter=settings.data.delimiter if settings else None,
        decimal=settings.data.decimal if settings else ".",
        undecided=undecided,
        formulas=formulas,
        ranking=ranking,
        progress=_tell_rows,
    )
    if as_json:
        told = {name: one for name, one in vars(decided).items() if one is not None}
        say_json({**told, "out": str(decided_path)})
        return
    for action, n_rows in decided.counts.items():
        typer.echo(f"{action}: {n_rows:,} of {decided.n_rows:,} rows")
    if decided.spending is not None:
        typer.echo(f"a decision costs {decided.spending:.6g} on average")
    if decided.n_undecided:
        typer.echo(f"left blank: {decided.n_undecided:,} rows")
    typer.echo(str(decided_path))


def _tell_rows(n_rows: int) -> None:
    if sys.stderr.isatty():
        typer.echo(f"\r{n_rows:,} rows decided ", nl=False, err=True)


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
    from fedopl.cli.saved_policy import policy_here
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


def budget(
    run: Annotated[Path, typer.Argument(help="the folder of a run of a study with a budget")],
    *,
    most: Annotated[
        float | None,
        typer.Option(help="the mean cost of a decision, or the share; default: the study's"),
    ] = None,
    client: Annotated[
        str | None, typer.Option(help="for this client alone; default: for all clients together")
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(help="confidence with which it holds, 0.5 to below 1; default: the study's"),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="write the policy at that price to this file")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a policy gains and spends with another budget, and write it; asks no client."""
    from fedopl.base.labels import GLOBAL
    from fedopl.engines.runs import load_run
    from fedopl.results.spending.budget_words import point_as_json, point_in_words

    found = load_run(run)
    plan = found.study.budget
    if plan is None:
        raise OptionError(
            f"{run}: its study has no budget, so no client reported what its policy spends"
        )
    if found.in_doubt:
        raise OptionError(
            f"{run}: {found.in_doubt}, so nothing is claimed about what a budget buys"
        )
    limit = plan.limit if most is None else most
    point = found.at_budget(limit, client or GLOBAL, confidence=confidence)
    if save and point.policy is None:
        raise OptionError(
            f"{run}: '{point.candidate}' is a candidate that this run does not store; use the "
            "file that the study names"
        )
    if save and point.policy:
        point.policy.save(save)
    if as_json:
        say_json(point_as_json(point) | ({"policy": str(save)} if save else {}))
        return
    typer.echo(point_in_words(found, point))
    if save:
        typer.echo(f"The policy is {save}")
