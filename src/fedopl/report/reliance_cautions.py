"""Cautions about single clients: a result that rests on one of them is as good as that one is."""

from collections.abc import Iterator

from fedopl.report.parts import Caution
from fedopl.report.words.numbers import count, percent
from fedopl.results.record import Record

# Of two clients one nearly always has more than half.
MOST_WEIGHT, MOST_OF_TWO = 0.5, 0.75
# The kinds whose weights follow from what clients say; others are agreed with open eyes.
_BY_REPORT = ("empirical", "minimax")


def reliance_cautions(record: Record) -> Iterator[Caution]:
    """What rests on one client; nothing where there is only one."""
    if len(record.mixture) > 1:
        yield from _weighs_most(record)


def _weighs_most(record: Record) -> Iterator[Caution]:
    heaviest = max(sorted(record.mixture), key=lambda name: record.mixture[name])
    weight, most = (
        record.mixture[heaviest],
        MOST_OF_TWO if len(record.mixture) == 2 else MOST_WEIGHT,
    )
    if weight > most and record.study.mixture.kind in _BY_REPORT:
        rows = count(record.rows[heaviest])
        yield Caution(
            "Most weight on one client",
            f"{heaviest} has {percent(weight)} of the weight, by the {rows} rows it says it has.",
            "Nobody checks how many rows a client has. Make sure of it, or agree on "
            "largest_share in [mixture].",
        )
