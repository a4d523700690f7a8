"""Tree policies: a few questions, then an action."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.errors import PolicyError
from fedopl.base.schema import Encoding
from fedopl.base.tables import html_text
from fedopl.policies.allowed.permissions import Permissions
from fedopl.policies.export.target import Target, Term
from fedopl.policies.policy import Domain, Policy, checked_contexts
from fedopl.policies.tree_columns import Column, LevelColumn, tree_columns
from fedopl.policies.trees import nodes
from fedopl.policies.trees.nodes import Branch, Leaf, Node

# The ending of names of columns that mark missing values of another column.
MISSING = " is missing"


@dataclass(frozen=True, eq=False, repr=False)
class TreePolicy(Policy):
    """π(x) = the action of the leaf that x ends in."""

    kind: ClassVar[str] = "tree"
    message_field: ClassVar[str] = "trees"
    message_axes: ClassVar[tuple[str, ...]] = ("trees", "tree nodes", "node numbers")
    explained_by: ClassVar[str] = "tree"
    reads_columns: ClassVar[bool] = True  # and the levels of labels, which features do not name

    root: Node
    action_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    encoding: Encoding | None = None
    # Columns known to be 0 or 1 everywhere, shown as no and yes. This is not saved.
    flags: frozenset[str] = frozenset()
    permissions: Permissions | None = None
    # The worth of each action in each leaf, (n_leaves, n_actions), if a run gives it. Not saved.
    leaf_values: FloatArray | None = None

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The columns that questions may use."""
        return tree_columns(self.feature_names, self.encoding)

    def preferred(self, contexts: ArrayLike) -> IntArray:  # (n_rows,)
        """The code of the action of each context's leaf."""
        rows = checked_contexts(contexts, self.feature_names)
        actions = np.array([leaf.action for leaf in self.leaves()])
        return actions[nodes.leaf_positions(self.root, self.columns, rows)]

    def worth(self, contexts: ArrayLike) -> FloatArray:  # (n_rows, n_actions)
        """The worth of each action in each context's leaf."""
        if self.leaf_values is None:
            raise PolicyError(
                "a tree alone does not say what actions are worth in its leaves; a run's folder "
                "does, if its clients told on held-out rows (evaluation.describe), or if values "
                "are cross-fitted and the tree has a depth of two at most: name the folder"
            )
        rows = checked_contexts(contexts, self.feature_names)
        return self.leaf_values[nodes.leaf_positions(self.root, self.columns, rows)]

    def written_in(self, target: Target[Term]) -> Term:
        """The tree as nested choices, in another language."""
        return self._written(self.root, target)

    def _written(self, node: Node, target: Target[Term]) -> Term:
        if isinstance(node, Leaf):
            return target.action(node.action)
        column = self.columns[node.column]
        asked = (
            target.at_level(column.features, int(node.cut))
            if isinstance(column, LevelColumn)
            else target.at_most(target.number(column.name), node.cut)
        )
        yes, no = (self._written(child, target) for child in (node.yes, node.no))
        return target.choice(asked, yes, no)

    def leaves(self) -> list[Leaf]:
        """The leaves, from the first answer yes to the last answer no."""
        return nodes.leaves_of(self.root)

    @property
    def depth(self) -> int:
        """The largest number of questions for any row."""
        return nodes.depth_of(self.root)

    # --- numbers and files ---------------------------------------------------------------------

    def numbers(self) -> FloatArray:  # (MOST_NODES, 4)
        """The policy as a message carries it; its size is always the same and discloses nothing."""
        return nodes.as_array(self.root, nodes.MOST_NODES)

    @classmethod
    def numbers_shape(cls, _domain: Domain) -> tuple[int, int]:
        """The shape of the numbers that a message has for one policy."""
        return nodes.MOST_NODES, nodes.NODE_NUMBERS

    @classmethod
    def from_numbers(cls, numbers: FloatArray, domain: Domain) -> Self:
        """The policy that a message carried; a ValueError if it is no tree on this domain."""
        columns = tree_columns(domain.features, domain.encoding)
        return cls.of(nodes.from_array(numbers, columns, range(len(domain.actions))), domain)

    @classmethod
    def of(cls, root: Node, domain: Domain) -> Self:
        """The policy with this root, in this domain."""
        names = (domain.actions, domain.features)
        return cls(root, *names, domain.encoding, permissions=domain.permissions)

    def content(self) -> dict[str, Any]:
        """The saved content, besides actions and features."""
        return {"tree": nodes.as_content(self.root, self.columns, self.action_names)}

    @classmethod
    def from_content(cls, content: dict[str, Any], domain: Domain) -> Self:
        """The saved policy; a ValueError, KeyError or TypeError if the content is invalid."""
        columns = tree_columns(domain.features, domain.encoding)
        root = nodes.from_content(content["tree"], columns, domain.actions)
        if nodes.depth_of(root) > nodes.MOST_DEPTH:
            raise ValueError("too deep")
        return cls.of(root, domain)

    # --- words ---------------------------------------------------------------------------------

    def question(self, branch: Branch) -> str:
        """The question in words, with answer yes or no."""
        return " ".join(self.asked(branch))

    def asked(self, branch: Branch, *, yes: bool = True) -> tuple[str, str]:
        """The column and the condition that is asked; with `yes` false, the opposite condition."""
        column = self.columns[branch.column]
        if self._is_flag(column):
            return column.name, f"is {'no' if yes else 'yes'}"
        if not isinstance(column, LevelColumn):
            return column.name, f"{'≤' if yes else '>'} {_threshold(branch.cut)}"
        name, level = column.name, column.levels[int(branch.cut)]
        if name.endswith(MISSING) and column.levels == ("no", "yes"):
            name, yes, level = name.removesuffix(MISSING), yes == (level == "yes"), None
        verb = "is" if yes else "is not"
        return name, f"{verb} missing" if level is None else f"{verb} '{level}'"

    def question_and_answers(self, branch: Branch) -> tuple[str, str, tuple[str, str]]:
        """The column, the condition, and the answers that lead to the first and second branch."""
        column, asked = self.asked(branch)
        if self._is_flag(self.columns[branch.column]):
            return column, "", ("no", "yes")
        return column, asked, ("yes", "no")

    def _is_flag(self, column: Column) -> bool:
        return not isinstance(column, LevelColumn) and column.name in self.flags

    def drawing(self, notes: Sequence[Sequence[str]] = ()) -> str:
        """The tree as text; notes on a leaf stand beside its action, and then below it."""
        return "\n".join(self._drawn(self.root, iter(notes)))

    def _drawn(self, node: Node, notes: Iterator[Sequence[str]]) -> list[str]:
        if isinstance(node, Leaf):
            beside, *below = next(notes, ()) or ("",)
            action = f"'{self.action_names[node.action]}'   {beside}".rstrip()
            return [action, *(f"      {note}" for note in below)]
        yes, no = (self._drawn(child, notes) for child in (node.yes, node.no))
        column, asked, (first, second) = self.question_and_answers(node)
        return [
            f"{column} {asked}".rstrip(),
            f"├─ {first}: {yes[0]}",
            *(f"│  {line}" for line in yes[1:]),
            f"└─ {second}: {no[0]}",
            *(f"   {line}" for line in no[1:]),
        ]

    def __str__(self) -> str:
        return self.drawing()

    def _repr_html_(self) -> str:
        return html_text(self.drawing())

    def __repr__(self) -> str:
        return f"TreePolicy(depth {self.depth}, {len(self.leaves())} leaves)"


def _threshold(cut: float) -> str:
    """The threshold with a true minus sign, and without an exponent if it is large."""
    text = f"{cut:.6g}" if abs(cut) < 1e6 else f"{cut:.0f}"
    return text.replace("-", "−")
