"""Estimates with verdicts in words, and those that the report does not claim, hidden."""

from collections.abc import Mapping

from fedopl.report.parts import Folded, Part, Table, Text
from fedopl.report.words.numbers import Span
from fedopl.report.words.policy_labels import opened, verdict
from fedopl.results.model_doubts import TOO_SIMPLE
from fedopl.results.record import Record

IN_DOUBT = "in doubt"


def folded_if_doubted(record: Record, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts; folded away if the report may claim nothing."""
    if not record.in_doubt:
        return parts
    what = f"{opened(record.in_doubt)}, so nothing is claimed here."
    if record.in_doubt == TOO_SIMPLE:
        what += (
            " The numbers are wrong by about as much as richer outcome models move values, "
            "which is more than the intervals say."
        )
    return (Text(what), Folded(summary="The results, in spite of that", parts=parts))


def verdict_words(record: Record, words: Mapping[str, str]) -> dict[str, str]:
    """The words for verdicts; empty if the report may claim nothing."""
    return dict.fromkeys(words, IN_DOUBT) if record.in_doubt else dict(words)


def verdict_table(
    caption: str, headers: tuple[str, ...], spans: Mapping[str, Span], words: Mapping[str, str]
) -> Table:
    """A table of gains with their intervals and verdicts."""
    return Table(
        caption=caption,
        headers=headers,
        rows=tuple(
            (name, span.number, span.interval, words[verdict(span)]) for name, span in spans.items()
        ),
        text_columns=(3,),
    )
