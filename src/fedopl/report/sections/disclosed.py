"""What each client disclosed: every kind of message, how often, and how large."""

from fedopl.report.parts import Part, Section, Table, Text, folded_if_long
from fedopl.report.words.message_names import axes_of, content_of, title_of
from fedopl.report.words.numbers import count, plural, size
from fedopl.results.record import Record

_MOST_SHOWN = 30  # clients before the table is folded


def disclosed(record: Record) -> Section:
    """The section."""
    queries = list(dict.fromkeys(latest.query for latest in record.rounds))
    parts: tuple[Part, ...] = (
        Text(
            text="Rows stayed where they are. Clients answer questions from a closed list, and "
            "what an answer holds is counted in features, actions, folds, bins, cells or leaves, "
            "never in rows: no message can hold a row. Each client also keeps its own ledger of "
            "what it said."
        ),
        _kinds(queries),
        _by_client(record, queries),
    )
    return Section(name="left", title="What left each client", parts=parts)


def _kinds(queries: list[str]) -> Table:
    rows = tuple(
        (title_of(query), content_of(query), "; ".join(axes_of(query))) for query in queries
    )
    return Table(
        caption="What each kind of answer holds (+ 1: an intercept, + 2: also the reward)",
        headers=("Asked", "The answer holds", "Numbers, and what they are counted in"),
        rows=rows,
        text_columns=(1, 2),
    )


def _by_client(record: Record, queries: list[str]) -> Part:
    names = sorted({name for latest in record.rounds for name in (*latest.asked, *latest.received)})
    rows = tuple(
        (name, *(_cell(record, name, query) for query in queries), _total(record, name))
        for name in names
    )
    table = Table(
        caption="How often each client answered, and how many bytes that were",
        headers=("Client", *(title_of(query) for query in queries), "In all"),
        rows=rows,
    )
    return folded_if_long(table, _MOST_SHOWN, "All clients")


def _cell(record: Record, name: str, query: str) -> str:
    rounds = [latest for latest in record.rounds if latest.query == query]
    times = sum(name in latest.answered for latest in rounds)
    refused = sum(name in latest.refused for latest in rounds)
    rejected = sum(name in latest.rejected for latest in rounds)
    n_bytes = sum(latest.received.get(name, 0) for latest in rounds)
    lines = [plural(times, "answer")] if times else []
    lines += [f"{count(refused)} refused"] if refused else []
    lines += [f"{count(rejected)} rejected"] if rejected else []
    return "\n".join([*lines, size(n_bytes)] if lines else ["nothing"])


def _total(record: Record, name: str) -> str:
    return size(sum(latest.received.get(name, 0) for latest in record.rounds))
