"""Personal solutions from sums: against least squares and likelihoods on the rows themselves."""

import numpy as np
import pytest

from fedopl.policies.linear import NEVER
from fedopl.solvers.personal_ridge import (
    RIDGE_STRENGTHS,
    BendSums,
    OwnSums,
    PersonalPath,
    Scaling,
    Strengths,
    knots_of,
)

N_ROWS, N_ACTIONS = 60, 3


def drawn(seed=0, n_rows=N_ROWS):
    """Terms with a one, scores, and the policy of others."""
    rng = np.random.default_rng(seed)
    terms = np.column_stack([rng.normal(2, [1.0, 3.0, 0.5], (n_rows, 3)), np.ones(n_rows)])
    others = rng.normal(size=(N_ACTIONS, 4))
    scores = terms @ (others + 0.3 * rng.normal(size=others.shape)).T
    return terms, scores + rng.normal(size=scores.shape), others


def scaling_of(terms):
    centre, scale = terms.mean(axis=0), terms.std(axis=0)
    centre[-1], scale[-1] = 0.0, 1.0
    return Scaling(centre=centre, scale=scale)


def sums_of(terms, scores, known=(True, True, True)):
    known = np.array(known)
    apart = scores[:, known] - scores[:, known].mean(axis=1, keepdims=True)
    return OwnSums(
        gram=terms.T @ terms / len(terms),
        products=scores.T @ terms / len(terms),
        known=known,
        squares=float((apart**2).sum(axis=1).mean()),
        n_rows=len(terms),
    )


def standardised(terms):
    scaling = scaling_of(terms)
    return (terms - scaling.centre) / scaling.scale


@pytest.mark.parametrize("strength", [1e-4, 0.01, 1.0, 1e3])
def test_the_solution_is_ridge_toward_the_policy_of_others(strength):
    terms, scores, others = drawn()
    scaling = scaling_of(terms)
    found = PersonalPath.of(sums_of(terms, scores), others, scaling).at(strength)
    z = standardised(terms)
    given = scaling.forth(others)
    given -= given.mean(axis=0)
    apart = scores - scores.mean(axis=1, keepdims=True)
    ridge = np.vstack([z, np.eye(4) / np.sqrt(strength)])
    for action in range(N_ACTIONS):
        wanted = np.concatenate([apart[:, action], given[action] / np.sqrt(strength)])
        solved = np.linalg.lstsq(ridge, wanted, rcond=None)[0]
        assert np.allclose(terms @ (found[action] - others.mean(axis=0)), z @ solved)


def test_no_strength_is_the_policy_of_others_and_all_of_it_least_squares():
    terms, scores, others = drawn()
    path = PersonalPath.of(sums_of(terms, scores), others, scaling_of(terms))
    assert np.array_equal(path.at(0.0), others)
    alone = np.linalg.lstsq(terms, scores, rcond=None)[0].T
    for strength in (np.inf, 1e12):
        found = path.at(strength)
        assert np.allclose(found - found.mean(axis=0), alone - alone.mean(axis=0), atol=1e-6)
    assert np.allclose(path.at(1e-12), others, atol=1e-7)


def test_the_likelihood_is_that_of_the_rows():
    """Contrasts of scores are normal with covariance σ²(I + r·ZZᵀ), and σ² is at its best."""
    terms, scores, others = drawn(1)
    path = PersonalPath.of(sums_of(terms, scores), others, scaling_of(terms))
    z, left = standardised(terms), scores - terms @ others.T
    contrasts = np.linalg.svd(np.eye(N_ACTIONS) - 1 / N_ACTIONS)[0][:, : N_ACTIONS - 1]
    values = left @ contrasts

    def of(strength):
        covariance = np.eye(N_ROWS) + strength * z @ z.T
        square = float((values * np.linalg.solve(covariance, values)).sum())
        determinant = np.linalg.slogdet(covariance)[1]
        n_values = values.size
        return -0.5 * (n_values * np.log(square) + (N_ACTIONS - 1) * determinant)

    expected = np.array([of(strength) for strength in RIDGE_STRENGTHS])
    assert np.allclose(path.log_likelihoods(), expected - expected[0], atol=1e-6)


