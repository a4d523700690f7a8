"""`fedopl ledger` shows what a client has answered; `unlock` lets it answer again."""

import warnings
from typing import TYPE_CHECKING, Annotated

import typer

from fedopl.base.errors import FedoplWarning
from fedopl.cli.arguments import AsJson, ClientPath
from fedopl.cli.printing import say_json

if TYPE_CHECKING:
    from fedopl.client.client_file import Client
    from fedopl.client.disclosure.ledger import Entry
    from fedopl.client.disclosure.lifetime import StudySummary
    from fedopl.client.disclosure.limits import Limits

_MOST_OF_SHAPES = 75  # characters for the shapes of arrays in a line of the ledger


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
    if any(entry.owner for entry in entries):
        headers.append("owner")
        rows = [[*row, entry.owner] for row, entry in zip(rows, entries, strict=True)]
    total = sum(entry.n_bytes for entry in entries)
    refused = sum(bool(entry.reason) for entry in entries)
    counts = f"{len(entries):,} answers, {refused:,} of them refusals; {total:,} bytes left."
    return "\n".join([text_table(headers, rows), "", counts, *_why_withheld(entries)])


def _shapes_as_text(entry: "Entry") -> str:
    """The shapes of as many arrays as fit in the line; `--json` has all."""
    texts = [f"{name} {'×'.join(map(str, size))}" for name, size in entry.shapes.items()]
    kept = texts[:1]
    for text in texts[1:]:
        if len(", ".join([*kept, text])) > _MOST_OF_SHAPES:
            return f"{', '.join(kept)} and {len(texts) - len(kept)} more"
        kept.append(text)
    return ", ".join(kept)


def _why_withheld(entries: "list[Entry]") -> list[str]:
    """Each private reason in words, with a remedy. The server does not learn these reasons."""
    from fedopl.messages.refusal import in_words

    found = {entry.why: in_words(entry.why) for entry in entries if entry.why}
    return [f"Withheld ({why}): {reason.why}. {reason.remedy}" for why, reason in found.items()]
