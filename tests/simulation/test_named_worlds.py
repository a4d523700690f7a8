import numpy as np
import pytest

from fedopl.base.errors import OptionError
from fedopl.policies.linear import constant_policy
from fedopl.simulation.named_worlds import SHAPED_WORLDS, shaped_world

SAME_REWARDS = set(SHAPED_WORLDS) - {"clients-differ", "noisy-and-different", "larger-effects"}
every_world = pytest.mark.parametrize("name", SHAPED_WORLDS)


class Rule:
    """A policy from a function."""

    def __init__(self, rule):
        self.decide = rule


def arms(world):
    names = tuple(f"a{action + 1}" for action in range(world.n_actions))
    features = tuple("uvwxyz")
    return [constant_policy(name, names, features) for name in names]


@every_world
def test_logged_actions_follow_the_propensities_and_rewards_the_means(name):
    world = shaped_world(name, seed=2)
    client = world.clients[-1]
    data = world.logged(client, 20_000)
    chances = world.propensities(client, data.contexts)
    assert chances.sum(axis=1) == pytest.approx(1)
    taken = data.actions[:, None] == np.arange(world.n_actions)
    spread = np.sqrt((chances * (1 - chances)).sum(axis=0))
    assert (abs(taken.sum(axis=0) - chances.sum(axis=0)) < 4 * spread).all()
    means = world.mean_rewards(client, data.contexts)[np.arange(20_000), data.actions]
    # Half of the noise lies above 0, whether it has a variance or not.
    assert np.mean(data.rewards > means) == pytest.approx(0.5, abs=0.015)


@every_world
def test_propensities_are_as_low_as_the_world_says(name):
    world = shaped_world(name, seed=1)
    lowest = {"poor-overlap": 0.01, "ten-actions": 0.02}.get(name, 0.05)
    for client in world.clients:
        chances = world.propensities(client, world.test_contexts(client))
        assert lowest - 1e-12 <= chances.min() < lowest + 0.03
        assert chances.max() <= 1 - lowest


@every_world
def test_no_policy_beats_the_best_one(name):
    world = shaped_world(name, seed=4)
    contexts, lost = world.losses(4_000)
    assert world.regret(world, 4_000) == 0
    if name in SAME_REWARDS:
        assert lost.min() == 0
    else:
        # One action may be better at a client, but no rule of contexts is better for them all.
        assert lost.min() < 0
        sides = contexts[:, :5] > 0
        assert all(lost[side].mean(axis=0).min() > -0.01 for side in sides.T)
    assert all(world.regret(arm, 4_000) > 0.02 for arm in arms(world))


@every_world
def test_regret_is_the_difference_of_values(name):
    world = shaped_world(name, seed=5)
    arm = arms(world)[0]
    best, own = world.values(world), world.values(arm)
    assert world.regret(arm) == pytest.approx(
        np.mean(list(best.values()) - np.array([*own.values()]))
    )


def test_the_best_policy_weighs_clients_by_how_likely_a_context_is_theirs():
    world = shaped_world("larger-effects", seed=0)
    alike = Rule(
        lambda x: np.sum([world.mean_rewards(name, x) for name in world.clients], axis=0).argmax(1)
    )
    assert world.regret(alike) > 0.01


def test_what_was_earned_is_the_mean_of_what_was_logged():
    world = shaped_world("smooth", seed=3)
    earned = world.logging_values(100_000)
    for client in world.clients:
        assert world.logged(client, 50_000).rewards.mean() == pytest.approx(
            earned[client], abs=0.03
        )


@every_world
def test_a_seed_decides_everything_and_another_draw_is_another_sample(name):
    world, again, other = (shaped_world(name, seed) for seed in (7, 7, 8))
    client = world.clients[0]
    first = world.logged(client, 50).rewards
    assert np.array_equal(first, again.logged(client, 50).rewards)
    assert not np.array_equal(first, world.logged(client, 50, draw=1).rewards)
    points = world.test_contexts(client, 50)
    means, others = world.mean_rewards(client, points), other.mean_rewards(client, points)
    assert not np.array_equal(means, others)


def test_only_worlds_about_few_rows_have_a_size_of_their_own():
    own = {name: shaped_world(name).rows for name in SHAPED_WORLDS}
    assert {name: rows for name, rows in own.items() if rows} == {
        "few-rows": 60,
        "both-nonlinear": 400,
    }
    assert [data.n_rows for data in shaped_world("few-rows").all_logged(500).values()] == [60] * 10


def test_clients_differ_as_the_names_say():
    contexts = shaped_world("linear").test_contexts("client 1", 100)
    for name in SHAPED_WORLDS:
        world = shaped_world(name)
        first, *others = (world.mean_rewards(client, contexts) for client in world.clients)
        same = all(np.array_equal(first, other) for other in others)
        assert same == (name in SAME_REWARDS)


def test_neither_number_of_an_xor_tells_anything_alone():
    world = shaped_world("xor", seed=1)
    contexts, lost = world.losses()
    best = lost.argmin(axis=1)
    moved = [abs(np.corrcoef(contexts[:, feature], best)[0, 1]) for feature in range(5)]
    assert max(moved) < 0.4
    assert set(best) == {1, 2}


def test_a_world_that_does_not_exist_is_named_with_those_that_do():
    with pytest.raises(OptionError, match=r"'linear'.*came 'cubic'"):
        shaped_world("cubic")
