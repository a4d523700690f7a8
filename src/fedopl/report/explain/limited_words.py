"""What is said of weights that are limited where a policy is learned."""

from fedopl.analysis.limited_weights import limited_weights
from fedopl.report.words.numbers import count, listed, percent
from fedopl.results.record import Record


def limited_words(record: Record) -> str:
    """A sentence on the rows concerned; nothing where there are none."""
    found = limited_weights(record)
    concerned = {a: n for a, n in found.rows.items() if n} if found else {}
    if not found or not concerned:
        return ""
    rows = listed([f"'{action}' in about {count(n)}" for action, n in concerned.items()], 3)
    return (
        f"Less likely than {percent(found.below)} was, of the rows learned from, {rows}. Whoever "
        f"got it there counts, for learning, as if it had been {percent(found.propensity)}: a few "
        "large weights would decide the policy otherwise. Values are not limited in this way."
    )
