"""The summary of the demo: gain of the shared policy, gain over learning alone, and what left."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from fedopl.report.words.numbers import Span
    from fedopl.results.record import Record


def say_demo(finished: "Record", clients: Path, report: Path) -> None:
    """Print the three lines, and where the report is."""
    typer.echo(f"Together: {finished.verdict}\n")
    typer.echo(f"Over learning alone: {_over_alone(finished)}\n")
    typer.echo(f"What left: {_left(finished, clients)}\n")
    typer.echo(f"The report is {report}")


def _over_alone(finished: "Record") -> str:
    """Each client's gain from the shared policy over its own, in words.

    Also names the clients whose personal policy is best, as the report and `diagnose` judge it.
    """
    from fedopl.analysis.three_ways import LEVEL, three_ways
    from fedopl.base.labels import GLOBAL
    from fedopl.report.words.numbers import Span
    from fedopl.results.model_doubts import clients_in_doubt
    from fedopl.results.value_tables import LOCAL

    rows = [row for row in finished.gains.rows if row.against == LOCAL and row.client != GLOBAL]
    if finished.study.privacy and finished.study.privacy.is_secure and not rows:
        return "not known, since the server reads no numbers of a single client."
    if finished.in_doubt or not rows:
        return "it is not known."
    shared = ", ".join(
        f"{row.client} {_plus(gain)}{gain.number} ({gain.interval})"
        for row, gain in ((row, Span.of(row.estimate)) for row in rows)
    )
    best = [
        (ways.client, Span.of(ways.personal_over_shared, LEVEL))
        for ways in three_ways(finished, clients_in_doubt(finished)).values()
        if ways.decision == "personal"
    ]
    personal = [
        f"{name} does better with its personal policy, {_plus(gain)}{gain} over the shared one"
        for name, gain in best
    ]
    return "; ".join([f"{shared} (95 % intervals)", *personal]) + "."


def _plus(gain: "Span") -> str:
    return "+" if gain.value > 0 and not gain.is_nothing else ""


def _left(finished: "Record", clients: Path) -> str:
    """How many answers and numbers left each client in this study, by the clients' ledgers."""
    from fedopl.client.client_file import read_clients
    from fedopl.client.disclosure.ledger import FileLedger
    from fedopl.report.words.numbers import size

    study = finished.study.before_screening.digest.hex()
    ledgers = [
        [entry for entry in FileLedger(own.ledger_path).entries() if entry.counts_for == study]
        for own in read_clients(clients).values()
    ]
    answers = [len(entries) for entries in ledgers]
    numbers = [sum(entry.n_numbers for entry in entries) for entries in ledgers]
    n_bytes = [sum(entry.n_bytes for entry in entries) for entries in ledgers]
    privacy = finished.study.privacy
    noise = f", with noise (ε = {privacy.epsilon:g})" if privacy else ""
    masks = ", under masks" if privacy and privacy.is_secure else ""
    return (
        f"no row; from each client {_between(answers)} answers with {_between(numbers)} numbers "
        f"in all, {size(max(n_bytes))} at most{noise}{masks}. `fedopl ledger` shows each."
    )


def _between(counts: list[int]) -> str:
    least, most = min(counts), max(counts)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"
