"""Cautions about what the data do not show: groups without an action, values not identified."""

from collections.abc import Iterator

from fedopl.base.labels import GLOBAL
from fedopl.report.explain.hardly_tried import (
    NotIdentified,
    not_identified,
    noticed,
    where_hardly,
)
from fedopl.report.parts import Caution
from fedopl.report.words.numbers import count, listed, percent, plain
from fedopl.report.words.policy_labels import OutcomeWords
from fedopl.results.record import Record

_MOST_NAMED = 3
# Keyed by whether the policy is cautious already.
_REMEDIES = {
    False: "Try it with a few people first; policy.caution demands more evidence for such an "
    "action.",
    True: "The policy gives it in spite of caution, so it is not recommended. Try it with a "
    "few people first.",
}
_LEAST_SHOWN = 0.01  # of the rows: fewer are not worth a caution


def overlap_cautions(record: Record) -> Iterator[Caution]:
    """Policies whose value is only a guess, then the groups for which it is."""
    yield from not_identified_cautions(record)
    caution = record.study.caution
    decided = noticed(record)
    if decided:
        where = [
            f"{where_hardly(one)} (the policy gives it to about {count(one.decided)} of "
            f"{count(one.rows)})"
            for one in decided
        ]
        yield Caution(
            "Decided where it was hardly tried",
            f"Nobody, or next to nobody, got {listed(where, _MOST_NAMED)}.",
            "What it would do there is extrapolated from other people who got it. "
            f"{_REMEDIES[bool(caution)]}",
        )


def not_identified_cautions(record: Record) -> Iterator[Caution]:
    """For how many rows the value depends on models alone, and how far off it can be."""
    found = not_identified(record)
    if found is None or found.at_most < _LEAST_SHOWN:
        return
    least = f" (at least {percent(found.at_least)})" if found.at_least >= _LEAST_SHOWN else ""
    yield Caution(
        "Not identified for some rows",
        f"For up to {percent(found.at_most)} of rows{least} the policy decides on an action whose "
        f"chance was below {percent(found.floor)} there. The data do not show what it is worth to "
        "them; only models predict it.",
        _bounds_in_words(record, found),
    )


def _bounds_in_words(record: Record, found: NotIdentified) -> str:
    bounds = value_bounds(record, found)
    if bounds is None:
        return (
            "Declare the range of outcomes (declared.reward) to see how far off the value can be, "
            "or do not give them that action."
        )
    low, high = (plain(end, 3) for end in bounds)
    name = OutcomeWords.of(record.study).name
    most = plain(record.study.declared.reward or 0.0, 3)
    return (
        f"As outcomes lie within the declared ±{most}, the policy's value lies between {low} and "
        f"{high} {name} per decision whatever it is worth to them, up to the error of its interval."
    )


def value_bounds(record: Record, found: NotIdentified) -> tuple[float, float] | None:
    """Bounds on the policy's value if nothing is known about rows not identified (Manski).

    On these rows, both the models' value and the true value lie within the declared range. None if
    no range or no value is known.
    """
    most = record.study.declared.reward
    rows = [r for r in record.values.rows if (r.policy, r.client) == (record.chosen, GLOBAL)]
    if most is None or not rows:
        return None
    # The cost of an action is known, so it does not widen the bounds.
    value, reach = rows[0].estimate.value, 2 * most * found.at_most
    if record.study.costs:
        return value - reach, value + reach
    return max(value - reach, -most), min(value + reach, most)
