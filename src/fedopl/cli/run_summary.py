"""The summary of a finished run, for people or as JSON."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedopl.cli.printing import say_json

if TYPE_CHECKING:
    from fedopl.report.parts import Caution
    from fedopl.report.recommending import Recommendation
    from fedopl.results.record import Record
    from fedopl.results.value_tables import PolicyTable


def say_run(finished: "Record", report: Path | None, *, as_json: bool) -> None:
    """Print the verdict, the tables, who did not answer and why, and where the report is."""
    if as_json:
        say_json(_as_json(finished) | ({"report": str(report)} if report else {}))
        return
    typer.echo(f"{_recommendation(finished).sentence}\n")
    typer.echo(str(finished))
    for sentence in _moved_by_split(finished):
        typer.echo(f"\n{sentence}")
    typer.echo(_refusals(finished))
    for sentence in _how_learned(finished):
        typer.echo(f"{sentence}\n")
    for caution in _cautions(finished):
        typer.echo(f"{caution.title}. {caution.what} {caution.advice}\n")
    from fedopl.study.spending.cost_plan import net_words

    table = finished.study.table
    if table and table.direction == "lower":
        typer.echo(
            f"Less {table.reward} is better: values are {table.reward} "
            f"{net_words(finished.study) or 'as logged'}, and a gain above 0 is less of it.\n"
        )
    if report:
        typer.echo(f"The report is {report}")


def _recommendation(finished: "Record") -> "Recommendation":
    from fedopl.report.recommending import recommend

    return recommend(finished)


def _cautions(finished: "Record") -> list["Caution"]:
    """The cautions about models, terms, single clients and guesses; the report has all others."""
    from fedopl.report.at_target import target_cautions
    from fedopl.report.explain.hardly_tried import not_identified_cautions
    from fedopl.report.fit_cautions import fit_cautions
    from fedopl.report.sections.resting_on_clients import reliance_cautions

    told = (
        fit_cautions,
        target_cautions,
        reliance_cautions,
        not_identified_cautions,
    )
    return [caution for found_by in told for caution in found_by(finished)]


def _moved_by_split(finished: "Record") -> list[str]:
    from fedopl.report.moved_by_split import moved_in_words

    return moved_in_words(finished)


def _how_learned(finished: "Record") -> list[str]:
    """Sentences on rows and clients that count less or more in learning than in values.

    Also on the caution of the policy.
    """
    from fedopl.report.explain.learning_words import caution_words, limited_words, noise_words
    from fedopl.report.words.permission_words import arm_sentences

    cautious, arms = caution_words(finished.policy, finished), arm_sentences(finished.study)
    said = (limited_words(finished), cautious, noise_words(finished), *arms)
    return [words for words in said if words]


def _refusals(finished: "Record") -> str:
    from fedopl.messages.refusal import in_words
    from fedopl.report.words.numbers import listed

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


def _as_json(finished: "Record") -> dict[str, Any]:
    """The run as data for programs: the verdict, all values and gains, and its exchanges."""
    from fedopl.report.explain.hardly_tried import not_identified
    from fedopl.report.explain.learning_words import limited_weights, noise_as_json

    limited, unknown = limited_weights(finished), not_identified(finished)
    return {
        "study": finished.study.name,
        "digest": finished.study.before_screening.digest.hex(),
        "recommendation": _recommendation(finished)._asdict(),
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


def _valued_on_all(finished: "Record") -> list[str]:
    """The policies of `values` and `improvements` that all rows value; others, held-out ones."""
    names = dict.fromkeys(row.policy for row in finished.values.rows)
    is_all = finished.study.evaluation.is_cross_fitted
    return [name for name in names if is_all or name in finished.valued_on_all]


def _membership(finished: "Record") -> dict[str, Any]:
    """Who joined or left after the run, and the clients' values of the new policy."""
    from fedopl.results.value_tables import GainTable, ValueTable

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


def _guardrails(finished: "Record") -> list[dict[str, Any]]:
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


def _target(finished: "Record") -> dict[str, Any]:
    """The value of the policy at a site without outcomes, and the evidence for it."""
    from dataclasses import asdict

    found = finished.target
    assert found is not None  # noqa: S101  (the caller has checked)
    claimed = {} if finished.in_doubt else {"values": found.values, "gains": found.gains}
    told: dict[str, Any] = {
        what: {name: own.as_json() for name, own in claimed.get(what, {}).items()}
        for what in ("values", "gains")
    }
    told["in_words"] = finished.at_target
    return {**asdict(found), **({"gain": None} if finished.in_doubt else {}), **told}


def _budget(finished: "Record") -> dict[str, Any] | None:
    """What the policy gains and spends within its budget; None without a budget, or if in doubt."""
    from fedopl.results.spending.budget_words import point_as_json

    if finished.curve is None or finished.in_doubt:
        return None
    done = finished.curve.done()[1].value
    about = {"against": finished.curve.against, "what_was_done_spends": done}
    return point_as_json(finished.within_budget()) | about


def _splits(finished: "Record") -> dict[str, Any]:
    """The number of splits, and the learned policy's gains under each split and combined."""
    from fedopl.report.moved_by_split import decided, movements

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


def rows_as_json(table: "PolicyTable", *names: str) -> list[dict[str, Any]]:
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
