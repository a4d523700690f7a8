"""The summary of a finished run, for people or as JSON, and that of the demo.

Verbs import this file when they are called, as its imports are slow.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from fedopl.analysis.advice import LEVEL, three_ways
from fedopl.base.labels import GLOBAL
from fedopl.cli.printing import say_json
from fedopl.client.client_file import read_clients
from fedopl.client.disclosure.ledger import FileLedger
from fedopl.live.run_page import RunPage
from fedopl.messages.refusal import in_words
from fedopl.report.at_target import target_cautions
from fedopl.report.explain.learning_words import (
    caution_words,
    limited_weights,
    limited_words,
    noise_as_json,
    noise_words,
)
from fedopl.report.explain.support_levels import not_identified, not_identified_cautions
from fedopl.report.page import write_report
from fedopl.report.parts import Caution
from fedopl.report.recommending import recommend
from fedopl.report.sections.action_overlap import fit_cautions
from fedopl.report.sections.held_out_values import decided, moved_in_words, movements
from fedopl.report.sections.resting_on_clients import reliance_cautions
from fedopl.report.words.numbers import Span, listed, size
from fedopl.report.words.policy_labels import arm_sentences
from fedopl.results.model_doubts import clients_in_doubt
from fedopl.results.record import Record
from fedopl.results.spending.budget_words import point_as_json
from fedopl.results.value_tables import LOCAL, GainTable, PolicyTable, ValueTable
from fedopl.study.spending import net_words

# The cautions about models, terms, single clients and guesses; the report has all others.
_CAUTIONS = (fit_cautions, target_cautions, reliance_cautions, not_identified_cautions)


def report_run(
    finished: Record, folder: Path, *, as_json: bool, page: RunPage | None = None
) -> None:
    """Write the report into the run's folder, print the summary, and show the report on a page."""
    report = write_report(finished, folder / "report.html")
    say_run(finished, report, as_json=as_json)
    if page is not None:
        page.finish(report.read_text(encoding="utf-8"))


def say_run(finished: Record, report: Path | None, *, as_json: bool) -> None:
    """Print the verdict, the tables, who did not answer and why, and where the report is."""
    if as_json:
        say_json(_as_json(finished) | ({"report": str(report)} if report else {}))
        return
    typer.echo(f"{recommend(finished).sentence}\n")
    typer.echo(str(finished))
    for sentence in moved_in_words(finished):
        typer.echo(f"\n{sentence}")
    typer.echo(_refusals(finished))
    for sentence in _how_learned(finished):
        typer.echo(f"{sentence}\n")
    for caution in _cautions(finished):
        typer.echo(f"{caution.title}. {caution.what} {caution.advice}\n")
    table = finished.study.table
    if table and table.direction == "lower":
        typer.echo(
            f"Less {table.reward} is better: values are {table.reward} "
            f"{net_words(finished.study) or 'as logged'}, and a gain above 0 is less of it.\n"
        )
    if report:
        typer.echo(f"The report is {report}")


def _cautions(finished: Record) -> list[Caution]:
    return [caution for found_by in _CAUTIONS for caution in found_by(finished)]


def _how_learned(finished: Record) -> list[str]:
    """Sentences on rows and clients that count less or more in learning than in values.

    Also on the caution of the policy.
    """
    cautious, arms = caution_words(finished.policy, finished), arm_sentences(finished.study)
    said = (limited_words(finished), cautious, noise_words(finished), *arms)
    return [words for words in said if words]


def _refusals(finished: Record) -> str:
    lines = [
        f"{listed(sorted(who))} did not answer {listed(asked)} ({why}): "
        f"{in_words(why).why}. {in_words(why).remedy}"
        for why, (who, asked) in finished.refusals_by_reason.items()
    ]
    if finished.without_sums:
        lines.append(
            f"{listed(finished.without_sums)} had too few rows for sums of "
            f"{finished.study.n_terms + 1} terms (parameter_share): scored and valued, but not "
            "learned from."
        )
    if finished.clipped:
        each = [f"{number:,} at {name}" for name, number in sorted(finished.clipped.items())]
        lines.append(f"Numbers beyond the agreed ranges count as the nearer end: {listed(each)}.")
    lines += [
        f"{name}: its ledger went back by {n_entries:,} entries or more before exchange "
        f"{exchange}: its folder was restored from an older copy, and does not count what it told "
        "since"
        for exchange, name, n_entries in finished.went_back
    ]
    return "\n".join(["", *lines, ""] if lines else [""])


