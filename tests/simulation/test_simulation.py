import numpy as np
import pytest

from fedopl.simulation.paper import CLIENTS, paper_world


def test_sizes_are_the_papers():
    assert paper_world("homogeneous").sizes(1000) == dict.fromkeys(CLIENTS, 333)
    assert paper_world("heterogeneous").sizes(1000) == {
        "client 1": 6,
        "client 2": 497,
        "client 3": 497,
    }


@pytest.mark.parametrize(("reading", "expected"), [("variance", [10, 5, 5]), ("sd", [100, 25, 25])])
def test_scales_follow_the_reading(reading, expected):
    world = paper_world(reading=reading)
    for client, variance in zip(CLIENTS, expected, strict=True):
        data = world.logged(client, 20_000)
        assert data.contexts.var() == pytest.approx(variance, rel=0.02)
        means = world.mean_rewards(client, data.contexts)[np.arange(20_000), data.actions]
        assert (data.rewards - means).var() == pytest.approx(variance, rel=0.05)


def test_client_one_bends_and_the_others_do_not():
    world = paper_world(reading="sd")
    contexts = world.contexts("client 2", 1000, np.random.default_rng(0))
    straight = world.mean_rewards("client 2", contexts)
    np.testing.assert_allclose(world.mean_rewards("client 1", contexts), 50 * np.sin(straight / 50))
    np.testing.assert_allclose(
        world.reference_policy().scores(contexts), straight, rtol=1e-9, atol=1e-9
    )


def test_the_reference_policy_is_optimal_where_rewards_are_linear():
    world = paper_world()
    contexts = world.contexts("client 3", 5000, np.random.default_rng(1))
    best = world.mean_rewards("client 3", contexts).argmax(axis=1)
    np.testing.assert_array_equal(world.reference_policy().decide(contexts), best)
    assert world.regret(world.reference_policy(), {"client 3": 1.0}) == 0


def test_a_draw_is_reproducible_and_draws_differ():
    first, again = (paper_world(seed=3).logged("client 2", 50) for _ in range(2))
    np.testing.assert_array_equal(first.rewards, again.rewards)
    other = paper_world(seed=3).logged("client 2", 50, draw=1)
    assert (first.rewards != other.rewards).any()
    assert (paper_world(seed=3).theta != paper_world(seed=4).theta).any()


def test_values_and_regrets_add_up():
    world = paper_world(reading="sd")
    policy, weights = world.reference_policy(), {"client 1": 0.3, "client 2": 0.7}
    lost = {
        client: world.value(world.optimal_policy(client), client) - world.value(policy, client)
        for client in weights
    }
    assert lost["client 1"] > 1  # the sine turns back within reach of client 1's contexts
    assert lost["client 2"] == pytest.approx(0, abs=1e-12)
    expected = sum(weights[client] * lost[client] for client in weights)
    assert world.regret(policy, weights) == pytest.approx(expected)
    assert world.regret(policy, {"client 1": 1.0}) == pytest.approx(lost["client 1"])
