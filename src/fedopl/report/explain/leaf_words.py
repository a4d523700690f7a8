"""Explains the leaves of a tree: who ends there, their action, and the alternatives."""

import math
from collections import defaultdict
from dataclasses import dataclass, replace

from fedopl.base.estimates import Estimate
from fedopl.policies.tree import TreePolicy
from fedopl.policies.tree_columns import LevelColumn
from fedopl.policies.trees.nodes import Branch, Leaf, Node, nodes_of
from fedopl.report.explain.support_levels import THIN
from fedopl.report.words.numbers import (
    common_decimals,
    count,
    has_error,
    listed,
    percent,
    plural,
    with_error,
)
from fedopl.results.record import Record
from fedopl.results.value_tables import ALIKE, LEAF_GAIN, LEARNED, LeafRow

_CLEAR = 2.0  # standard errors that a difference has to exceed to be worth a word
_CHANCE = 44  # one comparison of so many exceeds them where there is no difference at all
_EVERYBODY = "everybody"
# What is told across folds, in place of the values of actions.
ACROSS = {
    LEARNED: "Value, fold by fold",
    LEAF_GAIN: "Gain over what was done",
    ALIKE: "Decided alike",
}

_Answer = tuple[Branch, bool]  # a question, and whether the answer is yes


@dataclass(frozen=True, kw_only=True)
class LeafInWords:
    """One leaf; values are in logged units: the leaf's own action first, then the best.

    If values are cross-fitted, values are of trees that were learned without the fold of each row.
    """

    who: str
    action: str
    share: float | None  # of people; None where not reported
    values: dict[str, Estimate]
    unknown: tuple[str, ...]  # actions without a value
    better: tuple[str, ...]  # actions that are clearly better on held-out rows
    decimals: int  # of values, the same in all leaves
    is_across: bool  # whether values are across folds

    @property
    def people(self) -> str:
        """How many people end in this leaf; empty if not reported."""
        return "" if self.share is None else f"{percent(self.share)} of people"

    @property
    def n_rows(self) -> int:
        """The number of valued rows in the leaf."""
        return max((value.n_rows for value in self.values.values()), default=0)

    def value(self, action: str) -> str:
        """The value of an action in this leaf, with its standard error."""
        if self.is_across and action == ALIKE:
            return percent(self.values[action].value)
        return with_error(self.values[action], self.decimals)

    @property
    def told(self) -> dict[str, str]:
        """Every value, by what it is of, in words."""
        if self.is_across:
            return {ACROSS[name].lower(): self.value(name) for name in self.values}
        return {name: self.value(name) for name in self.values}

    @property
    def compared(self) -> list[str]:
        """The other actions that have enough rows to be compared with the leaf's own action."""
        known = [action for action, value in self.values.items() if _has_rows(value)]
        return known[1:] if known[:1] == [self.action] else []


def with_flags(policy: TreePolicy, record: Record | None) -> TreePolicy:
    """The policy, with the record's knowledge of which columns are 0 or 1 everywhere."""
    if record is None:
        return policy
    known = record.statistics.is_flag(record.mixture)
    names = [name for name, is_one in zip(policy.feature_names, known, strict=False) if is_one]
    return replace(policy, flags=frozenset(names))


def leaves_in_words(policy: TreePolicy, record: Record | None = None) -> list[LeafInWords]:
    """Every leaf, from the first answer yes to the last answer no; with a record, its numbers."""
    rows = record.leaves if record else ()
    sign = record.study.reward_sign if record else 1.0
    is_across = record is not None and record.study.evaluation.is_cross_fitted
    decimals = common_decimals([row.estimate for row in rows if row.estimate])
    found = []
    for place, (path, leaf) in enumerate(_paths(policy.root)):
        own = [row for row in rows if row.leaf == place]
        action = policy.action_names[leaf.action]
        found.append(_leaf(_who(policy, path), action, own, sign, decimals, is_across=is_across))
    return found


def leaf_sentences(policy: TreePolicy, leaves: list[LeafInWords]) -> list[str]:
    """One sentence for each leaf."""
    if isinstance(policy.root, Leaf):
        who = "all who may get it get" if policy.permissions else "everybody gets"
        return [f"No question is asked: {who} '{leaves[0].action}'."]
    return [
        f"Where {leaf.who}: '{leaf.action}'{f' ({leaf.people})' if leaf.people else ''}."
        for leaf in leaves
    ]


def on_missing(policy: TreePolicy) -> list[str]:
    """How questions about a number treat missing values, if there can be any."""
    splits = [node for node in nodes_of(policy.root) if isinstance(node, Branch)]
    asked = [policy.columns[split.column] for split in splits]
    may_be_missing = policy.encoding is not None and policy.encoding.missing == "indicator"
    if not may_be_missing or all(isinstance(column, LevelColumn) for column in asked):
        return []
    return ["A number that is missing counts as 0 in these questions."]


