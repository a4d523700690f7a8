from dataclasses import replace

import numpy as np
import pytest
from small_worlds import (
    action_missing,
    alike_world,
    confounded,
    covariate_shift,
    many_clients,
    outcome_shift,
    propensity_shift,
)

from fedopl.base.errors import OptionError
from fedopl.policies.linear import LinearPolicy, constant_policy

WORLDS = {
    "alike": alike_world(),
    "confounded": confounded(alike_world()),
    "action missing": action_missing(alike_world(), "client 2", "a1"),
    "covariate shift": covariate_shift(alike_world()),
    "propensity shift": propensity_shift(alike_world()),
    "outcome shift": outcome_shift(alike_world()),
    "many clients": many_clients(20),
}
every_world = pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)


def points(world, n_rows=500):
    """The same contexts for everybody, so that functions can be compared."""
    return np.random.default_rng(5).normal(0, 2, (n_rows, len(world.feature_names)))


def what_differs(world):
    """Which of a client's three parts differ between clients."""
    first, *others = world.clients
    x = points(world)
    parts = {
        "contexts": lambda client: world.contexts(client, 50, np.random.default_rng(1)),
        "propensities": lambda client: world.propensities(client, x),
        "rewards": lambda client: world.mean_rewards(client, x),
    }
    return {
        name
        for name, part in parts.items()
        if not all(np.array_equal(part(first), part(other)) for other in others)
    }


@pytest.mark.parametrize(
    ("name", "differing"),
    [
        ("alike", set()),
        ("confounded", set()),
        ("action missing", {"propensities"}),
        ("covariate shift", {"contexts"}),
        ("propensity shift", {"propensities"}),
        ("outcome shift", {"rewards"}),
        ("many clients", {"rewards"}),
    ],
)
def test_only_what_is_said_to_differ_differs(name, differing):
    assert what_differs(WORLDS[name]) == differing


@every_world
def test_logged_rows_follow_the_truth(world):
    client, n_rows = world.clients[1], 20_000
    data = world.logged(client, n_rows)
    centre = world.truths[client].context_mean
    np.testing.assert_allclose(data.contexts.mean(axis=0), centre, atol=0.04)
    np.testing.assert_allclose(np.cov(data.contexts.T), np.eye(data.n_features), atol=0.05)
    noise = data.rewards - world.mean_rewards(client, data.contexts)[range(n_rows), data.actions]
    assert noise.mean() == pytest.approx(0, abs=0.03)
    assert noise.std() == pytest.approx(1, rel=0.03)
    np.testing.assert_allclose(data.contexts.T @ noise / n_rows, 0, atol=0.04)


@every_world
def test_propensities_are_the_frequencies(world):
    known = replace(world, known_propensities=True)
    client, n_rows = world.clients[1], 40_000
    data = known.logged(client, n_rows)
    np.testing.assert_allclose(data.propensities.sum(axis=1), 1)
    taken = np.eye(data.n_actions)[data.actions]
    # Overall, and in tenths of rows that differ most in how likely the action was.
    np.testing.assert_allclose(taken.mean(axis=0), data.propensities.mean(axis=0), atol=0.012)
    for action in range(data.n_actions):
        for rows in np.array_split(np.argsort(data.propensities[:, action]), 10):
            expected = data.propensities[rows, action].mean()
            assert taken[rows, action].mean() == pytest.approx(expected, abs=0.035)


def test_propensities_are_logged_only_where_known():
    unknown = confounded(alike_world()).logged("client 1", 50)
    known = confounded(alike_world(), known_propensities=True).logged("client 1", 50)
    assert unknown.propensities is None
    np.testing.assert_array_equal(unknown.rewards, known.rewards)
    assert known.propensities.shape == (50, 3)


def test_confounding_fools_the_mean_but_not_the_weighted_mean():
    data = confounded(alike_world(), known_propensities=True).logged("client 1", 20_000)
    truth = alike_world().mean_rewards("client 1", data.contexts)
    taken = np.eye(data.n_actions)[data.actions]
    errors = taken * data.rewards[:, None] / data.propensities - truth
    standard_errors = errors.std(axis=0) / np.sqrt(data.n_rows)
    naive = (taken * data.rewards[:, None]).sum(axis=0) / taken.sum(axis=0)
    assert (naive - truth.mean(axis=0) > 10 * standard_errors).all()
    assert (np.abs(errors.mean(axis=0)) < 3 * standard_errors).all()


def test_the_missing_action_never_occurs_at_that_client_only():
    world = action_missing(confounded(alike_world()), "client 2", "a3")
    counts = {client: world.logged(client, 20_000).rows_per_action for client in world.clients}
    assert counts["client 2"][2] == 0
    assert min(counts["client 1"].min(), counts["client 3"].min(), *counts["client 2"][:2]) > 100
    assert (world.propensities("client 2", points(world))[:, 2] == 0).all()
    assert world.logged("client 2", 10).action_names == ("a1", "a2", "a3")


def test_a_missing_action_stays_missing_whatever_else_is_changed():
    world = action_missing(alike_world(), "client 1", "a1")
    for change in (confounded, covariate_shift, propensity_shift, outcome_shift):
        world = change(world)
    assert world.logged("client 1", 5000).rows_per_action[0] == 0


