"""From what the study says to what the search keeps to."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedopl.policies.columns import Column, LevelColumn
from fedopl.trees.grid import Grid, grid_of
from fedopl.trees.plan import Restriction, TreePlan
from fedopl.trees.search import Group, Rules


def agreed_grid(
    plan: TreePlan, columns: Sequence[Column], proposed: Mapping[str, Sequence[float]]
) -> Grid:
    """The study's own thresholds, those proposed for other numbers, and those that tell groups."""
    cuts = []
    for column in columns:
        own = set(plan.cuts.get(column.name, proposed.get(column.name, ())))
        for group in plan.allowed:
            threshold = group.above if group.at_most is None else group.at_most
            if group.column == column.name and threshold is not None:
                own.add(threshold)
        cuts.append(sorted(own))
    return grid_of(columns, cuts, plan.columns)


def rules_of(
    plan: TreePlan, columns: Sequence[Column], grid: Grid, actions: tuple[str, ...]
) -> Rules:
    """The rules for the whole tree."""
    return Rules(
        n_actions=len(actions),
        minimum_leaf=plan.minimum_leaf,
        split_cost=plan.split_cost,
        groups=tuple(_group(one, columns, grid, actions) for one in plan.allowed),
    )


def _group(
    restriction: Restriction, columns: Sequence[Column], grid: Grid, actions: tuple[str, ...]
) -> Group:
    place = [column.name for column in columns].index(restriction.column)
    column, cuts = columns[place], np.array(grid.cuts[place])
    if isinstance(column, LevelColumn):
        is_theirs = cuts == column.levels.index(restriction.level)
        possible = np.column_stack([is_theirs, ~is_theirs])
    elif restriction.at_most is not None:  # some say yes; who says no is above the cut
        possible = np.column_stack([np.ones(len(cuts), bool), cuts < restriction.at_most])
    else:
        possible = np.column_stack([cuts > restriction.above, np.ones(len(cuts), bool)])
    forbidden = np.array([action not in restriction.actions for action in actions])
    return Group(place, possible, forbidden)
