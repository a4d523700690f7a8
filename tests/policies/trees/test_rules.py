"""What the study says, as the search keeps to it; and thresholds as messages carry them."""

import numpy as np
import pytest

from fedopl.policies.tree_columns import LevelColumn, NumberColumn
from fedopl.policies.trees.grid import agreed_grid, cell_names, grid_from, rules_of, thresholds_of
from fedopl.policies.trees.tree_plan import TreePlan

COLUMNS = (
    NumberColumn(name="age", feature=0),
    NumberColumn(name="size", feature=1),
    LevelColumn(name="place", levels=("town", "land", None), features=(2, 3)),
)
ACTIONS = ("none", "some", "all")


def group_of(**who):
    plan = TreePlan(cuts={"age": (30, 40, 50)}, allowed=({**who, "actions": ("all",)},))
    grid = agreed_grid(plan, COLUMNS, {"size": (1.0,)})
    (group,) = rules_of(plan, COLUMNS, grid, ACTIONS).groups
    assert group.forbidden.tolist() == [True, True, False]
    return group.possible.T.astype(int).tolist()  # among those who say yes, and no


def test_who_is_at_most_forty_may_say_yes_to_any_and_no_below_forty():
    assert group_of(column="age", at_most=40) == [[1, 1, 1], [1, 0, 0]]


def test_who_is_above_forty_may_say_no_to_any_and_yes_above_forty():
    assert group_of(column="age", above=40) == [[0, 0, 1], [1, 1, 1]]


def test_who_is_of_a_level_says_yes_to_it_and_no_to_the_others():
    assert group_of(column="place", level="land") == [[0, 1, 0], [1, 0, 1]]


def test_a_groups_threshold_is_put_on_the_grid():
    assert group_of(column="age", at_most=45) == [[1, 1, 1, 1], [1, 1, 0, 0]]


def test_a_grid_comes_back_from_its_thresholds():
    plan = TreePlan(
        cuts={"age": (30, 40)}, allowed=({"column": "size", "above": 2, "actions": ("x",)},)
    )
    grid = agreed_grid(plan, COLUMNS, {"size": (1.0, 3.5)})
    assert grid.cuts == ((30, 40), (1.0, 2.0, 3.5), (0, 1, 2))
    n_cuts, cuts = thresholds_of(grid)
    assert (n_cuts.tolist(), cuts.tolist()) == ([2, 3, 0], [30, 40, 1, 2, 3.5])
    assert grid_from(plan, COLUMNS, n_cuts, cuts).cuts == grid.cuts


@pytest.mark.parametrize(
    ("n_cuts", "cuts"),
    [
        ([2, 1, 0], [30, 41, 1]),  # other ones than were agreed
        ([2, 2, 0], [30, 40, 2, 1]),  # that fall
        ([2, 2, 0], [30, 40, 1, 1]),  # twice
        ([2, 1, 1], [30, 40, 1, 0]),  # of levels
        ([1, 2, 0], [30, 40, 50]),  # of another column
        ([2.5, 0.5, 0], [30, 40, 1]),
        ([4, -1, 0], [30, 40, 1]),
        ([2, 2, 0], [30, 40, 1]),
    ],
)
def test_thresholds_that_were_not_agreed_make_no_grid(n_cuts, cuts):
    plan = TreePlan(cuts={"age": (30, 40)})
    with pytest.raises(ValueError, match="thresholds"):
        grid_from(plan, COLUMNS, np.array(n_cuts, float), np.array(cuts, float))


def test_cells_have_names():
    plan = TreePlan(cuts={"age": (30,)}, columns=("age", "place"))
    grid = agreed_grid(plan, COLUMNS, {})
    names = list(cell_names(grid, COLUMNS))
    assert len(names) == grid.n_cells
    assert names[:2] == ["age ≤ 30", "age above"]
    assert "age ≤ 30, place is missing" in names
    assert not any("size" in name for name in names)  # no question can be about it
