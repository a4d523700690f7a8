"""What each client disclosed: every kind of message, how often, and how large."""

from fedopl.messages.answer_words import arrays_in_words
from fedopl.messages.private.noised_scores import ValueApart
from fedopl.messages.vocabulary import QUERY_NAMED
from fedopl.report.parts import Part, Section, Table, Text, folded_if_long
from fedopl.report.words.numbers import count, plural, size
from fedopl.report.words.region_words import sent_by_regions
from fedopl.results.record import Record
from fedopl.results.value_tables import MOST_VALUED_ALONE
from fedopl.study.contract import contract_of
from fedopl.study.private.added_up import adds_under_masks, most_lacking
from fedopl.study.study import Study

_WITH_NOISE = (
    "With differential privacy, every number computed from rows has noise, except the number "
    "of rows. How many rows took each action was left out of enrolment."
)
_UNDER_MASKS = (
    "All answers but {others} left under masks, as whole numbers that look random. What is "
    "listed below could be read from their total over all clients, and from nothing less."
)
_NOT_MASKED = "the first and the keys"
_NOR_APART = "the first, the keys and values that the study has read of each client apart"
_WITH_SHARES = (
    "As clients could be lacking, that is the total over the clients that answered. Each "
    "client had sent shares of the secrets behind its masks to the others; each share can be "
    "read by one of them. Each client helped to remove the masks from a sum once, over one "
    "set of clients."
)


def disclosed(record: Record) -> Section:
    """The section."""
    queries = list(dict.fromkeys(latest.query for latest in record.rounds))
    of_regions = sent_by_regions(record)
    parts: tuple[Part, ...] = (
        Text(
            "Rows stayed where they are. Clients answer questions from a closed list. The "
            "size of an answer depends on the number of features, actions, folds, bins, "
            "cells or leaves, never on the number of rows: no message can hold a row. Each "
            "client also keeps its own ledger of what it released."
        ),
        Text(contract_of(record.study)),
        *((Text(_WITH_NOISE),) if record.study.privacy else ()),
        *((Text(_under_masks(record.study)),) if adds_under_masks(record.study) else ()),
        *((Text(_WITH_SHARES),) if most_lacking(record.study) else ()),
        *((Text(of_regions),) if of_regions else ()),
        _kinds(queries, record.study),
        _by_client(record, queries),
    )
    return Section(name="left", title="What left each client", parts=parts)


def _under_masks(study: Study) -> str:
    return _UNDER_MASKS.format(others=_NOR_APART if ValueApart.needed(study) else _NOT_MASKED)


def _kinds(names: list[str], study: Study) -> Table:
    queries = [QUERY_NAMED[name] for name in names]
    return Table(
        caption="What each kind of answer holds (+ 1: an intercept, + 2: also the reward)",
        headers=("Asked", "The answer holds", "Numbers, and what they are counted in"),
        rows=tuple(
            (query.title, query.content_in(study), "; ".join(arrays_in_words(query, study)))
            for query in queries
        ),
        text_columns=(1, 2),
    )


def _by_client(record: Record, queries: list[str]) -> Part:
    names = sorted({name for latest in record.rounds for name in (*latest.asked, *latest.received)})
    if len(names) > MOST_VALUED_ALONE:
        return _of_all(record, queries, len(names))
    table = Table(
        caption="How often each client answered, and how many bytes that were",
        headers=("Client", *(QUERY_NAMED[query].title for query in queries), "In all"),
        rows=tuple(
            (name, *(_cell(record, name, query) for query in queries), size(total))
            for name in names
            for total in [sum(latest.received.get(name, 0) for latest in record.rounds)]
        ),
    )
    return folded_if_long(table)


def _of_all(record: Record, queries: list[str], n_clients: int) -> Table:
    """Of very many clients, what left all of them together."""
    rows = []
    for query in queries:
        own = [one for one in record.rounds if one.query == query]
        answers = sum(len(one.answered) for one in own)
        n_bytes = sum(one.bytes_received for one in own)
        rows.append((QUERY_NAMED[query].title, count(answers), size(n_bytes)))
    return Table(
        caption=f"How often the {count(n_clients)} clients answered, and how many bytes that were",
        headers=("Asked", "Answers", "Bytes"),
        rows=tuple(rows),
    )


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
