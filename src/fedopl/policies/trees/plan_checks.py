"""Whether a plan for a tree fits the columns and actions that there are."""

from collections.abc import Mapping, Sequence

from fedopl.base.labels import quoted
from fedopl.base.validation import PlacedError
from fedopl.policies.columns import Column, LevelColumn
from fedopl.policies.trees.tree_plan import Restriction, TreePlan


def check_plan(plan: TreePlan, columns: Sequence[Column], actions: Sequence[str]) -> None:
    """A PlacedError, unless all that the plan names is there and is of the right kind."""
    known = {column.name: column for column in columns}
    for name in (*plan.cuts, *plan.columns):
        if name not in known:
            message = f"there is no column '{name}'; there are {quoted(list(known))}"
            raise PlacedError("tree", message, ())
    levels = [name for name in plan.cuts if isinstance(known[name], LevelColumn)]
    if levels:
        message = f"'{levels[0]}' has levels, and is split at each of them"
        raise PlacedError("tree.cuts", message, ("cuts",))
    for group in plan.allowed:
        _check_group(group, known, actions)


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
