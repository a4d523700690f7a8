"""A client is told what a row of it dominates: the column, the term, the action, or a fold."""

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.private_draws import SEED_ALONE, PrivateDraws
from fedopl.client.named_dominance import dominated_in_a_fold, dominated_in_all_rows
from fedopl.client.workspace import Workspace
from fedopl.policies.basis import Basis

ACTIONS = ("usual", "new")
HINGES = Basis(kind="hinges", knots={"age": (-0.5, 0.0, 0.5)})


def space_of(age, outcome=None, **changes):
    rng = np.random.default_rng(0)
    contexts = np.column_stack([age, rng.standard_normal(len(age))])
    rewards = rng.standard_normal(len(age)) if outcome is None else outcome
    data = fedopl.LoggedData(
        contexts,
        rng.integers(0, 2, len(age)),
        rewards,
        action_names=ACTIONS,
        feature_names=("age", "dose"),
    )
    study = fedopl.Study(
        **{"actions": ACTIONS, "features": ("age", "dose"), "evaluation": 0, **changes}
    )
    return Workspace(data, study, fedopl.Limits(), PrivateDraws(0, "north", SEED_ALONE))


def ages(n_rows=1000):
    return np.random.default_rng(1).uniform(-1, 0.5, n_rows)


def test_a_feature_and_a_term_are_named_as_what_they_are():
    far = ages()
    far[0] = 9999.0
    said = "\n".join(dominated_in_all_rows(space_of(far)))
    assert "sum of squares of feature 'age'" in said
    beyond = ages()
    beyond[:6] = [0.9, *[0.51] * 5]  # the column itself is not dominated
    (said,) = dominated_in_all_rows(space_of(beyond, basis=HINGES))
    assert "sum of squares of the term 'age above 0.5'" in said
    assert "set the outer knots of its numbers nearer to the middle" in said
    assert "typo" not in said


@pytest.mark.parametrize("changes", [{"basis": HINGES}, {"evaluation": "cross-fitted"}])
def test_a_column_that_a_row_dominates_in_a_fold_alone_is_named(changes):
    outcome = np.random.default_rng(2).standard_normal(1000)
    outcome[3] = 40.0
    space = space_of(ages(), outcome, **changes)
    assert not dominated_in_all_rows(space)
    (said,) = dominated_in_a_fold(space)
    assert said.startswith("in a fold, one row has more than 80% of the sum of squares of the out")
    assert "use fewer folds" in said


def test_nothing_is_said_of_folds_where_no_sums_by_fold_are_asked_for():
    outcome = np.random.default_rng(2).standard_normal(1000)
    outcome[3] = 40.0
    assert not dominated_in_a_fold(space_of(ages(), outcome))


def test_a_combination_of_waves_in_a_fold_is_named_as_one():
    knots = {"age": (-0.5, 0.0, 0.5), "dose": (-0.5, 0.0, 0.5)}
    space = space_of(ages(700), basis=Basis(kind="waves", knots=knots, waves=30))
    assert not dominated_in_all_rows(space)
    (said,) = dominated_in_a_fold(space)
    assert said.startswith("in a fold, fewer than 5 rows have more than 80% of some combination")
    assert "leave out waves" in said
