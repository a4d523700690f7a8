"""Weights are limited where a policy is learned, and not where it is valued."""

from html import unescape

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE, PrivateDraws
from fedopl.client.scoring.outcome import GivenModels
from fedopl.client.scoring.scores import aipw_scores
from fedopl.client.workspace import Workspace
from fedopl.messages.message import RowSplit
from fedopl.report.explain.learning_words import limited_weights, limited_words
from fedopl.report.page import render
from fedopl.study.plans import NuisancePlan
from fedopl.study.study import Study

pytestmark = pytest.mark.usefixtures("without_figures")


def rare(seed=0, n_rows=600, least=0.01):
    """Rows whose second action is nearly never taken where the first feature is positive."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, 3))
    second = np.where(x[:, 0] > 0, least, 0.5)
    actions = (rng.random(n_rows) < second).astype(int)
    # Some took it against the odds, whatever was drawn.
    actions[np.flatnonzero(x[:, 0] > 0)[:20]] = 1
    rewards = x[:, 1] + actions * x[:, 2] + rng.standard_normal(n_rows)
    known = np.column_stack([1 - second, second])
    return fedopl.LoggedData(x, actions, rewards, known, action_names=["usual", "rare"])


def space_of(data, plan, evaluation=0.25):
    study = Study(
        actions=data.action_names,
        features=data.feature_names,
        nuisances=plan,
        evaluation=evaluation,
    )
    space = Workspace(data, study, Limits.open(), PrivateDraws(0, "", SEED_ALONE))
    space.keep(space.scored_with(GivenModels(np.empty((0, 2, 4)))))
    return space


PLAN = NuisancePlan(kind="local")


def test_training_rows_are_limited_and_held_out_rows_are_not():
    limited, free = (
        space_of(rare(), plan) for plan in (PLAN, NuisancePlan(kind="local", learning_clip=0))
    )
    training, held_out = limited.training, limited.rows(RowSplit.EVALUATION)
    np.testing.assert_array_equal(limited.scores[held_out], free.scores[held_out])
    clipped = space_of(rare(), NuisancePlan(kind="local", clip=0.05)).scores
    np.testing.assert_allclose(limited.scores[training], clipped[training], rtol=1e-12)
    differ = (limited.scores != free.scores).any(axis=1)
    taken = limited.data.propensities[np.arange(600), limited.data.actions]
    np.testing.assert_array_equal(np.flatnonzero(differ), np.flatnonzero(taken[training] < 0.05))
    assert differ.sum() >= 10


@pytest.mark.parametrize("evaluation", [0.25, "cross-fitted"])
def test_training_rows_have_scores_for_evaluation_too(evaluation):
    limited, free = (
        space_of(rare(), plan, evaluation)
        for plan in (PLAN, NuisancePlan(kind="local", learning_clip=0))
    )
    np.testing.assert_array_equal(limited.scored.for_evaluation(limited.whole).scores, free.scores)
    assert (limited.scores != free.scores).any()
    assert free.scored.for_evaluation(free.whole) is free.whole


@pytest.mark.parametrize(
    ("plan", "n_actions", "floor"),
    [
        ({}, 3, 0.05),
        ({}, 10, 0.05),
        ({}, 34, 0.5 / 34),  # in a uniform trial nothing is limited, however many actions
        ({"clip": 0.2}, 3, 0.2),
        ({"clip": 0.02}, 3, 0.05),
        ({"learning_clip": 0}, 3, 0.0),
        ({"learning_clip": 0.1}, 3, 0.1),
    ],
)
def test_the_floor_is_what_the_study_says(plan, n_actions, floor):
    assert NuisancePlan(**plan).learning_floor(n_actions) == pytest.approx(floor)


def test_nothing_changes_where_no_propensity_is_small():
    data = rare(least=0.06)
    runs = [
        fedopl.learn(
            {"a": data},
            basis="linear",
            nuisances=NuisancePlan(learning_clip=least),
            evaluation=kind,
        )
        for least in (0.05, 0)
        for kind in (0.25,)
    ]
    np.testing.assert_array_equal(runs[0].policy.parameters, runs[1].policy.parameters)

    assert [row.estimate for row in runs[0].values.rows] == [
        row.estimate for row in runs[1].values.rows
    ]


def test_a_run_values_without_limits_what_it_learns_with_them():
    """The values of given policies do not move, and what is learned does."""
    data = {"a": rare(0), "b": rare(1)}
    limited, free = (
        fedopl.learn(data, basis="linear", nuisances=NuisancePlan(learning_clip=least))
        for least in (0.05, 0)
    )
    assert (limited.policy.parameters != free.policy.parameters).any()
    for arm in ("everybody gets usual", "everybody gets rare"):
        assert limited.improvements.by(arm).value == free.improvements.by(arm).value


def test_cross_fitted_values_are_of_unlimited_scores():
    """What is done so far is worth what its rewards are; arms what unlimited scores say."""
    data = {"a": rare(0), "b": rare(1)}
    values = [
        fedopl.learn(
            data,
            basis="linear",
            nuisances=NuisancePlan(learning_clip=least),
            evaluation="cross-fitted",
        ).improvements.by("everybody gets rare")
        for least in (0.05, 0)
    ]
    assert values[0].value == values[1].value


def test_rows_by_any_other_score_are_as_they_were():
    """`aipw_scores` limits nothing unless asked."""
    data = rare()
    nuisances = fedopl.cross_fit(data)
    assert not aipw_scores(data, nuisances).clipped_rows.any()


@pytest.mark.parametrize("seed", range(3))
def test_limited_weights_lose_less_where_an_action_is_rare(seed):
    lost = {}
    rng = np.random.default_rng(100 + seed)
    x = rng.standard_normal((20_000, 3))
    for least in (0.05, 0):
        data = {name: rare(10 * seed + place, least=0.001) for place, name in enumerate("abc")}
        policy = fedopl.learn(
            data, basis="linear", nuisances=NuisancePlan(learning_clip=least), evaluation=0
        ).policy
        gains = np.where(policy.decide(x) == 1, x[:, 2], 0.0)
        lost[least] = np.maximum(x[:, 2], 0).mean() - gains.mean()
    assert lost[0.05] < lost[0]


def test_a_run_says_in_how_many_rows_weights_were_limited():
    run = fedopl.learn({"a": rare(0), "b": rare(1)}, basis="linear", evaluation=0.25)
    found = limited_weights(run)
    counted = sum(
        int((rows.propensities[rows.contexts[:, 0] > 0, 1] < 0.05).sum())
        for rows in (rare(0), rare(1))
    )
    assert found.propensity == found.below == 0.05
    assert found.rows["usual"] == 0
    assert found.rows["rare"] == pytest.approx(0.75 * counted, rel=0.05)
    said = f"'rare' in about {found.rows['rare']}."
    assert said in limited_words(run)
    assert said in unescape(render(run))
    free = fedopl.learn(
        {"a": rare(0)}, basis="linear", nuisances=NuisancePlan(learning_clip=0), evaluation=0.25
    )
    assert limited_weights(free) is None
    assert not limited_words(free)
