"""Shared, personal or local policy: which is best for each client, and how certain that is."""

from fedopl.analysis.three_ways import LEVEL, ThreeWays, Way
from fedopl.report.joining.advising import folded
from fedopl.report.joining.context import JoiningFacts
from fedopl.report.parts import Part, Table, Text
from fedopl.report.words.numbers import Span, listed, percent
from fedopl.report.words.policy_labels import OutcomeWords

_IN_WORDS: dict[Way, str] = {
    "shared": "the shared policy",
    "personal": "its personal policy",
    "alone": "the policy of its own rows alone",
}
_WHAT = (
    "There are three policies for each client: the shared policy; the policy of its own rows "
    "alone; and its personal policy. The personal policy is that of all other clients, moved "
    "toward the client's own rows as far as these support it. Each client solved for its "
    "personal policy itself and reported only what it is worth."
)


def personal_parts(facts: JoiningFacts) -> tuple[Part, ...]:
    """The table; empty if clients have no personal policies."""
    found = [facts.ways[name] for name in facts.clients if name in facts.ways]
    if not found:
        return ()
    return (Text(f"{ways_in_short(found)} {_WHAT}"), folded(_table(facts, found)))


def ways_in_short(found: list[ThreeWays]) -> str:
    """For which clients which policy is surely best, and for which clients rows cannot tell."""
    sentences = []
    for way, words in _IN_WORDS.items():
        names = [one.client for one in found if one.decision == way]
        if names:
            sentences.append(f"For {listed(names)}, {words} is best.")
    joins = [one.client for one in found if one.decision == "undecided" and one.surely_joins]
    if joins:
        sentences.append(
            f"For {listed(joins)}, learning alone is surely not best; the rows "
            "cannot decide between the shared policy and the personal one."
        )
    told = {one.client for one in found if one.decision != "undecided"} | set(joins)
    if not told:
        return "For no client can the rows decide which of three policies is best."
    if open_ones := [one.client for one in found if one.client not in told]:
        sentences.append(f"The rows cannot decide for {listed(open_ones)}.")
    return " ".join(sentences)


def how_sure(one: ThreeWays) -> str:
    """The best policy, and which others are not ruled out."""
    if one.in_doubt:
        return "in doubt"
    if not one.as_good:
        return f"{one.best}, surely"
    return f"{one.best}; or {' or '.join(one.as_good)}"


def _table(facts: JoiningFacts, found: list[ThreeWays]) -> Table:
    unit, rows = OutcomeWords.of(facts.record.study).name, facts.record.study.evaluation.rows_valued
    return Table(
        caption=f"Gains in {unit} per decision on {rows}, with {percent(LEVEL)} intervals: "
        "the three of a client hold together with 95 %",
        headers=(
            "Client",
            "Best",
            "Personal over shared",
            "Personal over alone",
            "Shared over alone",
        ),
        rows=tuple((one.client, how_sure(one), *map(_cell, _gains(one))) for one in found),
        text_columns=(1,),
    )


def _gains(one: ThreeWays) -> list[Span]:
    found = (one.personal_over_shared, one.personal_over_alone, one.shared_over_alone)
    return [Span.of(gain, LEVEL) for gain in found]


def _cell(gain: Span) -> str:
    return f"{gain.number}\n({gain.interval})"
