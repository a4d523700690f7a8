"""The plan for a tree: how deep it is, where it may split, and which rules it must follow."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from fedopl.base.labels import quoted
from fedopl.base.schema import Label
from fedopl.base.validation import Checked, PlacedError
from fedopl.policies.tree_columns import Column, LevelColumn, NumberColumn
from fedopl.policies.trees.nodes import MOST_DEPTH

# Trees are searched exactly up to this depth; deeper trees are searched this many levels at a time.
LOOK_AHEAD = 2
MOST_BINS = 256
MOST_CELLS = 10_000_000  # some hundred megabytes from every client, for each open node


class Restriction(Checked):
    """A group, by a level or a threshold of one column, that may get only some of the actions."""

    column: str = Field(description="the column that says who")
    level: Label | None = Field(default=None, description="those of this level")
    at_most: float | None = Field(default=None, description="those with at most this number")
    above: float | None = Field(default=None, description="those with a larger number than this")
    actions: tuple[Label, ...] = Field(min_length=1, description="what they may get")

    @model_validator(mode="after")
    def _says_who(self) -> Self:
        given = [name for name in ("level", "at_most", "above") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError("allowed: say who by one of level, at_most and above")
        return self


class TreePlan(Checked):
    """How deep a tree may be, where it may split, and which rules it must keep."""

    depth: int = Field(
        default=2,
        ge=1,
        le=MOST_DEPTH,
        description="the largest number of questions; the search is exact up to 2",
    )
    thresholds: Literal["grid", "observed"] = Field(
        default="grid",
        description="a public grid; or, for one client alone, between any two observed values",
    )
    bins: int = Field(
        default=32,
        ge=2,
        le=MOST_BINS,
        description="number of bins of each number, about equally full",
    )
    refine: bool = Field(
        default=True,
        description="up to depth 2: whether a second exchange moves thresholds within their bins",
    )
    cell_numbers: Literal["float64", "float32"] = Field(
        default="float64",
        description="float32 halves the bytes of cells; the report says how much that can change",
    )
    cuts: dict[str, tuple[float, ...]] = Field(
        default_factory=dict,
        description="thresholds of numbers by name, if they are agreed beforehand",
    )
    columns: tuple[str, ...] = Field(
        default=(), description="columns that the tree may ask about; default: all"
    )
    minimum_leaf: int = Field(
        default=1,
        ge=1,
        description="the smallest number of rows in a leaf, over all clients together",
    )
    split_cost: float = Field(
        default=0.0, ge=0, description="a question has to raise the value by more than this"
    )
    allowed: tuple[Restriction, ...] = Field(
        default=(), description="groups that may get only some of the actions"
    )

    @field_validator("cuts")
    @classmethod
    def _rise(cls, given: dict[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
        for column, cuts in given.items():
            if not cuts or list(cuts) != sorted(set(cuts)):
                raise ValueError(f"those of '{column}' are not rising numbers")
            if len(cuts) >= MOST_BINS:
                raise ValueError(f"'{column}' has more than {MOST_BINS - 1}")
        return given

    @model_validator(mode="after")
    def _is_possible_on_observed_thresholds(self) -> Self:
        if self.thresholds == "observed" and (self.depth > 2 or self.cuts or self.allowed):
            raise ValueError(
                "thresholds: observed ones are searched to depth 2, without cuts and without "
                "groups; use the grid"
            )
        return self

    def check(self, columns: Sequence[Column], actions: Sequence[str]) -> None:
        """Raise a PlacedError unless all names in the plan exist and are of the right kind."""
        known = {column.name: column for column in columns}
        for name in (*self.cuts, *self.columns):
            if name not in known:
                message = f"there is no column '{name}'; there are {quoted(list(known))}"
                raise PlacedError("tree", message, ())
        levels = [name for name in self.cuts if isinstance(known[name], LevelColumn)]
        if levels:
            message = f"'{levels[0]}' has levels, and is split at each of them"
            raise PlacedError("tree.cuts", message, ("cuts",))
        for group in self.allowed:
            _check_group(group, known, actions)

    def uncut(self, columns: Sequence[Column]) -> tuple[NumberColumn, ...]:
        """The numbers that may be asked about and whose thresholds are not agreed yet."""
        return tuple(
            column
            for column in columns
            if isinstance(column, NumberColumn)
            and column.name not in self.cuts
            and (not self.columns or column.name in self.columns)
        )

    def refined(self, columns: Sequence[Column]) -> tuple[NumberColumn, ...]:
        """The numbers whose thresholds may move between those of the grid.

        Thresholds that the plan names stay fixed: its own ones, and the bounds of groups.
        """
        if not self.refine or self.thresholds != "grid" or self.depth > LOOK_AHEAD:
            return ()
        bounds = {group.column for group in self.allowed}
        return tuple(column for column in self.uncut(columns) if column.name not in bounds)

    def most_cells(self, columns: Sequence[Column]) -> int:
        """The most cells of a grid by this plan: a table for every two columns, and lines."""
        asked = [column for column in columns if not self.columns or column.name in self.columns]
        bins = [self._most_bins(column) for column in asked]
        return sum(a * b for a, b in combinations(bins, 2)) + sum(bins)

    def _most_bins(self, column: Column) -> int:
        if isinstance(column, LevelColumn):
            return len(column.levels)
        own = len(self.cuts.get(column.name, ())) + 1
        groups = sum(group.column == column.name for group in self.allowed)
        return max(own, self.bins) + groups


def _check_group(group: Restriction, columns: Mapping[str, Column], actions: Sequence[str]) -> None:
    column = columns.get(group.column)
    if column is None:
        raise _of_groups(f"there is no column '{group.column}'")
    if isinstance(column, LevelColumn):
        expected = [level for level in column.levels if level is not None]
        if group.level not in expected:
            raise _of_groups(f"'{column.name}' has no such level; it has {quoted(expected)}")
    elif group.level is not None:
        raise _of_groups(f"'{column.name}' is a number; say at_most or above")
    unknown = [action for action in group.actions if action not in actions]
    if unknown:
        raise _of_groups(f"{quoted(unknown)} are not actions of the study")


def _of_groups(message: str) -> PlacedError:
    return PlacedError("tree.allowed", message, ("allowed",))
