from dataclasses import replace

import numpy as np
import pytest
from test_door import ask, door_to, reason, scored, study_of, without_action

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.messages.about_differences import ScoreMoments, TellMoments
from fedopl.study.plans import Declared, NuisancePlan

FIELDS = ("rows", "degrees_of_freedom", "means", "variances")


def diagnosed(**changes):
    return study_of(TellMoments, **changes)


def with_scores(door, scores):
    """The door, with these scores of its training rows in place of its own."""
    kept = scored(door)._space.scored
    values = kept.values.copy()
    values[door._space.training] = scores
    door._space.keep(replace(kept, values=values))
    return door


def grouped(data, groups=None, weights=None):
    return fedopl.LoggedData(
        data.contexts,
        data.actions,
        data.rewards,
        action_names=data.action_names,
        groups=groups,
        weights=weights,
    )


@pytest.mark.parametrize("is_grouped", [False, True], ids=["alone", "grouped"])
@pytest.mark.parametrize("is_weighted", [False, True], ids=["plain", "weighted"])
def test_moments_are_those_of_a_loop_over_training_rows(draw, is_weighted, is_grouped):
    weights = np.random.default_rng(5).uniform(0.5, 2.0, 300) if is_weighted else None
    groups = np.arange(300) // 3 if is_grouped else None
    door = scored(door_to(grouped(draw(300), groups, weights), diagnosed(), limits=Limits()))
    told = ask(door, TellMoments)
    space = door._space
    rows = range(space.n_training)
    share = np.ones(300) if weights is None else space.data.weights
    share = share / share[rows].sum()
    of_row = np.arange(300) if groups is None else space.data.groups
    for place in range(4):
        squares = {
            row: max(space.scores[row] ** 2) if place == 0 else space.scores[row, place - 1] ** 2
            for row in rows
        }
        mean = sum(share[row] * squares[row] for row in rows)
        by_group = {}
        for row in rows:
            by_group[of_row[row]] = by_group.get(of_row[row], 0) + share[row] * (
                squares[row] - mean
            )
        n_groups = len(by_group)
        variance = n_groups / (n_groups - 1) * sum(one**2 for one in by_group.values())
        assert told.means[place] == pytest.approx(mean)
        assert told.variances[place] == pytest.approx(variance)
        assert told.rows[place] == len(rows)
        assert told.degrees_of_freedom[place] == n_groups - 1
    assert (told.rows > 0).all()
    assert (told.means[0] >= told.means[1:]).all()


def test_an_action_without_scores_has_no_moment_and_the_largest_is_of_the_others(draw):
    study = diagnosed(nuisances=NuisancePlan(propensity="marginal", kind="local"))
    door = scored(door_to(without_action(draw(900), 1), study, limits=Limits()))
    told = ask(door, TellMoments)
    assert (told.rows > 0).tolist() == [True, True, False, True]
    assert all(getattr(told, name)[2] == 0 for name in FIELDS)
    known = door._space.scores[door._space.training][:, [0, 2]]
    assert told.means[0] == pytest.approx((known**2).max(axis=1).mean())


@pytest.mark.parametrize("more", [0, 1])
def test_a_mean_that_rests_on_few_rows_is_left_out(draw, more):
    door = door_to(draw(300), diagnosed(), limits=Limits())
    scores = np.ones((door._space.n_training, 3))
    scores[4 + more :, 1] = np.nan
    told = ask(with_scores(door, scores), TellMoments)
    assert all(bool(getattr(told, name)[2]) == bool(more) for name in FIELDS[:3])


# --- what is declared ----------------------------------------------------------------------------


def with_one_reward(data, reward):
    rewards = np.clip(data.rewards, -3, 3)
    rewards[7] = reward
    return fedopl.LoggedData(
        data.contexts, data.actions, rewards, data.propensities, action_names=data.action_names
    )


@pytest.mark.parametrize(("reward", "is_beyond"), [(5.0, False), (-5.0, False), (-5.01, True)])
def test_one_reward_beyond_what_is_declared_is_refused(draw, reward, is_beyond):
    study = diagnosed(declared=Declared(reward=5.0))
    told = ask(scored(door_to(with_one_reward(draw(300), reward), study)), TellMoments)
    if is_beyond:
        assert reason(told) == "BEYOND_DECLARED"
    else:
        assert isinstance(told, ScoreMoments)


@pytest.mark.parametrize("nuisances", ["known", "logistic", "marginal"])
@pytest.mark.parametrize("by", [-1e-9, 1e-9])
def test_overlap_is_held_against_known_propensities_or_else_fitted_ones(draw, nuisances, by):
    data = draw(300, known=nuisances == "known", confounded=True)
    plan = NuisancePlan(propensity=nuisances, clip=0.2)  # clipping does not make it true
    space = door_to(data, diagnosed(nuisances=plan))._space
    least = space.propensities.of(space.study_rows.whole).min()
    if nuisances == "known":
        assert least == data.propensities.min()
    study = diagnosed(nuisances=plan, declared=Declared(overlap=least + by))
    told = ask(scored(door_to(data, study)), TellMoments)
    if by > 0:
        assert reason(told) == "BEYOND_DECLARED"
    else:
        assert isinstance(told, ScoreMoments)


def test_a_propensity_that_is_not_known_contradicts_nothing(draw):
    data = draw(300, known=True, confounded=True)
    logged = data.propensities[np.arange(300), data.actions]
    only = fedopl.LoggedData(
        data.contexts, data.actions, data.rewards, logged, action_names=data.action_names
    )
    between = (data.propensities.min() + logged.min()) / 2
    study = diagnosed(
        nuisances=NuisancePlan(propensity="known"), declared=Declared(overlap=between)
    )
    assert isinstance(ask(scored(door_to(only, study)), TellMoments), ScoreMoments)
    assert reason(ask(scored(door_to(data, study)), TellMoments)) == "BEYOND_DECLARED"
