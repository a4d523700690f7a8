import math

import numpy as np
import pytest
from discrete_worlds import POLICIES, draw_world
from hypothesis import given
from hypothesis import strategies as st

from fedopl.base.errors import DataError, OptionError
from fedopl.theory import divergences
from fedopl.theory.bounds import (
    KLEIN_RIO,
    PROOF_CONSTANTS,
    UniversalConstants,
    chi_squared_local_regret_bound,
    discrepancy,
    discrepancy_local_regret_bound,
    global_regret_bound,
    local_regret_bound,
    oracle_discrepancy,
    oracle_regret_bound,
    outcome_local_regret_bound,
    rademacher_bound,
    shift_bound,
)
from fedopl.theory.policy_classes import (
    centred_scores,
    envelope_second_moment,
    envelope_variance,
    exact_rademacher,
    global_score_bound,
    largest_second_moment,
    oracle_second_moment,
    score_bound,
    weighted_variance,
)
from fedopl.theory.skew import row_weights, skewness

WORLDS = [draw_world(seed, spread) for seed in range(20) for spread in (0.05, 0.5, 2.0)]
POSITIVE = st.floats(0.01, 100)


@given(POSITIVE, POSITIVE, st.floats(1, 50), st.integers(1, 10**6), st.floats(0.001, 0.5))
def test_theorem_one_is_its_formula(kappa, moment, skew, n_rows, delta):
    constants = UniversalConstants(entropy=3.0, confidence=5.0)
    bound = global_regret_bound(kappa, moment, skew, n_rows, delta, constants)
    factor = 3 * kappa + math.sqrt(5 * math.log(5 / delta))
    assert bound.total == pytest.approx(factor * math.sqrt(moment * skew / n_rows))
    assert bound.complexity == pytest.approx(3 * kappa * math.sqrt(moment / n_rows))
    assert bound.skew >= -1e-9


def test_theorem_one_grows_with_skew_and_complexity_and_shrinks_with_rows_and_doubt():
    def total(kappa=1.0, moment=2.0, skew=1.5, n_rows=1000, delta=0.05):
        return global_regret_bound(kappa, moment, skew, n_rows, delta).total

    assert total(skew=1.0) < total() < total(skew=3.0)
    assert total(n_rows=2000) < total()
    assert total(kappa=0.5) < total()
    assert total(moment=1.0) < total()
    assert total(delta=0.1) < total()
    assert total(n_rows=4000) == pytest.approx(total() / 2)
    assert total(skew=6.0) == pytest.approx(2 * total())


def test_without_skew_nothing_is_due_to_skew():
    assert global_regret_bound(1.0, 2.0, 1.0, 100, 0.05).skew == 0


def test_the_proofs_constants_absorb_the_proofs_terms_at_every_delta():
    def spare(confidence, delta):
        proof = 2 * (56 + math.sqrt(KLEIN_RIO * math.log(KLEIN_RIO / delta)))
        return math.sqrt(confidence * math.log(confidence / delta)) - proof

    deltas = [1 - 1e-12, 0.9, 0.5, 0.05, 1e-3, 1e-9, 1e-100, 1e-300]
    assert all(spare(PROOF_CONSTANTS.confidence, delta) >= 0 for delta in deltas)
    assert min(spare(PROOF_CONSTANTS.confidence - 1, delta) for delta in deltas) < 0
    assert PROOF_CONSTANTS.entropy == 2 * 24


@given(st.integers(0, 10**6), st.floats(0.05, 0.95))
def test_theorem_one_is_never_below_the_oracle_bound_it_comes_from(seed, share):
    rng = np.random.default_rng(seed)
    scores, decisions = rng.normal(size=(30, 3)), rng.integers(0, 3, size=(5, 30))
    codes = np.array([0] * 10 + [1] * 20)
    weights = row_weights([share, 1 - share], codes)
    variance = weighted_variance(scores, decisions, weights)
    skew = skewness({"a": share, "b": 1 - share}, {"a": 10, "b": 20})
    moment = max(
        largest_second_moment(scores[codes == c], decisions[:, codes == c]) for c in (0, 1)
    )
    assert variance <= 4 * moment * skew * (1 + 1e-9)
    assert variance <= envelope_variance(scores, weights) * (1 + 1e-9)
    oracle = oracle_regret_bound(1.0, variance, 30, 0.05)
    assert oracle <= global_regret_bound(1.0, moment, skew, 30, 0.05).total


