"""Policies that are trees: a few questions, then an action."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.schema import Encoding
from fedopl.policies.columns import Column, LevelColumn, tree_columns
from fedopl.policies.contexts import checked_contexts
from fedopl.policies.saving import save_policy

# A node in an array: column, cut, and where yes and no lead. A leaf has its action for a cut.
NODE_NUMBERS = 4
LEAF, NOTHING = -1, -2  # in place of a column
MOST_DEPTH = 6
MOST_NODES = 2 ** (MOST_DEPTH + 1) - 1
# What a column is called that says whether another is missing.
MISSING = " is missing"


@dataclass(frozen=True)
class Leaf:
    """Where the questions end."""

    action: int


@dataclass(frozen=True)
class Split:
    """A question about one column, at most a threshold or one level, and where answers lead."""

    column: int  # among the columns that a tree may split on
    cut: float  # a threshold, or the position of a level
    yes: "Node"
    no: "Node"


Node = Leaf | Split


@dataclass(frozen=True, eq=False, repr=False)
class TreePolicy:
    """π(x) = the action of the leaf that x ends in."""

    kind: ClassVar[str] = "tree"

    root: Node
    action_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    encoding: Encoding | None = None

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """What may be asked about."""
        return tree_columns(self.feature_names, self.encoding)

    def decide(self, contexts: ArrayLike) -> IntArray:  # (n_rows,)
        """The code of the action to take in each context."""
        rows = checked_contexts(contexts, self.feature_names)
        actions = np.array([leaf.action for leaf in self.leaves()])
        return actions[leaf_positions(self.root, self.columns, rows)]

    def names(self, contexts: ArrayLike) -> NDArray[np.str_]:  # (n_rows,)
        """The name of the action to take in each context."""
        return np.array(self.action_names)[self.decide(contexts)]

    def question(self, split: Split) -> str:
        """The question in words, to be answered with yes or no."""
        return " ".join(self.asked(split))

    def asked(self, split: Split, *, yes: bool = True) -> tuple[str, str]:
        """The column, and what is asked of it; or what is so if the answer is no."""
        column = self.columns[split.column]
        if not isinstance(column, LevelColumn):
            return column.name, f"{'≤' if yes else '>'} {_threshold(split.cut)}"
        name, level = column.name, column.levels[int(split.cut)]
        if name.endswith(MISSING) and column.levels == ("no", "yes"):
            name, yes, level = name.removesuffix(MISSING), yes == (level == "yes"), None
        verb = "is" if yes else "is not"
        return name, f"{verb} missing" if level is None else f"{verb} '{level}'"

    def drawing(self, notes: Sequence[Sequence[str]] = ()) -> str:
        """The tree as text; notes on a leaf are written beside its action, and then below it."""
        return "\n".join(self._drawn(self.root, iter(notes)))

    def leaves(self) -> list[Leaf]:
        """From the first answer yes to the last answer no."""
        return [node for node in nodes_of(self.root) if isinstance(node, Leaf)]

    @property
    def depth(self) -> int:
        """How many questions are asked at most."""
        return depth_of(self.root)

    def content(self) -> dict[str, Any]:
        """What is saved of it beside actions and features."""
        return {"tree": self._saved(self.root)}

    def save(self, path: str | Path) -> None:
        """Write the policy as JSON; every float is written so that it reads back the same."""
        save_policy(self, path)

    def _saved(self, node: Node) -> dict[str, Any]:
        if isinstance(node, Leaf):
            return {"action": self.action_names[node.action]}
        column = self.columns[node.column]
        asked: dict[str, Any] = {"at most": node.cut}
        if isinstance(column, LevelColumn):
            asked = {"is": column.levels[int(node.cut)]}
        below = {"yes": self._saved(node.yes), "no": self._saved(node.no)}
        return {"column": column.name, **asked, **below}

    def _drawn(self, node: Node, notes: Iterator[Sequence[str]]) -> list[str]:
        if isinstance(node, Leaf):
            beside, *below = next(notes, ()) or ("",)
            action = f"'{self.action_names[node.action]}'   {beside}".rstrip()
            return [action, *(f"      {note}" for note in below)]
        yes, no = (self._drawn(child, notes) for child in (node.yes, node.no))
        return [
            self.question(node),
            f"├─ yes: {yes[0]}",
            *(f"│  {line}" for line in yes[1:]),
            f"└─ no: {no[0]}",
            *(f"   {line}" for line in no[1:]),
        ]

    def __str__(self) -> str:
        return self.drawing()

    def __repr__(self) -> str:
        return f"TreePolicy(depth {self.depth}, {len(self.leaves())} leaves)"


def _threshold(cut: float) -> str:
    """With a real minus, and without an exponent where it is large."""
    text = f"{cut:.6g}" if abs(cut) < 1e6 else f"{cut:.0f}"
    return text.replace("-", "−")


def leaf_positions(
    root: Node, columns: tuple[Column, ...], contexts: FloatArray
) -> IntArray:  # (n_rows,)
    """Which leaf each row ends in, counted from the first answer yes to the last answer no."""
    positions = np.empty(len(contexts), np.int64)
    waiting: list[tuple[Node, IntArray]] = [(root, np.arange(len(contexts)))]
    n_leaves = 0
    while waiting:
        node, rows = waiting.pop()
        if isinstance(node, Leaf):
            positions[rows] = n_leaves
            n_leaves += 1
        else:
            yes = says_yes(columns[node.column], node.cut, contexts[rows])
            waiting += [(node.no, rows[~yes]), (node.yes, rows[yes])]
    return positions


def says_yes(column: Column, cut: float, contexts: FloatArray) -> BoolArray:  # (n_rows,)
    """Whether each row is of the level, or at most the threshold."""
    values = column.values(contexts)
    yes: BoolArray = values == cut if isinstance(column, LevelColumn) else values <= cut
    return yes


def nodes_of(node: Node) -> Iterator[Node]:
    """The node and all below it, yes before no."""
    yield node
    if isinstance(node, Split):
        yield from nodes_of(node.yes)
        yield from nodes_of(node.no)


def depth_of(node: Node) -> int:
    """How many questions lie below the node at most."""
    return 0 if isinstance(node, Leaf) else 1 + max(depth_of(node.yes), depth_of(node.no))


# --- as numbers --------------------------------------------------------------------------------


def as_array(root: Node, n_nodes: int | None = None) -> FloatArray:  # (n_nodes, 4)
    """The tree as numbers, each node before those below it, filled up with nothing."""
    rows: list[list[float]] = []

    def add(node: Node) -> int:
        place = len(rows)
        if isinstance(node, Leaf):
            rows.append([LEAF, node.action, 0, 0])
        else:
            rows.append([node.column, node.cut, 0, 0])
            rows[place][2:] = add(node.yes), add(node.no)
        return place

    add(root)
    filling = [[float(NOTHING), 0.0, 0.0, 0.0]] * ((n_nodes or len(rows)) - len(rows))
    return np.array(rows + filling, np.float64)


def from_array(array: FloatArray, columns: tuple[Column, ...], actions: range) -> Node:
    """The tree in these numbers; a ValueError where they are none, or ask about what is not there.

    Each node lies behind the one that leads to it and is used once, so that this ends.
    """
    used: set[int] = set()

    def node(number: float, least: int) -> Node:
        place = int(number)
        if place != number or not least <= place < len(array) or place in used:
            raise ValueError("a node is not where it should be")
        used.add(place)
        column, cut, yes, no = (float(entry) for entry in array[place])
        if column == LEAF:
            return Leaf(_member(cut, actions))
        kind = columns[_member(column, range(len(columns)))]
        if isinstance(kind, LevelColumn):
            _member(cut, range(len(kind.levels)))
        return Split(int(column), cut, node(yes, place + 1), node(no, place + 1))

    if len(array) > MOST_NODES:
        raise ValueError("too many nodes")
    root = node(0, 0)
    if any(array[place, 0] != NOTHING for place in range(len(array)) if place not in used):
        raise ValueError("a node is not part of the tree")
    return root


def _member(number: float, allowed: range) -> int:
    if number not in allowed:
        raise ValueError("a number is not one of those it can be")
    return int(number)


def from_content(
    content: dict[str, Any], columns: tuple[Column, ...], action_names: tuple[str, ...]
) -> Node:
    """The tree that was saved as `content`; a KeyError, TypeError or ValueError if it is none."""
    if "action" in content:
        return Leaf(action_names.index(content["action"]))
    names = [column.name for column in columns]
    place = names.index(content["column"])
    column = columns[place]
    if isinstance(column, LevelColumn):
        cut = float(column.levels.index(content["is"]))
    else:
        cut = float(content["at most"])
    if not np.isfinite(cut):
        raise ValueError("a threshold is not finite")
    yes, no = (from_content(content[side], columns, action_names) for side in ("yes", "no"))
    return Split(place, cut, yes, no)
