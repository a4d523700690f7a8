"""Sentences about row weights that are limited in learning."""

from fedopl.analysis.limited_weights import limited_weights
from fedopl.report.words.numbers import count, listed, percent
from fedopl.results.record import Record


def limited_words(record: Record) -> str:
    """A sentence about the rows with limited weights; empty if there are none."""
    found = limited_weights(record)
    concerned = {a: n for a, n in found.rows.items() if n} if found else {}
    if not found or not concerned:
        return ""
    rows = listed([f"'{action}' in about {count(n)}" for action, n in concerned.items()], 3)
    return (
        f"Of the rows learned from, these had a chance below {percent(found.below)}: {rows}. "
        "For learning, rows that got such an action count as if its chance had been "
        f"{percent(found.propensity)}; otherwise a few large weights would decide the policy. "
        "Values are not limited in this way."
    )
