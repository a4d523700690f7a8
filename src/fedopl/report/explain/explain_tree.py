"""Explains a tree: as a drawing in text, and as JSON for programs."""

from collections.abc import Iterator
from typing import Any

from fedopl.messages.trees.cell_sums import SumCells
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Leaf, Node, branches_of
from fedopl.report.explain.leaf_words import (
    LeafInWords,
    across_folds,
    leaf_sentences,
    leaves_in_words,
    on_missing,
    second_thoughts,
    with_flags,
)
from fedopl.report.words.numbers import listed, plural
from fedopl.report.words.policy_labels import OutcomeWords
from fedopl.results.record import Record
from fedopl.results.value_tables import LEARNED

_MOST_LETTERS = 84  # of values on a line


def tree_as_text(policy: TreePolicy, record: Record | None = None, _top: int = 0) -> str:
    """The tree as text; with a record, the rows in each leaf and each action's value there."""
    policy = with_flags(policy, record)
    leaves = leaves_in_words(policy, record)
    parts = [policy.drawing([_notes(leaf) for leaf in leaves])]
    if isinstance(policy.root, Leaf):
        parts = [*leaf_sentences(policy, leaves), *parts]
    parts += on_missing(policy)
    if record and any(leaf.values for leaf in leaves):
        parts.append(_legend(record))
    if record and is_searched(record):
        parts.append(how_good(record))
    doubts = second_thoughts(leaves)
    return "\n\n".join([*parts, "\n".join(doubts)] if doubts else parts)


def tree_as_json(policy: TreePolicy, record: Record | None = None) -> dict[str, Any]:
    """The sentences about a tree, and the tree as nested questions."""
    leaves = leaves_in_words(with_flags(policy, record), record)
    words = [*leaf_sentences(policy, leaves), *on_missing(policy), *second_thoughts(leaves)]
    if record and is_searched(record):
        words.append(how_good(record))
    content: dict[str, Any] = {"sentences": words}
    if record:
        outcome = OutcomeWords.of(record.study)
        content |= {"outcome": outcome.name, "better": outcome.better.removesuffix(" is better")}
    return {**content, "tree": _nested(policy, policy.root, iter(leaves))}


def is_searched(record: Record) -> bool:
    """Whether this run searched for the tree, instead of being given it."""
    return record.study.policy.has_leaves and record.chosen == LEARNED


def how_good(record: Record) -> str:
    """Among which trees this one is the best, if that is known."""
    depth = record.study.tree.depth
    if record.study.privacy:
        return (
            f"By sums with noise it was the best of all trees of depth ≤ {depth} on a coarse "
            "grid computed from public ranges. Another may be better: the noise hides small "
            "differences."
        )
    if record.tree is None:
        return (
            f"It is the best of all trees of depth ≤ {depth} on the rows learned from, with "
            "thresholds between any two values there. This is known because there is only "
            "one client."
        )
    if record.tree.is_exact:
        less = ", less standard errors" if record.tree.doubts else ""
        best = f"the best of all trees of depth ≤ {depth} on the grid{less}."
        if n_moved := len(moved_thresholds(record)):
            them = "one of them" if n_moved == 1 else f"{n_moved} of them"
            return f"It was {best} Then a second search, close to its thresholds, moved {them}."
        return f"It is {best}"
    return (
        "Each question was found by searching two levels ahead. That is not exact: of all trees "
        f"of depth ≤ {depth} on the grid, another may be better.{_ended_early(record)}"
    )


def moved_thresholds(record: Record) -> list[tuple[str, str]]:
    """The questions whose thresholds a second look moved: before, on the grid, and after."""
    policy, closer = record.policy, record.second_look
    if closer is None or not isinstance(policy, TreePolicy):
        return []
    before, now = branches_of(closer.look.root), branches_of(policy.root)
    if [old.column for old in before] != [new.column for new in now]:
        return []  # another policy than was learned
    return [
        (policy.question(old), policy.question(new))
        for old, new in zip(before, now, strict=True)
        if old.cut != new.cut
    ]


def _ended_early(record: Record) -> str:
    """A sentence if too few clients answered about the last level; otherwise empty."""
    levels = [latest for latest in record.own_rounds if latest.query == SumCells.__name__]
    # If fewer clients than the quorum answer, the server keeps the levels found before.
    enough = record.study.quorum * len(levels[-1].asked) if levels else 0
    if not levels or len(levels[-1].answered) >= max(1, enough):
        return ""
    return (
        f" Only {plural(len(levels[-1].answered), 'client')} of {len(levels[-1].asked)} reported "
        "the sums for its last level, so it ends with what was known from the level above."
    )


def _legend(record: Record) -> str:
    outcome = OutcomeWords.of(record.study)
    if record.study.evaluation.is_cross_fitted:
        return f"{across_folds(outcome.name)} {outcome.better[0].upper()}{outcome.better[1:]}."
    return (
        f"Values are expected {outcome.name} per decision ± standard error on held-out rows; "
        f"{outcome.better}."
    )


def _notes(leaf: LeafInWords) -> list[str]:
    """The notes beside and below a leaf's action."""
    lines: list[str] = []
    for value in [f"{of} {told}" for of, told in leaf.told.items()]:
        if lines and len(lines[-1]) + len(value) < _MOST_LETTERS:
            lines[-1] += f", {value}"
        else:
            lines.append(value)
    if leaf.unknown and not lines:
        lines = ["too few rows to tell" if leaf.is_across else "too few held-out rows to tell"]
    elif leaf.unknown:
        names = [f"'{name}'" for name in leaf.unknown]
        lines.append(f"no client could value {listed(names)}")
    return [leaf.people, *lines]


def _nested(policy: TreePolicy, node: Node, leaves: Iterator[LeafInWords]) -> dict[str, Any]:
    if isinstance(node, Leaf):
        return _leaf_as_json(next(leaves))
    return {
        "question": policy.question(node),
        "yes": _nested(policy, node.yes, leaves),
        "no": _nested(policy, node.no, leaves),
    }


def _leaf_as_json(leaf: LeafInWords) -> dict[str, Any]:
    if leaf.share is None:
        return {"action": leaf.action}
    values = {
        action: {
            "value": estimate.value,
            "standard_error": estimate.standard_error,
            "n_rows": estimate.n_rows,
        }
        for action, estimate in leaf.values.items()
    }
    return {"action": leaf.action, "share": leaf.share, "values": values}
