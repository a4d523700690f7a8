"""The policy itself, explained by its kind, and how its decisions split between actions."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.policies.policy import Policy
from fedopl.report.action_colours import MOST_OWN, action_order
from fedopl.report.explain.curve_words import policy_as_json, policy_as_text
from fedopl.report.explain.explain_network import network_as_json, network_as_text
from fedopl.report.explain.explain_tree import tree_as_json, tree_as_text
from fedopl.report.explain.groups import RowGroup, difference, groups_of, overall, shares_of
from fedopl.report.figures.colours import ACTIONS
from fedopl.report.figures.shares import Shares, stacked
from fedopl.report.parts import Folded, Heading, Key, Part, Picture, Points, Section, Table, Text
from fedopl.report.sections.feature_weights import WEIGHTS_TITLE, network_parts, weight_parts
from fedopl.report.sections.tree_leaves import tree_parts
from fedopl.report.words.numbers import count, listed, whole_percent
from fedopl.report.words.policy_labels import arm_sentences, permission_sentences
from fedopl.results.descriptions import Descriptions
from fedopl.results.record import Record

_MOST_DRAWN = 6  # features, and actions in words


def decisions(record: Record) -> Section:
    """The section: the policy itself, and its decisions."""
    study = record.study
    allowed: tuple[Part, ...] = ()
    if study.permissions is not None:
        said = permission_sentences(study.permissions, study.policy.kind) + arm_sentences(study)
        allowed = (Heading("Who may get what"), Points(tuple(said)))
    own: tuple[Part, ...] = (
        Heading(WEIGHTS_TITLE),
        Text(f"'{record.chosen}' is a rule in the clients' own code: it has no weights to show."),
    )
    if record.policy is not None:
        own = explainer_of(record.policy).parts(record, record.policy)
    parts = (*own, *allowed, Heading("How decisions split"), *_splits(record))
    return Section(name="policy", title="The policy itself", parts=parts)


def _splits(record: Record) -> tuple[Part, ...]:
    if record.described is None:
        asked = record.study.evaluation.describe and not record.study.privacy
        why = "none of them answered" if asked else "they were not asked"
        if record.membership:
            why = "not all of them were asked about the policy as it is now"
        return (Text(f"The clients did not report how decisions split: {why}."),)
    clients = sorted(record.described.by_client)
    note = Text(
        f"These are counts of training rows from {listed(clients)}. Groups of a few rows are "
        "counted with a neighbouring group.",
        quiet=True,
    )
    return (*_overall(record, record.described), *_by_group(record, record.described), note)


def _overall(record: Record, described: Descriptions) -> tuple[Part, ...]:
    everybody, actions = overall(described), record.study.actions
    order = action_order(record)
    decided, taken = shares_of(everybody.decided), shares_of(everybody.taken)
    bars = [
        Shares(label="learned policy", shares=_merged(decided, order)),
        Shares(label="done so far", shares=_merged(taken, order)),
    ]
    rows = [
        (name, whole_percent(decided[a]), whole_percent(taken[a])) for a, name in enumerate(actions)
    ]
    words = [f"'{rows[a][0]}' {rows[a][1]} (so far {rows[a][2]})" for a in order[:_MOST_DRAWN]]
    picture = Picture(
        name="split",
        drawing=stacked("split", bars),
        label=f"Share of each action overall: {listed(words, _MOST_DRAWN)}.",
        caption="Share of each action: what the learned policy would do, and what was done.",
        keys=_keys(actions, order),
    )
    table = Table(
        caption="Share of each action overall",
        headers=("Action", "Learned policy", "Done so far"),
        rows=tuple(rows),
    )
    return (picture, table)


def _by_group(record: Record, described: Descriptions) -> tuple[Part, ...]:
    groups = groups_of(record.study, described)
    if not groups:
        return ()
    ranked = sorted(groups, key=lambda feature: -difference(groups[feature]))
    shown = [feature for feature in groups if feature in ranked[:_MOST_DRAWN]]
    order = action_order(record)
    bars = [
        Shares(
            label=group.name,
            shares=_merged(shares_of(group.decided), order),
            note=count(group.decided.sum()),
            heading="" if place else feature,
        )
        for feature in shown
        for place, group in enumerate(groups[feature])
    ]
    caption = "What the learned policy would do in each group; at the right, how many rows."
    if len(shown) < len(groups):
        caption += (
            f" Drawn are the {len(shown)} of {len(groups)} features by which decisions differ most."
        )
    picture = Picture(
        name="groups",
        drawing=stacked("groups", bars),
        label=f"{caption} Decisions differ most by {listed(ranked[:3])}.",
        caption=caption,
        keys=_keys(record.study.actions, order),
    )
    return (picture, Folded(summary="All groups as a table", parts=(_table(record, groups),)))


def _table(record: Record, groups: dict[str, list[RowGroup]]) -> Table:
    rows = []
    for feature, members in groups.items():
        for group in members:
            for policy, counts in (("learned", group.decided), ("so far", group.taken)):
                shares = [whole_percent(s) if counts.sum() else "–" for s in shares_of(counts)]
                rows.append((f"{feature}: {group.name}", policy, count(counts.sum()), *shares))
    return Table(
        caption="Share of each action by group",
        headers=("Group", "Policy", "Rows", *record.study.actions),
        rows=tuple(rows),
        text_columns=(1,),
    )


def _merged(shares: FloatArray, order: IntArray) -> list[float]:
    """The shares in order; actions without their own colour are merged into one share."""
    ordered = [float(share) for share in shares[order]]
    if len(ordered) <= len(ACTIONS):
        return ordered
    return [*ordered[:MOST_OWN], sum(ordered[MOST_OWN:])]


def _keys(actions: tuple[str, ...], order: IntArray) -> tuple[Key, ...]:
    names = [actions[a] for a in order]
    if len(names) > len(ACTIONS):
        names = [*names[:MOST_OWN], f"{len(names) - MOST_OWN} other actions"]
    return tuple(
        Key(colour=f"action-{place}", text=name) for place, name in enumerate(names, start=1)
    )


class Explainer(NamedTuple):
    """A way to explain policies; its functions receive only policies of its own kind."""

    as_text: Callable[[Any, Record | None, int], str]  # with so many features for each action
    as_json: Callable[[Any, Record | None], dict[str, Any]]
    parts: Callable[[Record, Any], tuple[Part, ...]]  # of the report


# Keyed by the policy's own `explained_by`.
_EXPLAINERS = {
    "weights": Explainer(policy_as_text, policy_as_json, weight_parts),
    "tree": Explainer(tree_as_text, tree_as_json, tree_parts),
    "profiles": Explainer(network_as_text, network_as_json, network_parts),
}


def explainer_of(policy: Policy) -> Explainer:
    """The explainer of this policy."""
    return _EXPLAINERS[policy.explained_by]