def test_shifts_have_the_size_they_are_given():
    clients = 400
    base = alike_world(clients)
    (truth,) = set(base.truths.values())
    for change, part in [
        (covariate_shift, "context_mean"),
        (propensity_shift, "leaning"),
        (outcome_shift, "slopes"),
    ]:
        parts = [getattr(truth, part) for truth in change(base, 0.3).truths.values()]
        moved = np.stack(parts) - getattr(truth, part)
        assert moved.std() == pytest.approx(0.3, rel=0.05)
        assert moved.mean() == pytest.approx(0, abs=0.03)


@every_world
def test_nothing_beats_the_optimal_policy(world):
    names, features = world.action_names, world.feature_names
    rng = np.random.default_rng(0)
    share = rng.dirichlet(np.ones(len(world.clients)))
    for weights in (
        dict.fromkeys(world.clients, 1 / len(world.clients)),
        dict(zip(world.clients, share, strict=True)),
        {world.clients[1]: 1.0},
    ):
        best = world.optimal_policy(weights)
        assert world.regret(best, weights, 1000) == 0
        near = best.parameters + 0.05 * rng.standard_normal((20, *best.parameters.shape))
        rivals = [LinearPolicy(parameters, names, features) for parameters in near]
        constants = [constant_policy(name, names, features) for name in names]
        assert all(world.regret(policy, weights, 300) > -1e-12 for policy in rivals)
        assert all(world.regret(policy, weights, 1000) > 0.01 for policy in constants)


def test_without_weights_the_optimal_policy_is_for_equal_ones():
    world = outcome_shift(alike_world())
    slopes = np.mean([truth.slopes for truth in world.truths.values()], axis=0)
    np.testing.assert_allclose(world.optimal_policy().parameters, slopes)


def test_the_optimal_policy_takes_the_best_action_of_each_context():
    world = covariate_shift(alike_world())
    x = points(world)
    best = world.mean_rewards("client 3", x).argmax(axis=1)
    np.testing.assert_array_equal(world.optimal_policy().decide(x), best)


def test_where_contexts_and_rewards_both_differ_only_single_clients_have_a_linear_optimum():
    world = covariate_shift(outcome_shift(alike_world()))
    with pytest.raises(OptionError, match="contexts and rewards both differ"):
        world.optimal_policy()
    best = world.optimal_policy({"client 1": 0.0, "client 2": 1.0})
    np.testing.assert_array_equal(best.parameters, world.truths["client 2"].slopes)


def test_outcome_shift_makes_one_policy_for_all_cost_something():
    costs = []
    for size in (0.0, 0.3, 1.0):
        world = outcome_shift(alike_world(), size)
        costs.append(world.regret(world.optimal_policy(), {"client 1": 1.0}))
    assert costs[0] == 0
    assert 0 < costs[1] < costs[2]


def test_value_is_the_mean_reward_of_what_is_decided():
    world = confounded(covariate_shift(alike_world(seed=1)), known_propensities=True)
    policy = world.optimal_policy()
    data = world.logged("client 2", 100_000)
    agrees = policy.decide(data.contexts) == data.actions
    chances = data.propensities[range(data.n_rows), data.actions]
    estimate = (agrees * data.rewards / chances).mean()
    assert world.value(policy, "client 2", 100_000) == pytest.approx(estimate, abs=0.1)


def test_a_thousand_clients_work():
    world = many_clients(1000, heterogeneity=0.2)
    assert len(world.clients) == 1000
    assert list(world.clients) == sorted(world.clients)
    assert len({world.logged(client, 5).rewards.tobytes() for client in world.clients}) == 1000
    weights = dict.fromkeys(world.clients, 1 / 1000)
    centre = LinearPolicy(
        alike_world().truths["client 1"].slopes, world.action_names, world.feature_names
    )
    assert 0 <= world.regret(centre, weights, 500) < 0.001


def test_heterogeneity_zero_is_alike():
    assert what_differs(many_clients(5, heterogeneity=0.0)) == set()


def bytes_of(data):
    return b"".join(array.tobytes() for array in (data.contexts, data.actions, data.rewards))


@pytest.mark.parametrize("change", [covariate_shift, propensity_shift, outcome_shift, confounded])
def test_the_same_seed_gives_the_same_bytes(change):
    def rows(seed, draw=0, n_clients=3):
        return bytes_of(change(alike_world(n_clients, seed=seed)).logged("client 2", 60, draw))

    assert rows(4) == rows(4)
    assert rows(4) != rows(5)
    assert rows(4) != rows(4, draw=1)
    # Who else there is makes no difference to a client.
    assert rows(4) == rows(4, n_clients=8)


def test_a_longer_name_is_another_client():
    world = alike_world(10)
    assert world.clients[0] == "client 01"
    assert bytes_of(world.logged("client 01", 9)) != bytes_of(world.logged("client 02", 9))


def test_what_cannot_be_is_refused():
    with pytest.raises(OptionError, match="two actions"):
        alike_world(n_actions=1)
    with pytest.raises(OptionError, match="no action 'a9'"):
        action_missing(alike_world(), "client 1", "a9")
    with pytest.raises(OptionError, match="no action 'a1' at 'client 9'"):
        action_missing(alike_world(), "client 9", "a1")
    world = action_missing(alike_world(n_actions=2), "client 1", "a1")
    with pytest.raises(OptionError, match="last action"):
        action_missing(world, "client 1", "a2")
    with pytest.raises(OptionError, match="came none"):
        world.optimal_policy({"client 1": 0.0})


def test_a_world_says_how_large_it_is():
    assert repr(alike_world()) == "World(3 clients, 3 actions, 4 features)"