def _as_json(finished: Record) -> dict[str, Any]:
    """The run as data for programs: the verdict, all values and gains, and its exchanges."""
    limited, unknown = limited_weights(finished), not_identified(finished)
    return {
        "study": finished.study.name,
        "digest": finished.study.before_screening.digest.hex(),
        "recommendation": recommend(finished)._asdict(),
        "verdict": finished.verdict,
        "in_doubt": finished.in_doubt,
        "evaluation": finished.study.evaluation.kind,
        "estimand": "way of learning" if finished.values_way_of_learning else "policy",
        "valued_on_all_rows": _valued_on_all(finished),
        "net_of_costs": finished.study.net_costs is not None,
        "budget": _budget(finished),
        "chosen": finished.chosen,
        "best_arm": finished.best_arm,
        "mixture": finished.mixture,
        "rows": finished.rows,
        "clipped": finished.clipped,
        "values": rows_as_json(finished.values),
        "gains": rows_as_json(finished.gains),
        "improvements": rows_as_json(finished.improvements, "level"),
        **({"personal": rows_as_json(finished.personal)} if finished.personal else {}),
        "guardrails": _guardrails(finished),
        **({"target": _target(finished)} if finished.target else {}),
        "splits": _splits(finished),
        **_membership(finished),
        "cautions": [caution._asdict() for caution in _cautions(finished)],
        "limited_for_learning": limited and limited._asdict(),
        "not_identified": unknown and unknown._asdict(),
        **noise_as_json(finished),
        **({"went_back": finished.went_back} if finished.went_back else {}),
        "exchanges": len(finished.rounds),
        "bytes_received": sum(latest.bytes_received for latest in finished.rounds),
        "refusals": [
            {"exchange": exchange, "client": name, "why": why}
            for exchange, name, why in finished.refusals
        ],
    }


def _valued_on_all(finished: Record) -> list[str]:
    """The policies of `values` and `improvements` that all rows value; others, held-out ones."""
    names = dict.fromkeys(row.policy for row in finished.values)
    is_all = finished.study.evaluation.is_cross_fitted
    return [name for name in names if is_all or name in finished.valued_on_all]


def _membership(finished: Record) -> dict[str, Any]:
    """Who joined or left after the run, and the clients' values of the new policy."""
    membership = finished.membership
    if membership is None:
        return {}
    known = membership.of_policy(finished.policy)
    return {
        "membership": {
            "changes": [asdict(change) for change in membership.changes],
            "values": rows_as_json(ValueTable(known.values)),
            "gains": rows_as_json(GainTable(known.gains)),
            "in_doubt": list(known.in_doubt),
            "before": membership.before.verdict,
        }
    }


def _guardrails(finished: Record) -> list[dict[str, Any]]:
    """Each guardrail in words, and the effect of each policy on its outcome."""
    return [
        {
            "guardrail": name,
            "words": agreed.words,
            "outcome": agreed.column,
            "confidence": agreed.confidence,
            "policies": [
                {
                    "policy": row.policy,
                    "verdict": row.verdict,
                    "change": row.estimate.value if row.estimate else None,
                    "standard_error": row.estimate.standard_error if row.estimate else None,
                    "bounds": row.interval,
                    "level": row.level,
                }
                for row in finished.guardrails.rows
                if row.guardrail == name
            ],
        }
        for name, agreed in finished.study.guardrails.items()
    ]


def _target(finished: Record) -> dict[str, Any]:
    """The value of the policy at a site without outcomes, and the evidence for it."""
    found = finished.target
    assert found is not None  # noqa: S101  (the caller has checked)
    claimed = {} if finished.in_doubt else {"values": found.values, "gains": found.gains}
    told: dict[str, Any] = {
        what: {name: own.as_json() for name, own in claimed.get(what, {}).items()}
        for what in ("values", "gains")
    }
    told["in_words"] = finished.at_target
    return {**asdict(found), **({"gain": None} if finished.in_doubt else {}), **told}


def _budget(finished: Record) -> dict[str, Any] | None:
    """What the policy gains and spends within its budget; None without a budget, or if in doubt."""
    if finished.curve is None or finished.in_doubt:
        return None
    done = finished.curve.done()[1].value
    about = {"against": finished.curve.against, "what_was_done_spends": done}
    return point_as_json(finished.within_budget()) | about


def _splits(finished: Record) -> dict[str, Any]:
    """The number of splits, and the learned policy's gains under each split and combined."""

    def said(row: Any) -> dict[str, Any]:
        says = None if finished.in_doubt else decided(row)
        return {**row.estimate.as_json(row.level), "level": row.level, "says": says}

    return {
        "number": finished.study.evaluation.splits,
        "gains": [
            {
                "against": one.against,
                "spread": one.spread,
                "verdicts": {} if finished.in_doubt else dict(one.verdicts),
                "alone": [said(row) if row else None for row in one.alone],
                "together": said(one.together),
            }
            for one in movements(finished)
        ],
    }


def rows_as_json(table: PolicyTable, *names: str) -> list[dict[str, Any]]:
    """Each row of the table with these further fields, its estimate, and the estimate's groups."""
    return [
        {
            **{name: getattr(row, name) for name in (table.named, *names)},
            "client": row.client,
            **vars(row.estimate),
            "groups": n_groups,
            "interval": row.interval,
        }
        for row, n_groups in zip(table, table.groups_by_row(), strict=True)
    ]


def say_demo(finished: Record, clients: Path, folder: Path) -> None:
    """Write the report, and print the demo's gain, that over learning alone, and what left."""
    report = write_report(finished, folder / "report.html")
    typer.echo(f"Together: {finished.verdict}\n")
    typer.echo(f"Over learning alone: {_over_alone(finished)}\n")
    typer.echo(f"What left: {_left(finished, clients)}\n")
    typer.echo(f"The report is {report}")


def _over_alone(finished: Record) -> str:
    """Each client's gain from the shared policy over its own, in words.

    Also names the clients whose personal policy is best, as the report and `diagnose` judge it.
    """
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


def _plus(gain: Span) -> str:
    return "+" if gain.value > 0 and not gain.is_nothing else ""


def _left(finished: Record, clients: Path) -> str:
    """How many answers and numbers left each client in this study, by the clients' ledgers."""
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
