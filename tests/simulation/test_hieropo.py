import numpy as np
import pytest

from fedopl.base.errors import DataError, OptionError, StudyError
from fedopl.client.table.logged_data import LoggedData
from fedopl.simulation.hieropo import HierPolicy, Prior, hier_opo
from fedopl.simulation.paper import CLIENTS, paper_world

N_ACTIONS, N_OWN = 2, 2
WIDTH = N_ACTIONS * N_OWN
NOISE = {"north": 0.5, "east": 2.0, "south": 1.3}
# Rows of each action: plenty; none of the second; fewer than features, or one.
ROWS = {"north": (7, 4), "east": (3, 0), "south": (1, 1)}


def logged(client, seed=0, **options):
    rng = np.random.default_rng([seed, sorted(ROWS).index(client)])
    actions = rng.permutation(np.repeat(np.arange(N_ACTIONS), ROWS[client]))
    contexts = rng.normal(0.3, 2, (len(actions), WIDTH))
    options = {"action_names": ["a1", "a2"]} | options
    return LoggedData(contexts, actions, rng.normal(1, 3, len(actions)), **options)


@pytest.fixture
def clients():
    return {client: logged(client) for client in ROWS}


def in_block(data):
    """φ(x, A) in its action's block, zero elsewhere, one row at a time."""
    rows = np.zeros((data.n_rows, WIDTH))
    for row, (context, action) in enumerate(zip(data.contexts, data.actions, strict=True)):
        own = slice(action * N_OWN, (action + 1) * N_OWN)
        rows[row, own] = context[own]
    return rows


def conditioned(clients, target, prior_mean, prior_variance, task_variance, noise):
    """The posterior of the target's θ from the joint Gaussian of every θ and every Y."""
    names = list(clients)
    covariance = np.kron(np.full((len(names), len(names)), prior_variance), np.eye(WIDTH))
    covariance += task_variance * np.eye(len(covariance))
    mean = np.full(len(covariance), prior_mean)
    design = np.zeros((sum(data.n_rows for data in clients.values()), len(mean)))
    variances, first = [], 0
    for position, (name, data) in enumerate(clients.items()):
        rows = slice(first, first + data.n_rows)
        design[rows, position * WIDTH : (position + 1) * WIDTH] = in_block(data)
        variances += [noise[name]] * data.n_rows
        first += data.n_rows
    rewards = np.concatenate([data.rewards for data in clients.values()])
    of_rewards = design @ covariance @ design.T + np.diag(variances)
    gain = covariance @ design.T @ np.linalg.inv(of_rewards)
    posterior_mean = mean + gain @ (rewards - design @ mean)
    posterior = covariance - gain @ design @ covariance
    own = slice(names.index(target) * WIDTH, (names.index(target) + 1) * WIDTH)
    return posterior_mean[own], posterior[own, own]


@pytest.mark.parametrize("target", ROWS)
@pytest.mark.parametrize("prior", [(0.0, 5.0, 1.0), (-0.7, 0.4, 2.5), (1.0, 3.0, 0.0)])
def test_the_posterior_is_brute_force_conditioning(clients, target, prior):
    prior_mean, variance, task_variance = prior
    fields = dict(zip(("mean", "variance", "task_variance"), prior, strict=True))
    policy = hier_opo(clients, target, noise_variances=NOISE, prior=Prior(**fields))
    mean, covariance = conditioned(clients, target, prior_mean, variance, task_variance, NOISE)
    np.testing.assert_allclose(policy.means.ravel(), mean, rtol=0, atol=1e-10)
    ours = np.zeros((WIDTH, WIDTH))
    for action, block in enumerate(policy.covariances):
        own = slice(action * N_OWN, (action + 1) * N_OWN)
        ours[own, own] = block
    np.testing.assert_allclose(ours, covariance, rtol=0, atol=1e-10)


def test_the_defaults_are_the_priors_we_found(clients):
    policy = hier_opo(clients, "south", noise_variances=NOISE)
    mean, _ = conditioned(clients, "south", 0.0, 5.0, 1.0, NOISE)
    np.testing.assert_allclose(policy.means.ravel(), mean, rtol=0, atol=1e-10)
    assert policy.pessimism == 0.1


def test_the_order_of_the_clients_does_not_change_a_bit(clients):
    backwards = dict(reversed(clients.items()))
    first, second = (hier_opo(c, "north", noise_variances=NOISE) for c in (clients, backwards))
    np.testing.assert_array_equal(first.means, second.means)
    np.testing.assert_array_equal(first.covariances, second.covariances)


def test_an_action_nobody_took_keeps_its_prior(clients):
    policy = hier_opo(
        {"east": clients["east"]}, "east", prior=Prior(mean=0.3), noise_variances=NOISE
    )
    np.testing.assert_allclose(policy.means[1], 0.3, rtol=1e-12)
    np.testing.assert_allclose(policy.covariances[1], 6 * np.eye(N_OWN), rtol=1e-12)


