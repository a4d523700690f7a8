"""Does joining pay? For which clients, how surely, why, with which others, and what is unknown."""

import re

from fedopl.report.joining.advising import (
    advice_parts,
    joining_facts,
    nothing_to_say,
    personal_parts,
)
from fedopl.report.joining.alternatives import coalition_parts, path_parts
from fedopl.report.joining.shifts import shift_parts
from fedopl.report.parts import Folded, Heading, Part, Points, Section, Text
from fedopl.results.record import Record
from fedopl.study.study_check import why_not_personal

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
_AT_HOME = (
    "Each client can have a personal policy: the shared one, moved toward its own rows as far as "
    "these support it. It is solved and valued at home, without noise (`fedopl personal RUN "
    "CLIENT`). Nothing of it leaves the client, so this page cannot say what it is worth."
)
# What an error says → what it says to those who do not know the code. Older runs have the words of
# older versions.
_REASONS = (
    (
        r"values: (?:none (?:told|reported) by )?('.+')(?: reported none.*|, who count here)",
        r"\1 did not report what some policies are worth",
    ),
    (r"coalitions: no values of (.+); .*", r"\1 did not report what some policies are worth"),
    (
        r"coalitions: (?:of|expected) 2 to (\d+) clients, .*",
        r"they are compared for up to \1 clients",
    ),
    (
        r"discrepancies: (?:of|expected) at most (\d+) clients",
        r"they are measured for up to \1 clients",
    ),
    (
        r"models: (?:those of|expected) at most (\d+) clients .*",
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


def joining(record: Record) -> Section:
    """The section; if nothing was decided, one paragraph, with the rest folded away."""
    parts, facts = joining_parts(record), joining_facts(record)
    n_first, title = 1, "Does joining pay?"
    if facts.ways and not nothing_to_say(record):
        n_first, title = 2, "Shared, personal or alone: which, and how sure?"
    first, rest = parts[:n_first], parts[n_first:]
    if rest and all(one.decision == "undecided" for one in facts.advice.values()):
        rest = (Folded(summary="What was measured, and further results", parts=rest),)
    return Section(name="joining", title=title, parts=(*first, *rest, *_why_none(record)))


def _why_none(record: Record) -> tuple[Part, ...]:
    """Why clients have no personal policies here, where this study can have none to tell of."""
    if record.study.personalises_at_home:
        return (Text(_AT_HOME),)
    why = why_not_personal(record.study)
    if record.study.personalises or len(record.rows) < 2 or why is None or nothing_to_say(record):
        return ()
    return (Text(f"Clients of this study have no personal policies: {why}."),)


def joining_parts(
    record: Record, constant: float = 1.0, client: str | None = None
) -> tuple[Part, ...]:
    """The parts for the page and for the command line, which may ask about one client."""
    # First, because it also refuses an impossible constant or client.
    facts = joining_facts(record, constant, client)
    if nothing := nothing_to_say(record):
        return (Text(nothing),)
    # What the diagnosis could not find out: one sentence for each part.
    unknown = record.diagnosis.unknown if record.diagnosis else {}
    items = (f"{_PARTS.get(part, part)}: {reason_in_words(why)}" for part, why in unknown.items())
    return (
        *personal_parts(facts),
        *advice_parts(facts),
        *shift_parts(facts),
        *path_parts(facts),
        *coalition_parts(facts),
        *((Heading("What is not known"), Points(tuple(items))) if unknown else ()),
    )


def reason_in_words(why: str) -> str:
    """The reason as a sentence without names of the code."""
    for pattern, words in _REASONS:
        if found := re.fullmatch(pattern, why):
            return f"not known, as {found.expand(words)}."
    return f"not known. {why.rstrip('.')}."