def across_folds(outcome: str) -> str:
    """What is told of a leaf across folds, and why it is not the value of its action."""
    return (
        "All rows helped to find the leaves, so on them the action of a leaf looks better than it "
        "is. Instead, each row gets what the tree decides that was learned without the row's fold: "
        f"values are the expected {outcome} per decision of these trees, with standard errors, and "
        "gains are over what was done. Decided alike are people for whom these trees decide on the "
        "action of the leaf. The fewer they are, the less is known of that action there."
    )


def second_thoughts(leaves: list[LeafInWords]) -> list[str]:
    """Whether held-out rows favour another action in some leaf, if there are enough rows."""
    compared = [leaf for leaf in leaves if leaf.compared]
    doubtful = [leaf for leaf in leaves if leaf.better]
    if not compared:
        return []
    few = ""
    if len(compared) < len(leaves):
        rest = plural(len(leaves) - len(compared), "leaf has", "leaves have")
        few = f" {rest} too few held-out rows to tell."
    if not doubtful:
        what = "In no leaf is another action" if len(leaves) > 1 else "No other action is"
        return [
            f"{what} better by more than two standard errors on held-out rows, which were not "
            f"used to find the tree.{few}"
        ]
    where = (
        f"In {plural(len(doubtful), 'leaf', 'leaves')} another" if len(leaves) > 1 else "Another"
    )
    comparisons = count(sum(len(leaf.compared) for leaf in compared))
    return [
        f"{where} action is better by more than two standard errors on held-out rows; leaves and "
        "their actions were chosen on other rows. If two actions are equally good, chance alone "
        f"does that in one of {_CHANCE} comparisons; here there are {comparisons}.{few}",
        *map(_doubt, doubtful),
    ]


def _doubt(leaf: LeafInWords) -> str:
    where = "Everybody" if leaf.who == _EVERYBODY else f"Where {leaf.who}"
    others = listed([f"'{action}' {leaf.value(action)}" for action in leaf.better])
    return f"{where}: {others} rather than '{leaf.action}' {leaf.value(leaf.action)}."


def _leaf(
    who: str, action: str, rows: list[LeafRow], sign: float, decimals: int, *, is_across: bool
) -> LeafInWords:
    known = {row.action: row.estimate for row in rows if row.estimate}
    order = [*known]
    if not is_across:
        order.sort(key=lambda name: (name != action, -sign * known[name].value))
    return LeafInWords(
        who=who,
        action=action,
        share=rows[0].share if rows else None,
        values={name: known[name] for name in order},
        unknown=tuple(row.action for row in rows if not row.estimate),
        better=tuple(n for n in order if _is_better(known[n], known.get(action), sign)),
        decimals=decimals,
        is_across=is_across,
    )


def _has_rows(estimate: Estimate) -> bool:
    """Whether the estimate has enough rows to be compared with another."""
    return estimate.n_rows >= THIN and has_error(estimate)


def _is_better(other: Estimate, own: Estimate | None, sign: float) -> bool:
    """Better by more than two standard errors of the difference, as if both were independent."""
    if own is None or not (_has_rows(own) and _has_rows(other)):
        return False
    error = math.hypot(other.standard_error, own.standard_error)
    return sign * (other.value - own.value) > _CLEAR * error


def _paths(node: Node, above: tuple[_Answer, ...] = ()) -> list[tuple[tuple[_Answer, ...], Leaf]]:
    """Each leaf with the answers that lead to it."""
    if isinstance(node, Leaf):
        return [(above, node)]
    return [
        *_paths(node.yes, (*above, (node, True))),
        *_paths(node.no, (*above, (node, False))),
    ]


def _who(policy: TreePolicy, path: tuple[_Answer, ...]) -> str:
    """The answers in words, by column, without answers that follow from others."""
    by_column: dict[int, list[_Answer]] = defaultdict(list)
    for answer in path:
        by_column[answer[0].column].append(answer)
    words = []
    for column, answers in by_column.items():
        noes = [answer for answer in answers if not answer[1]]
        yeses = [answer for answer in answers if answer[1]]
        if isinstance(policy.columns[column], LevelColumn):
            # The level, if it is known; otherwise the levels that are excluded.
            kept = yeses[:1] or noes
        else:
            # The largest threshold that is exceeded, and the smallest that is not.
            kept = sorted(noes, key=lambda answer: -answer[0].cut)[:1]
            kept += sorted(yeses, key=lambda answer: answer[0].cut)[:1]
        asked = [policy.asked(split, yes=yes) for split, yes in kept]
        words.append(f"{asked[0][0]} {' and '.join(relation for _, relation in asked)}")
    return ", ".join(words) or _EVERYBODY