def test_the_oracle_bound_has_the_proofs_constants():
    bound = oracle_regret_bound(2.0, 9.0, 100, 0.1)
    assert bound == pytest.approx((56 + 48 + math.sqrt(2 * math.log(20))) * 0.3)


def test_the_weighted_variance_is_its_formula():
    rng = np.random.default_rng(4)
    scores, decisions = rng.normal(size=(12, 2)), rng.integers(0, 2, size=(4, 12))
    codes, lam = np.array([0] * 3 + [1] * 9), np.array([0.6, 0.4])
    expected = max(
        sum(
            lam[c] ** 2
            / np.mean(codes == c)
            * np.mean(
                [(scores[i, a[i]] - scores[i, b[i]]) ** 2 for i in np.flatnonzero(codes == c)]
            )
            for c in (0, 1)
        )
        for a in decisions
        for b in decisions
    )
    assert weighted_variance(scores, decisions, row_weights(lam, codes)) == pytest.approx(expected)


def test_the_rademacher_bound_holds_for_the_centred_class_and_not_for_one_policy_as_it_is():
    rng = np.random.default_rng(5)
    scores, decisions = 10 + rng.normal(size=(12, 2)), rng.integers(0, 2, size=(5, 12))
    weights = np.full(12, 1 / 12)
    kappa = math.sqrt(math.log(5))
    bound = rademacher_bound(kappa, weighted_variance(scores, decisions, weights), 12)
    assert exact_rademacher(centred_scores(scores, decisions[0]), decisions, weights) <= bound
    alone = decisions[:1]
    assert rademacher_bound(0.0, weighted_variance(scores, alone, weights), 12) == 0
    assert exact_rademacher(scores, alone, weights) > 1
    assert exact_rademacher(centred_scores(scores, alone[0]), alone, weights) == 0


def test_second_moments_are_of_scores_squared():
    scores = np.array([[1.0, -3.0], [2.0, 0.0]])
    constants = np.array([[0, 0], [1, 1]])
    assert largest_second_moment(scores, constants) == 4.5
    assert envelope_second_moment(scores) == (9 + 4) / 2
    best = oracle_second_moment(scores, lambda values: float(values.sum(axis=0).max()))
    assert best == 4.5


def test_the_score_bound_covers_every_score():
    rng = np.random.default_rng(6)
    for _ in range(200):
        eta = rng.uniform(0.01, 0.5)
        outcome, mean = rng.uniform(-2, 2, size=2)
        assert abs(mean + (outcome - mean) / rng.uniform(eta, 1)) <= score_bound(2.0, eta)
    assert global_score_bound([1.0, 2.0], [0.5, 0.1]) == pytest.approx(60)


@pytest.mark.parametrize("world", WORLDS)
def test_every_local_bound_holds_for_every_policy(world):
    joint, values = world.joint, world.values
    mixture, mean_values = world.weights @ joint, world.weights @ values
    bound = score_bound(1.0, float(world.propensities.min()))
    for c in range(3):
        tv = float(divergences.total_variation(joint[c], mixture))
        bare = float(
            divergences.total_variation(
                world.without_actions[c], world.weights @ world.without_actions
            )
        )
        chi = float(divergences.chi_squared(joint[c], mixture))
        assert bare <= tv + 1e-12
        for j in range(len(POLICIES)):
            local = values[c].max() - values[c, j]
            overall = max(mean_values.max() - mean_values[j], 0.0)
            printed = local_regret_bound(overall, tv, bound)
            sharper = outcome_local_regret_bound(overall, bare, 1.0)
            by_chi = chi_squared_local_regret_bound(overall, chi, world.second_moment)
            assert local <= sharper.total + 1e-12 <= printed.total + 2e-12
            assert local <= by_chi.total + 1e-12


@pytest.mark.parametrize("world", WORLDS)
def test_theorem_three_splits_the_shift(world):
    for c in range(3):
        covariates = divergences.kl(np.tile(world.contexts[c], (3, 1)), world.contexts)
        propensities, outcomes = (
            [
                divergences.averaged(divergences.kl(rows[c], rows[k]), world.contexts[c])
                for k in range(3)
            ]
            for rows in (world.propensities, world.outcomes)
        )
        parts = np.sum([covariates, propensities, outcomes], axis=0)
        whole = divergences.kl(np.tile(world.joint[c], (3, 1)), world.joint)
        np.testing.assert_allclose(parts, whole, rtol=1e-9, atol=1e-12)
        bound = shift_bound(world.weights, covariates, propensities, outcomes)
        tv = float(divergences.total_variation(world.joint[c], world.weights @ world.joint))
        assert tv <= bound.joint + 1e-12 <= bound.total + 2e-12
        assert bound.total == pytest.approx(bound.covariates + bound.propensities + bound.outcomes)


