"""Groups in which an action was hardly ever taken, and bounds on rows without an identified value.

Both follow from counts that clients release when they describe what was learned.
"""

from typing import NamedTuple

from fedopl.messages.evaluation.description import CHANCE_CUTS
from fedopl.report.explain.groups import RowGroup, groups_of, overall, shares_of
from fedopl.report.words.numbers import listed
from fedopl.results.record import Record
from fedopl.results.value_tables import arm_name
from fedopl.study.mixture import renormalised

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
