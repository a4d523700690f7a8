"""Policies that are trees: a few questions, then an action."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedopl.arrays import BoolArray, FloatArray, IntArray
from fedopl.policies.columns import Column, LevelColumn, tree_columns
from fedopl.policies.contexts import checked_contexts
from fedopl.schema import Encoding


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
        codes = np.empty(len(rows), np.int64)
        self._decide(self.root, rows, np.arange(len(rows)), codes)
        return codes

    def names(self, contexts: ArrayLike) -> NDArray[np.str_]:  # (n_rows,)
        """The name of the action to take in each context."""
        return np.array(self.action_names)[self.decide(contexts)]

    def _decide(self, node: Node, rows: FloatArray, places: IntArray, codes: IntArray) -> None:
        if isinstance(node, Leaf):
            codes[places] = node.action
            return
        says_yes = self._answers(node, rows[places])
        self._decide(node.yes, rows, places[says_yes], codes)
        self._decide(node.no, rows, places[~says_yes], codes)

    def _answers(self, split: Split, rows: FloatArray) -> BoolArray:
        column = self.columns[split.column]
        values = column.values(rows)
        says_yes: BoolArray = (
            values == split.cut if isinstance(column, LevelColumn) else values <= split.cut
        )
        return says_yes

    def question(self, split: Split) -> str:
        """The question in words."""
        column = self.columns[split.column]
        if isinstance(column, LevelColumn):
            return f"{column.name} is '{column.levels[int(split.cut)]}'"
        return f"{column.name} ≤ {split.cut:g}"

    def leaves(self) -> list[Leaf]:
        """From the first answer yes to the last answer no."""
        return [node for node in nodes_of(self.root) if isinstance(node, Leaf)]

    @property
    def depth(self) -> int:
        """How many questions are asked at most."""
        return depth_of(self.root)

    def __repr__(self) -> str:
        return f"TreePolicy(depth {self.depth}, {len(self.leaves())} leaves)"


def nodes_of(node: Node) -> Iterator[Node]:
    """The node and all below it, yes before no."""
    yield node
    if isinstance(node, Split):
        yield from nodes_of(node.yes)
        yield from nodes_of(node.no)


def depth_of(node: Node) -> int:
    """How many questions lie below the node at most."""
    return 0 if isinstance(node, Leaf) else 1 + max(depth_of(node.yes), depth_of(node.no))