def test_a_part_that_all_clients_share_adds_nothing():
    bound = shift_bound([0.5, 0.5], [0.0, 0.4], [0.0, 0.0], [0.0, 0.1])
    assert bound.propensities == 0
    assert bound.covariates == pytest.approx(0.5 * math.sqrt(0.4))
    assert bound.joint == pytest.approx(0.5 * math.sqrt(0.25))


def test_clients_without_weight_do_not_count_even_infinitely_far_away():
    bound = shift_bound([1.0, 0.0], [0.0, math.inf], [0.0, 0.0], [0.0, 0.0])
    assert (bound.total, bound.joint) == (0, 0)


@given(st.integers(0, 10**6), st.floats(0, 1))
def test_the_discrepancy_bounds_local_regret_more_tightly_than_its_double(seed, share):
    rng = np.random.default_rng(seed)
    codes, lam = np.array([0] * 5 + [1] * 8), [share, 1 - share]
    scores = rng.normal(size=(13, 3)) + codes[:, None] * rng.normal(size=3)
    decisions = rng.integers(0, 3, size=(6, 13))
    chosen = scores[np.arange(13), decisions]
    values = np.array([chosen[:, codes == c].mean(axis=1) for c in (0, 1)])
    overall = lam @ values
    for c in (0, 1):
        gap = discrepancy(scores, decisions, lam, codes, c)
        assert gap.largest == pytest.approx(np.abs(values[c] - overall).max(), abs=1e-12)
        assert gap.regret_gap <= 2 * gap.largest + 1e-12
        searched = oracle_discrepancy(
            scores,
            lambda signed: float(signed[np.arange(13), decisions].sum(axis=1).max()),
            lam,
            codes,
            c,
        )
        assert searched.above == pytest.approx(gap.above, abs=1e-12)
        assert searched.below == pytest.approx(gap.below, abs=1e-12)
        for j in range(6):
            bound = discrepancy_local_regret_bound(overall.max() - overall[j], gap)
            assert values[c].max() - values[c, j] <= bound.total + 1e-9


def test_local_bounds_keep_their_terms_apart():
    bound = local_regret_bound(0.25, 0.1, 6.0)
    assert (bound.shift, bound.global_regret) == (pytest.approx(0.6), 0.25)
    assert bound.total == pytest.approx(0.85)
    assert chi_squared_local_regret_bound(0.0, 0.09, 4.0).total == pytest.approx(1.2)
    assert outcome_local_regret_bound(0.0, 0.5, 1.0).total == 2


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: global_regret_bound(1.0, 1.0, 0.5, 10, 0.05), OptionError),
        (lambda: global_regret_bound(1.0, -1.0, 1.0, 10, 0.05), OptionError),
        (lambda: global_regret_bound(1.0, 1.0, 1.0, 0, 0.05), OptionError),
        (lambda: global_regret_bound(1.0, 1.0, 1.0, 10, 1.5), OptionError),
        (lambda: UniversalConstants(entropy=0.0, confidence=2.0), OptionError),
        (lambda: UniversalConstants(entropy=1.0, confidence=0.5), OptionError),
        (lambda: local_regret_bound(0.0, 1.5, 1.0), OptionError),
        (lambda: local_regret_bound(-0.1, 0.5, 1.0), OptionError),
        (lambda: score_bound(1.0, 0.0), OptionError),
        (lambda: score_bound(1.0, 1.2), OptionError),
        (lambda: global_score_bound([1.0], []), OptionError),
        (lambda: shift_bound([0.5, 0.4], [0, 0], [0, 0], [0, 0]), OptionError),
        (lambda: shift_bound([0.5, 0.5], [0, -1], [0, 0], [0, 0]), OptionError),
        (lambda: shift_bound([0.5, 0.5], [0, 0, 0], [0, 0], [0, 0]), DataError),
    ],
)
def test_nonsense_is_refused(call, error):
    with pytest.raises(error):
        call()
