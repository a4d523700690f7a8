"""The nodes of a tree policy: branches and leaves, how to walk them, and their array form."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.policies.tree_columns import Column, LevelColumn

# A node in an array: column, cut, and the positions of yes and no. A leaf has its action as cut.
NODE_NUMBERS = 4
LEAF, NOTHING = -1, -2  # in place of a column
MOST_DEPTH = 6
MOST_NODES = 2 ** (MOST_DEPTH + 1) - 1


@dataclass(frozen=True)
class Leaf:
    """An end of the tree, with its action."""

    action: int


@dataclass(frozen=True)
class Branch:
    """A question about one column, at most a threshold or one level, and both next nodes."""

    column: int  # among the columns that a tree may split on
    cut: float  # a threshold, or the position of a level
    yes: "Node"
    no: "Node"


Node = Leaf | Branch


def nodes_of(node: Node) -> Iterator[Node]:
    """The node and all nodes below it, yes before no."""
    yield node
    if isinstance(node, Branch):
        yield from nodes_of(node.yes)
        yield from nodes_of(node.no)


def leaves_of(root: Node) -> list[Leaf]:
    """The leaves, from the first answer yes to the last answer no."""
    return [node for node in nodes_of(root) if isinstance(node, Leaf)]


def branches_of(root: Node) -> list[Branch]:
    """Every question of the tree; each comes before those below it."""
    return [node for node in nodes_of(root) if isinstance(node, Branch)]


def depth_of(node: Node) -> int:
    """The largest number of questions below the node."""
    return 0 if isinstance(node, Leaf) else 1 + max(depth_of(node.yes), depth_of(node.no))


def leaf_positions(
    root: Node, columns: tuple[Column, ...], contexts: FloatArray
) -> IntArray:  # (n_rows,)
    """The leaf of each row, counted from the first answer yes to the last answer no."""
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
    """Whether each row has the level, or is at most the threshold."""
    values = column.values(contexts)
    return np.asarray(values == cut if isinstance(column, LevelColumn) else values <= cut)


# --- as numbers --------------------------------------------------------------------------------


def as_array(root: Node, n_nodes: int | None = None) -> FloatArray:  # (n_nodes, 4)
    """The tree as numbers, each node before those below it, padded to `n_nodes`."""
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


def as_arrays(roots: Sequence[Node]) -> FloatArray:  # (n_trees, n_nodes, 4)
    """The trees as numbers, padded to as many nodes as the largest one has."""
    most = max(len(list(nodes_of(root))) for root in roots)
    return np.stack([as_array(root, most) for root in roots])


def from_array(array: FloatArray, columns: tuple[Column, ...], actions: range) -> Node:
    """The tree in these numbers; a ValueError if they are no tree, or ask about unknown columns.

    Each node lies after the node that leads to it and is used once, so reading always ends.
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
        return Branch(int(column), cut, node(yes, place + 1), node(no, place + 1))

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


# --- as saved ----------------------------------------------------------------------------------


def as_content(
    node: Node, columns: tuple[Column, ...], action_names: tuple[str, ...]
) -> dict[str, Any]:
    """The tree as it is saved: nested questions, with names."""
    if isinstance(node, Leaf):
        return {"action": action_names[node.action]}
    column = columns[node.column]
    asked: dict[str, Any] = {"at most": node.cut}
    if isinstance(column, LevelColumn):
        asked = {"is": column.levels[int(node.cut)]}
    yes, no = (as_content(child, columns, action_names) for child in (node.yes, node.no))
    return {"column": column.name, **asked, "yes": yes, "no": no}


def from_content(
    content: dict[str, Any], columns: tuple[Column, ...], action_names: tuple[str, ...]
) -> Node:
    """The tree saved as `content`; a KeyError, TypeError or ValueError if it is invalid."""
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
    return Branch(place, cut, yes, no)
