"""Does joining pay? For whom, how surely, why, and with whom."""

from fedopl.report.joining.advising import advising
from fedopl.report.joining.coalition_tables import together
from fedopl.report.joining.context import Found, find, nothing_to_say
from fedopl.report.joining.gaps import unknown
from fedopl.report.joining.shifts import differing
from fedopl.report.joining.skew_paths import along
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
    found = find(record, constant, client)
    return (Text(text=nothing),) if nothing else _parts(found)


def _parts(found: Found) -> tuple[Part, ...]:
    return (
        *advising(found),
        *differing(found),
        *along(found),
        *together(found),
        *unknown(found),
    )