def test_an_action_without_scores_stays_as_others_have_it():
    terms, scores, others = drawn()
    others[2, :-1], others[2, -1] = 0.0, NEVER
    path = PersonalPath.of(sums_of(terms, scores), others, scaling_of(terms))
    assert path.compared.tolist() == [True, True, False]
    assert np.array_equal(path.at(1.0)[2], others[2])
    masked = sums_of(terms, scores, known=(True, False, False))
    alone = PersonalPath.of(masked, others, scaling_of(terms))
    assert np.array_equal(alone.at(1.0), others)
    assert not alone.log_likelihoods().any()


def test_terms_that_are_not_used_have_no_part():
    terms, scores, others = drawn()
    others[:, 1] = 0.0
    scaling = scaling_of(terms)
    scaling.scale[1] = 0.0
    found = PersonalPath.of(sums_of(terms, scores), others, scaling).at(0.1)
    assert not found[:, 1].any()
    fewer = np.delete(terms, 1, axis=1)
    path = PersonalPath.of(sums_of(fewer, scores), np.delete(others, 1, axis=1), scaling_of(fewer))
    assert np.allclose(np.delete(found, 1, axis=1), path.at(0.1))


def test_own_rows_and_others_speak_together_for_a_strength():
    own, others = np.zeros(len(RIDGE_STRENGTHS)), np.zeros(len(RIDGE_STRENGTHS))
    both = Strengths(own=own, others=others)
    assert both.best == 0.0
    assert both.evidence == 0.0
    own[10], others[20] = 1.0, 2.0
    assert both.best == RIDGE_STRENGTHS[20]
    own[10] = 3.0
    assert both.best == RIDGE_STRENGTHS[10]
    assert np.isclose(both.weights.sum(), 1)
    assert np.isclose(both.weights[10] / both.weights[0], np.e**3)
    assert np.isclose(np.exp(both.evidence), np.exp(own).mean())


def test_a_mean_over_strengths_is_that_of_the_solutions():
    terms, scores, others = drawn(2)
    path = PersonalPath.of(sums_of(terms, scores), others, scaling_of(terms))
    weights = Strengths(own=path.log_likelihoods(), others=np.zeros(len(RIDGE_STRENGTHS))).weights
    each = np.array([path.at(strength) for strength in RIDGE_STRENGTHS])
    assert np.allclose(path.mean(weights), np.tensordot(weights, each, axes=1))


def bend_of(index, scores):
    sums = BendSums(knots_of(index), float(index.std()))
    half = len(index) // 2
    for rows in (slice(0, half), slice(half, None)):
        sums.add(index[rows], scores[rows], None)
    return sums.bend()


def bent(bend, index):
    hinges = np.maximum(index[..., None] - bend.knots, 0.0) @ bend.slopes[1:]
    return bend.slopes[0] * index + hinges


def test_effects_that_turn_are_followed():
    rng = np.random.default_rng(0)
    index = rng.normal(0, 2, (4_000, N_ACTIONS))
    common = rng.normal(0, 5, (4_000, 1))  # what all actions have in common decides nothing
    bend = bend_of(index, np.sin(index) + common + 0.3 * rng.normal(size=index.shape))
    assert bend.evidence > 100
    inner = np.abs(index).max(axis=1) < 3
    found, truth = bent(bend, index)[inner], np.sin(index)[inner]
    apart = found - found.mean(axis=1, keepdims=True) - (truth - truth.mean(axis=1, keepdims=True))
    assert np.sqrt((apart**2).mean()) < 0.1


def test_an_index_that_is_right_is_left_alone():
    rng = np.random.default_rng(0)
    index = rng.normal(0, 1, (500, N_ACTIONS))
    bend = bend_of(index, index + rng.normal(size=index.shape))
    assert bend.evidence < 2
    assert np.allclose(bent(bend, index), index, atol=0.5)


def test_weights_count_as_rows():
    rng = np.random.default_rng(0)
    index = rng.normal(0, 1, (50, N_ACTIONS))
    scores = np.sin(index) + 0.1 * rng.normal(size=index.shape)
    knots, unit = knots_of(index), float(index.std())
    once, twice = BendSums(knots, unit), BendSums(knots, unit)
    once.add(index, scores, np.full(50, 2.0))
    twice.add(index, scores, None)
    assert np.allclose(once.bend().slopes, twice.bend().slopes)
