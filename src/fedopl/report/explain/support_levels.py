"""How well rows support each action, at each client and in groups of rows, with cautions."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from fedopl.base.arrays import FloatArray
from fedopl.base.labels import GLOBAL
from fedopl.messages.evaluation.description import CHANCE_CUTS
from fedopl.report.explain.groups import RowGroup, groups_of, overall, shares_of
from fedopl.report.parts import Caution
from fedopl.report.words.numbers import count, listed, percent, plain
from fedopl.report.words.policy_labels import OutcomeWords
from fedopl.results.record import Record
from fedopl.results.value_tables import arm_name
from fedopl.study.mixture import renormalised

THIN, FAIR = 30, 100  # effective rows
RARE, OF_EVEN = 0.05, 0.5  # below the first one row counts for twenty; or that part of 1/actions
MOST_RARE = 0.01  # of the rows


@dataclass(frozen=True, eq=False, kw_only=True)
class ActionSupport:
    """The support of one action at one client."""

    client: str
    action: str
    taken: float
    effective_rows: float
    chances: FloatArray  # (n_chance_bins,) shares of rows by how likely the action was

    def share_below(self, cut: float) -> float:
        """The share of rows in which the action was less likely than one of `CHANCE_CUTS`."""
        return float(self.chances[: CHANCE_CUTS.index(cut) + 1].sum())

    @property
    def word(self) -> str:
        """A word for how well the action is supported."""
        if self.effective_rows >= FAIR:
            return "good"
        if self.effective_rows >= THIN:
            return "fair"
        return "thin" if self.effective_rows else "none reported"


def rare_chance(n_actions: int) -> float | None:
    """The chance below which an action is unlikely; None if there are too many actions.

    With many actions, it is half an even chance, since each of them is unlikely in a fair draw.
    """
    most = min(RARE, OF_EVEN / n_actions)
    return max((cut for cut in CHANCE_CUTS if cut <= most), default=None)


def supports(record: Record) -> list[ActionSupport]:
    """The support of every action at every client that answered, in order."""
    if record.described is None:
        return []
    return [
        ActionSupport(
            client=client,
            action=action,
            taken=float(counts.taken[-1, :, place].sum()),
            effective_rows=float(counts.effective_rows[place]),
            chances=shares_of(counts.chances[place]),
        )
        for client, counts in sorted(record.described.by_client.items())
        for place, action in enumerate(record.study.actions)
    ]


def chance_names() -> list[str]:
    """Names of the bins of propensities, in per cent."""
    ends = [f"{100 * cut:.0f}" for cut in CHANCE_CUTS]
    between = [f"{low}–{high}" for low, high in pairwise(ends)]
    return [f"<{ends[0]}", *between, f">{ends[-1]}"]


# Shares of a group's rows: below the first, an action was hardly tried; a policy that gives it to
# at least the second is reported.
HARDLY, NOTICED = 0.01, 0.05
# As many rows at each client are next to none, in a group where they are a small share.
_NEXT_TO_NONE = 2.0
# The number of rows with the action that a typical group would have; below it, zero is no surprise.
_EXPECTED = 20.0
# An action that was less likely than this counts as unknown there.
FLOOR = CHANCE_CUTS[0]
_MOST_NAMED = 3


class HardlyTried(NamedTuple):
    """A group that hardly ever got an action."""

    action: str
    feature: str
    group: str
    rows: float
    decided: float  # of these, those whom the policy gives it


def hardly_tried(record: Record) -> list[HardlyTried]:
    """Groups hardly tried, for all actions, most often decided first; empty if none counted."""
    if record.described is None:
        return []
    usual = shares_of(overall(record.described).taken)
    next_to_none = _NEXT_TO_NONE * len(record.described.by_client)

    def is_rare(group: RowGroup, action: int) -> bool:
        rows, taken = float(group.taken.sum()), float(group.taken[action])
        few = taken <= max(HARDLY * rows, min(next_to_none, NOTICED * rows))
        return few and usual[action] * rows >= _EXPECTED

    found = [
        HardlyTried(name, feature, group.name, group.taken.sum(), group.decided[action])
        for feature, groups in groups_of(record.study, record.described).items()
        for group in groups
        for action, name in enumerate(record.study.actions)
        if is_rare(group, action)
    ]
    return sorted(found, key=lambda one: -one.decided)


def noticed(record: Record) -> list[HardlyTried]:
    """The groups hardly tried in which the policy gives the action to more than a few rows."""
    return [one for one in hardly_tried(record) if one.decided >= NOTICED * one.rows]


def untried_by(record: Record) -> dict[str, str]:
    """By policy, the actions it gives where hardly any row got them; only in a study with caution.

    A constant arm gives its action in every group. The decisions of the learned policy are counted.
    """
    if not record.study.caution:
        return {}
    found = {arm_name(one.action): where_hardly(one) for one in reversed(hardly_tried(record))}
    given = listed([where_hardly(one) for one in noticed(record)], _MOST_NAMED)
    return found | ({record.chosen: given} if given else {})


class NotIdentified(NamedTuple):
    """The share of rows whose decided action was less likely than the floor."""

    floor: float
    at_least: float
    at_most: float


def not_identified(record: Record) -> NotIdentified | None:
    """The share in the mixture: from how often actions are decided and how often they are unlikely.

    Clients report the two numbers separately, so the share has bounds (Fréchet's). None if no
    client reported them, or if there are so many actions that an even chance is not far above the
    floor.
    """
    if record.described is None or 0.5 / record.study.n_actions < FLOOR:
        return None
    told = record.described.by_client
    weights = renormalised(record.mixture, told.keys())
    least = most = 0.0
    for name, weight in weights.items():
        decided = shares_of(told[name].decided[-1].sum(axis=0))
        for action, share in enumerate(decided):
            unlikely = shares_of(told[name].chances[action])[0]
            least += weight * max(0.0, share + unlikely - 1)
            most += weight * min(share, unlikely)
    return NotIdentified(FLOOR, float(least), float(most))


def where_hardly(one: HardlyTried) -> str:
    """The action and the group, in words."""
    return f"'{one.action}' where {one.feature} is {one.group}"


def hardly_words(record: Record, most: int = 6) -> str:
    """A sentence that lists every group that hardly got an action; empty if there is none."""
    where = [where_hardly(one) for one in hardly_tried(record)]
    return f"Nobody, or next to nobody, got {listed(where, most)}." if where else ""


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
    where = [
        f"{where_hardly(one)} (the policy gives it to about {count(one.decided)} of "
        f"{count(one.rows)})"
        for one in noticed(record)
    ]
    if where:
        yield Caution(
            "Decided where it was hardly tried",
            f"Nobody, or next to nobody, got {listed(where, _MOST_NAMED)}.",
            "What it would do there is extrapolated from other people who got it. "
            f"{_REMEDIES[bool(record.study.caution)]}",
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
    row = record.values.by_cell().get((record.chosen, GLOBAL))
    if most is None or not row:
        return None
    # The cost of an action is known, so it does not widen the bounds.
    value, reach = row.estimate.value, 2 * most * found.at_most
    if record.study.costs:
        return value - reach, value + reach
    return max(value - reach, -most), min(value + reach, most)
