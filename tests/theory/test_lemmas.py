"""What the proofs use and no function computes: checked where everything can be enumerated."""

import itertools

import numpy as np
import pytest
from discrete_worlds import OUTCOMES, POLICIES, draw_world

WORLDS = [draw_world(seed, spread) for seed in range(5) for spread in (0.2, 1.0)]
SIGNS = np.array(list(itertools.product((-1.0, 1.0), repeat=8)))


def every_sample(world, client):
    """(probability, context, action, outcomes) of all that can happen at a client."""
    for x, a, y in itertools.product(range(3), range(2), range(4)):
        chances = (world.contexts[client, x], world.propensities[client, x, a])
        yield np.prod([*chances, world.outcomes[client, x, y]]), x, a, OUTCOMES[y]


def score(means, inverse, action, outcomes):
    """Γ(a) for both actions, from μ(x; ·) and ω(x; ·)."""
    taken = np.arange(2) == action
    return means + (outcomes[action] - means) * inverse * taken


@pytest.mark.parametrize("world", WORLDS)
def test_oracle_scores_have_the_policys_value_as_their_mean(world):
    """Lemma C.1; with any μ̂ or any ω̂, too, but not with both: double robustness."""
    rng = np.random.default_rng(0)
    for client in range(3):
        means, inverse = world.outcomes[client] @ OUTCOMES, 1 / world.propensities[client]
        other_means, other_inverse = rng.normal(size=(3, 2)), rng.uniform(1, 5, size=(3, 2))

        def values(mu, omega, client=client):
            return sum(
                chance * score(mu[x], omega[x], a, y)[POLICIES[:, x]]
                for chance, x, a, y in every_sample(world, client)
            )

        np.testing.assert_allclose(values(means, inverse), world.values[client])
        np.testing.assert_allclose(values(other_means, inverse), world.values[client])
        np.testing.assert_allclose(values(means, other_inverse), world.values[client])
        assert np.abs(values(other_means, other_inverse) - world.values[client]).max() > 0.01


@pytest.mark.parametrize("world", WORLDS[:4])
def test_the_error_of_a_score_is_the_proofs_three_terms_and_two_have_mean_zero(world):
    """Proposition C.6: Γ̂ − Γ = Γ′ + Γ″ + Γ‴, where only the product of both errors has a mean."""
    rng = np.random.default_rng(1)
    means, inverse = world.outcomes[0] @ OUTCOMES, 1 / world.propensities[0]
    mu, omega = means + rng.normal(size=(3, 2)), inverse + rng.uniform(0, 2, size=(3, 2))
    average = np.zeros((3, 3, 2))  # by term, context and action
    for chance, x, a, y in every_sample(world, 0):
        taken = np.arange(2) == a
        terms = np.array(
            [
                (mu[x] - means[x]) * (1 - inverse[x] * taken),
                (y - means[x]) * (omega[x] - inverse[x]) * taken,
                (means[x] - mu[x]) * (omega[x] - inverse[x]) * taken,
            ]
        )
        away = score(mu[x], omega[x], a, y) - score(means[x], inverse[x], a, y)
        np.testing.assert_allclose(terms.sum(axis=0), away, atol=1e-12)
        average[:, x] += chance * terms
    np.testing.assert_allclose(average[:2], 0, atol=1e-12)
    assert np.abs(average[2]).max() > 0.01


def largest(values):
    """E_ε[sup_h |Σ ε_i·h(z_i)|] over all signs, for functions as rows of values."""
    return np.abs(SIGNS @ values.T).max(axis=1).mean()


def test_contraction_holds_for_functions_that_are_zero_at_zero_and_not_for_all():
    """Lemma A.3 says any Lipschitz function; a constant one is, and has no bound."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        values = rng.normal(size=(6, 8))
        bound = 2 * (2 * np.abs(values).max()) * largest(values)
        assert largest(values**2) <= bound
    nothing = np.zeros((1, 8))
    assert largest(nothing + 1) > largest(nothing) == 0


def test_the_mean_of_a_supremum_is_near_the_supremum_of_means():
    """Lemma A.4, with φ(u) = u², for three samples of four equally likely points."""
    rng = np.random.default_rng(3)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=3)))
    for _ in range(20):
        functions = rng.normal(size=(5, 4))  # (n_functions, n_points)
        samples = [functions[:, list(z)] for z in itertools.product(range(4), repeat=3)]
        mean = np.mean([(one**2).sum(axis=1).max() for one in samples])
        complexity = np.mean([np.abs(signs @ one.T).max(axis=1).mean() for one in samples])
        lipschitz = 2 * np.abs(functions).max()
        largest_mean = (3 * (functions**2).mean(axis=1)).max()
        assert largest_mean <= mean <= largest_mean + 4 * lipschitz * complexity


def test_hoeffdings_inequality_for_weighted_signs():
    """Lemma A.1 as the chaining uses it: P(|Σ w_i·ε_i| > t) ≤ 2·exp(−t²/(2·Σ w_i²))."""
    weights = np.random.default_rng(4).normal(size=8)
    sums = np.abs(SIGNS @ weights)
    for t in np.linspace(0.1, np.abs(weights).sum(), 30):
        assert np.mean(sums > t) <= 2 * np.exp(-(t**2) / (2 * (weights**2).sum()))