def test_six_rows_of_forty_features_are_enough_to_run():
    world = paper_world()
    data = world.all_logged(1000)
    assert data[CLIENTS[0]].n_rows == 6
    noise = {client: sd**2 for client, sd in world.reward_sd.items()}
    policy = hier_opo(data, CLIENTS[0], noise_variances=noise)
    eigenvalues = np.linalg.eigvalsh(policy.covariances)
    assert eigenvalues.min() > 0
    # Where it has no rows of its own: τ + Σ̄, and two well-known clients give Σ̄ = 1/(1/5 + 2/τ).
    np.testing.assert_allclose(eigenvalues.max(axis=1), 1 + 1 / 2.2, rtol=0.01)
    weights = {CLIENTS[0]: 1.0}
    contexts = world.contexts(CLIENTS[0], 2000, np.random.default_rng(0))
    best = world.reference_policy().decide(contexts)
    assert (policy.decide(contexts) == best).mean() > 0.8
    assert world.regret(policy, weights, world.reference_policy()) < 2


def test_with_many_rows_it_learns_the_truth():
    world = paper_world("homogeneous")
    noise = dict.fromkeys(CLIENTS, 1.0)
    policy = hier_opo(world.all_logged(30_000), CLIENTS[1], noise_variances=noise)
    np.testing.assert_allclose(policy.means, world.theta, atol=0.1)
    reference = world.reference_policy()
    assert 0 <= world.regret(policy, {CLIENTS[1]: 1.0}, reference) < 0.005


def by_hand(means, variances, pessimism):
    return HierPolicy(
        means=np.array(means, float)[:, None],
        covariances=np.array(variances, float)[:, None, None],
        pessimism=pessimism,
        action_names=tuple(f"a{action}" for action in range(len(means))),
        feature_names=tuple(f"x{action}" for action in range(len(means))),
    )


def test_scores_are_means_less_so_many_standard_deviations():
    policy = by_hand([1, 2, -1], [4, 9, 0], 0.5)
    contexts = np.array([[1.0, 1.0, 1.0], [-2.0, 3.0, -4.0]])
    np.testing.assert_allclose(policy.scores(contexts), [[0, 0.5, -1], [-4, 1.5, 4]])
    np.testing.assert_array_equal(policy.decide(contexts), [1, 2])


def test_scores_use_the_whole_covariance(clients):
    policy = hier_opo(clients, "north", noise_variances=NOISE, pessimism=0.7)
    contexts = np.random.default_rng(1).normal(size=(20, WIDTH))
    for context, scores in zip(contexts, policy.scores(contexts), strict=True):
        for action in range(N_ACTIONS):
            own = context[action * N_OWN : (action + 1) * N_OWN]
            width = np.sqrt(own @ policy.covariances[action] @ own)
            assert scores[action] == pytest.approx(own @ policy.means[action] - 0.7 * width)


def test_pessimism_prefers_what_is_known():
    contexts = np.ones((1, 2))
    assert by_hand([1.0, 1.1], [0.01, 4.0], 0.0).decide(contexts) == [1]
    assert by_hand([1.0, 1.1], [0.01, 4.0], 0.1).decide(contexts) == [0]


def test_ties_go_to_the_lowest_code():
    assert by_hand([0, 2, 2], [1, 1, 1], 0.1).decide(np.ones((3, 3))).tolist() == [1, 1, 1]
    assert by_hand([5, 5], [1, 1], 0.1).decide(np.zeros((1, 2))) == [0]


def test_contexts_are_checked():
    with pytest.raises(DataError, match="learned on 2 features"):
        by_hand([1, 2], [1, 1], 0.1).decide(np.ones((1, 3)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "west"}, "target 'west'"),
        ({"prior": Prior(variance=0.0)}, "prior_variance"),
        ({"prior": Prior(variance=float("inf"))}, "prior_variance"),
        ({"prior": Prior(mean=float("nan"))}, "prior_mean"),
        ({"prior": Prior(task_variance=-1.0)}, "task_variance"),
        ({"pessimism": -0.1}, "pessimism"),
        ({"noise_variances": {"north": 1.0}}, "noise_variances\\['east'\\].*None"),
        ({"noise_variances": NOISE | {"south": 0.0}}, "noise_variances\\['south'\\]"),
    ],
)
def test_bad_settings_are_refused(clients, options, message):
    with pytest.raises(OptionError, match=message):
        hier_opo(clients, **({"target": "north", "noise_variances": NOISE} | options))


def test_clients_that_do_not_fit_together_are_refused(clients):
    other = clients | {"east": logged("east", action_names=["a1", "a3"])}
    with pytest.raises(StudyError, match="east"):
        hier_opo(other, "north", noise_variances=NOISE)
    weighted = clients | {"east": logged("east", weights=np.ones(3))}
    with pytest.raises(DataError, match="weights"):
        hier_opo(weighted, "north", noise_variances=NOISE)
    three = {"north": logged("north", action_names=["a1", "a2", "a3"])}
    with pytest.raises(DataError, match="block of features for each of 3 actions"):
        hier_opo(three, "north", noise_variances=NOISE)
