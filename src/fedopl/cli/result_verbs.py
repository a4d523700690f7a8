"""Verbs for the results of a run: its report and its policy."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from fedopl.cli.arguments import AsJson, ClientHere, ClientPath, PolicyPath, RunFolder, Shared
from fedopl.cli.printing import say_json, say_paths
from fedopl.cli.run_summary import rows_as_json
from fedopl.cli.saved_policy import policy_and_run, policy_here

if TYPE_CHECKING:
    from fedopl.client.client_file import Client
    from fedopl.client.disclosure.ledger import Entry
    from fedopl.client.disclosure.lifetime import StudySummary
    from fedopl.client.disclosure.limits import Limits

_MOST_OF_SHAPES = 75  # letters of a line of the ledger


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
    from fedopl.engines.compare_runs import compare_runs
    from fedopl.engines.runs import load_run

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
    from fedopl.report.joining.context import joining_facts
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
    from fedopl.client.client_file import read_client
    from fedopl.engines.home_policies import policy_at_home
    from fedopl.engines.runs import load_run

    here = read_client(client)
    found = policy_at_home(load_run(run), here)
    if as_json:
        values, gains = rows_as_json(found.values, "policy"), rows_as_json(found.gains, "against")
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
    top: Annotated[int, typer.Option(min=1, help="number of features to name for each action")] = 5,
    as_json: AsJson = False,
) -> None:
    """Say in words what drives a policy's decisions; a tree is drawn."""
    from fedopl.report.sections.explainers import explainer_of
    from fedopl.report.words.permission_words import permission_sentences

    found, run = policy_and_run(policy)
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
    from fedopl.cli.saved_policy import affordable_by, ranking_of
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


def ledger(
    client: ClientPath,
    *,
    lifetime: Annotated[
        bool, typer.Option("--lifetime", help="summarise by study, beside the lifetime budgets")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show everything a client ever answered."""
    from dataclasses import asdict

    from fedopl.base.errors import OptionError
    from fedopl.client.aggregator_file import is_aggregator, read_aggregator
    from fedopl.client.client_file import Client, read_client
    from fedopl.client.disclosure.ledger import FileLedger
    from fedopl.client.disclosure.lifetime import summaries

    here = read_aggregator(client) if is_aggregator(client) else read_client(client)
    entries = FileLedger(here.ledger_path).entries()
    if isinstance(here, Client):
        _check_store(here, entries)
    elif lifetime:
        raise OptionError(
            f"{here.path}: an aggregator has no rows, and so no lifetime budgets; those of its "
            "members are in their ledgers"
        )
    if as_json:
        say_json([asdict(one) for one in (summaries(entries) if lifetime else entries)])
    elif not entries:
        typer.echo("Nothing has left this client yet.")
    else:
        typer.echo(
            _lifetime_as_text(summaries(entries), here.settings.limits)
            if lifetime and isinstance(here, Client)
            else _ledger_as_text(entries)
        )


def _check_store(here: "Client", entries: "list[Entry]") -> None:
    """Warn where the history that answers are checked against is gone."""
    if any(entry.answer == "ScoreSums" for entry in entries) and not here.store_path.is_dir():
        warnings.warn(
            f"{here.store_path}: is missing. It held the history that later answers are "
            "checked against. Restore it, or answer no more queries of these studies",
            FedoplWarning,
            stacklevel=3,
        )


def unlock(
    client: ClientPath,
    *,
    study: Annotated[
        str | None,
        typer.Option(help="the first digits of its hash; default: all locked studies"),
    ] = None,
) -> None:
    """Let a client answer a study again after it withheld too many answers.

    Look at the ledger first: a server that keeps asking for what is withheld may be searching for
    single rows.
    """
    from fedopl.base.errors import OptionError
    from fedopl.client.client_file import read_client
    from fedopl.client.disclosure.ledger import FileLedger, unlocking
    from fedopl.client.disclosure.lifetime import summaries

    found = read_client(client)
    kept = FileLedger(found.ledger_path)
    known = [own for own in summaries(kept.entries()) if own.study.startswith(study or "")]
    if study and not known:
        raise OptionError(f"{kept.path}: no study there begins with '{study}'; see fedopl ledger")
    locked = [own for own in known if own.is_locked(found.settings.limits)]
    for own in locked:
        with kept.locked():
            kept.append(unlocking(own.study))
        typer.echo(f"Unlocked for study {own.study[:8]} {own.name}: {own.withheld} were withheld.")
    if not locked:
        typer.echo("Nothing is locked.")


def _lifetime_as_text(studies: "list[StudySummary]", limits: "Limits") -> str:
    from fedopl.base.tables import text_tables
    from fedopl.client.disclosure.lifetime import promised_in_all, spent_in_all

    headers = ["study", "name", "to", "first (UTC)", "last", "answers", "refusals", "bytes", "door"]
    rows = [
        [
            own.study[:8],
            own.name,
            ", ".join(own.to),
            own.first[:16].replace("T", " "),
            own.last[:16].replace("T", " "),
            ", ".join(f"{query} {count}" for query, count in own.answers.items()),
            f"{own.refusals:,}",
            f"{own.n_bytes:,}",
            "locked" if own.is_locked(limits) else "open",
        ]
        for own in studies
    ]
    budgets = [
        f"{limit}: {spent:,} of {getattr(limits, limit):,} spent"
        for limit, spent in spent_in_all(studies).items()
    ]
    if any(own.privacy for own in studies):
        budgets.append(promised_in_all(studies, limits))
    return "\n".join([text_tables(headers, rows), "", *budgets])


def _ledger_as_text(entries: "list[Entry]") -> str:
    from fedopl.base.tables import text_table

    rows = [
        [
            entry.when[:19].replace("T", " "),
            entry.study[:8],
            f"{entry.exchange}",
            entry.query,
            f"{entry.reason}{' ' + entry.why if entry.why else ''}" or entry.answer,
            _shapes_as_text(entry),
            f"{entry.n_bytes:,}",
            entry.sha256[:8],
        ]
        for entry in entries
    ]
    headers = ["when (UTC)", "study", "exchange", "query", "answer", "arrays", "bytes", "hash"]
    total = sum(entry.n_bytes for entry in entries)
    refused = sum(bool(entry.reason) for entry in entries)
    counts = f"{len(entries):,} answers, {refused:,} of them refusals; {total:,} bytes left."
    return "\n".join([text_table(headers, rows), "", counts, *_why_withheld(entries)])


def _shapes_as_text(entry: "Entry") -> str:
    """As many arrays as leave the other columns whole; `--json` has all."""
    texts = [f"{name} {'×'.join(map(str, size))}" for name, size in entry.shapes.items()]
    kept = texts[:1]
    for text in texts[1:]:
        if len(", ".join([*kept, text])) > _MOST_OF_SHAPES:
            return f"{', '.join(kept)} and {len(texts) - len(kept)} more"
        kept.append(text)
    return ", ".join(kept)


def _why_withheld(entries: "list[Entry]") -> list[str]:
    """Each private reason in words, with a remedy: the server is not told, so it is said here."""
    from fedopl.messages.refusal import in_words

    found = {entry.why: in_words(entry.why) for entry in entries if entry.why}
    return [f"Withheld ({why}): {reason.why}. {reason.remedy}" for why, reason in found.items()]
