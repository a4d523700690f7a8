"""What a diagnosis could not find out about joining, and why, in plain words."""

import re

from fedopl.report.joining.context import JoiningFacts
from fedopl.report.parts import Heading, Part, Points

_PARTS = {
    "everything": "Where clients differ",
    "discrepancies": "How far clients' values lie from the mixture's",
    "from_rows": "How far clients' values lie from those of all rows together",
    "paths": "What more weight for one client would bring",
    "coalitions": "Who would learn with whom",
    "models": "How clients' ways to decide and what comes of it differ",
    "classifiers": "How far contexts lie apart at least",
    "moments": "How large scores are at most",
}
# What an error says → what it says to those who do not know the code. Older runs say "told".
_REASONS = (
    (
        r"values: none (?:told|reported) by (.+), who count here",
        r"\1 did not tell what some policies are worth",
    ),
    (r"coalitions: no values of (.+); .*", r"\1 did not tell what some policies are worth"),
    (r"coalitions: of 2 to (\d+) clients, came (\d+)", r"they are compared for up to \1 clients"),
    (r"discrepancies: of at most (\d+) clients", r"they are measured for up to \1 clients"),
    (
        r"models: those of at most (\d+) clients are compared",
        r"models of up to \1 clients are compared",
    ),
    (
        r"tree: only trees of depth 1 and 2 .*",
        "deeper trees were grown by asking again, and cannot be found for other weights",
    ),
    (
        r"values: no client (?:told|reported) any",
        "no client reported what the policies for it are worth",
    ),
)


def gap_parts(facts: JoiningFacts) -> tuple[Part, ...]:
    """One sentence for each part; nothing where all is known."""
    diagnosis = facts.record.diagnosis
    reasons = dict(diagnosis.unknown) if diagnosis else {}
    if not reasons:
        return ()
    items = tuple(
        f"{_PARTS.get(part, part)}: {reason_in_words(why)}" for part, why in reasons.items()
    )
    return (Heading("What is not known"), Points(items))


def reason_in_words(why: str) -> str:
    """The reason as a sentence without names of the code."""
    for pattern, words in _REASONS:
        if re.fullmatch(pattern, why):
            return f"not known, as {re.sub(pattern, words, why)}."
    return f"not known. {why.rstrip('.')}."
