"""`fedopl ledger` shows what a client has answered."""

from typing import TYPE_CHECKING, Annotated

import typer

from fedopl.cli.arguments import AsJson, ClientPath
from fedopl.cli.printing import say_json

if TYPE_CHECKING:
    from fedopl.client.disclosure.ledger import Entry, StudySummary
    from fedopl.client.disclosure.limits import Limits

_MOST_OF_SHAPES = 75  # characters for the shapes of arrays in a line of the ledger


def ledger(
    client: ClientPath,
    *,
    lifetime: Annotated[
        bool, typer.Option("--lifetime", help="summarise by study, over the lifetime of the rows")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show everything a client ever answered."""
    from dataclasses import asdict

    from fedopl.base.errors import OptionError
    from fedopl.client.aggregator_file import is_aggregator, read_aggregator
    from fedopl.client.client_file import Client, read_client
    from fedopl.client.disclosure.ledger import FileLedger, summaries

    here = read_aggregator(client) if is_aggregator(client) else read_client(client)
    entries = FileLedger(here.ledger_path).entries()
    if lifetime and not isinstance(here, Client):
        raise OptionError(
            f"{here.path}: an aggregator has no rows, and so no lifetime; its members' ledgers "
            "have theirs"
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


def _lifetime_as_text(studies: "list[StudySummary]", limits: "Limits") -> str:
    from fedopl.base.tables import text_tables
    from fedopl.client.disclosure.ledger import promised_in_all

    headers = ["study", "name", "to", "first (UTC)", "last", "answers", "refusals", "bytes"]
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
        ]
        for own in studies
    ]
    answered = sum(own.counts for own in studies)
    budgets = [f"studies: {answered:,} of {limits.studies:,} answered"]
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
    if any(entry.owner for entry in entries):
        headers.append("owner")
        rows = [[*row, entry.owner] for row, entry in zip(rows, entries, strict=True)]
    total = sum(entry.n_bytes for entry in entries)
    refused = sum(bool(entry.reason) for entry in entries)
    counts = f"{len(entries):,} answers, {refused:,} of them refusals; {total:,} bytes left."
    return "\n".join([text_table(headers, rows), "", counts, *_why_refused(entries)])


def _shapes_as_text(entry: "Entry") -> str:
    """The shapes of as many arrays as fit in the line; `--json` has all."""
    texts = [f"{name} {'×'.join(map(str, size))}" for name, size in entry.shapes.items()]
    kept = texts[:1]
    for text in texts[1:]:
        if len(", ".join([*kept, text])) > _MOST_OF_SHAPES:
            return f"{', '.join(kept)} and {len(texts) - len(kept)} more"
        kept.append(text)
    return ", ".join(kept)


def _why_refused(entries: "list[Entry]") -> list[str]:
    """Reasons that the server was not told, in words, with a remedy."""
    from fedopl.messages.refusal import in_words

    found = {entry.why: in_words(entry.why) for entry in entries if entry.why}
    return [f"Refused ({why}): {reason.why}. {reason.remedy}" for why, reason in found.items()]
