"""Does joining pay? For whom, how surely, why, and with whom."""

from fedopl.report.joining.advising import advice_parts
from fedopl.report.joining.coalition_tables import coalition_parts
from fedopl.report.joining.context import JoiningFacts, joining_facts, nothing_to_say
from fedopl.report.joining.gaps import gap_parts
from fedopl.report.joining.shifts import shift_parts
from fedopl.report.joining.skew_paths import path_parts
from fedopl.report.parts import Part, Section, Text
from fedopl.results.record import Record


def joining(record: Record) -> Section:
    """The section, or one sentence where nothing is known."""
    return Section(name="joining", title="Does joining pay?", parts=joining_parts(record))


def joining_parts(
    record: Record, constant: float = 1.0, client: str | None = None
) -> tuple[Part, ...]:
    """The same for the page and for the command line, which may ask about one client."""
    nothing = nothing_to_say(record)
    facts = joining_facts(record, constant, client)
    return (Text(nothing),) if nothing else _parts(facts)


def _parts(facts: JoiningFacts) -> tuple[Part, ...]:
    return (
        *advice_parts(facts),
        *shift_parts(facts),
        *path_parts(facts),
        *coalition_parts(facts),
        *gap_parts(facts),
    )
