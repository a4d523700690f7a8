import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import multivariate_normal, norm

from fedopl.base.errors import DataError, OptionError
from fedopl.theory import divergences
from fedopl.theory.divergences import (
    Gaussian,
    bretagnolle_huber,
    gaussian_affinity,
    gaussian_chi_squared,
    gaussian_kl,
    gaussian_outcome_kl,
    gaussian_tv,
    gaussian_tv_interval,
    kl_at_most_from_chi_squared,
    pinsker,
    tv_at_most_from_chi_squared,
    tv_at_most_from_kl,
    tv_between_from_affinity,
)

PAIRS = [(0.0, 1.0, 0.0, 1.0), (0.5, 1.0, -1.0, 1.0), (0.3, 0.5, -0.2, 2.0), (1.0, 3.0, 0.0, 1.6)]
LINES = st.tuples(st.floats(-3, 3), st.floats(0.2, 4), st.floats(-3, 3), st.floats(0.2, 4))
WEIGHTS = st.lists(st.floats(0.01, 1), min_size=2, max_size=5)


def _line(mean_p, var_p, mean_q, var_q):
    return (
        Gaussian(mean=mean_p, covariance=var_p),
        Gaussian(mean=mean_q, covariance=var_q),
        norm(mean_p, math.sqrt(var_p)),
        norm(mean_q, math.sqrt(var_q)),
    )


def _integral(function):
    return quad(function, -90, 90, limit=1000, points=[-9, -4, -2, -1, 0, 1, 2, 4, 9, 16, 25])[0]


@pytest.mark.parametrize("pair", PAIRS)
def test_gaussian_divergences_are_their_integrals(pair):
    p, q, left, right = _line(*pair)
    kl = _integral(lambda x: left.pdf(x) * (left.logpdf(x) - right.logpdf(x)))
    tv = _integral(lambda x: 0.5 * abs(left.pdf(x) - right.pdf(x)))
    chi = _integral(lambda x: math.exp(2 * left.logpdf(x) - right.logpdf(x))) - 1
    overlap = _integral(lambda x: math.sqrt(left.pdf(x) * right.pdf(x)))
    assert gaussian_kl(p, q) == pytest.approx(kl, abs=1e-7)
    assert gaussian_tv(p, q) == pytest.approx(tv, abs=1e-6)
    assert gaussian_chi_squared(p, q) == pytest.approx(chi, abs=1e-6)
    assert gaussian_affinity(p, q) == pytest.approx(overlap, abs=1e-7)


def test_gaussian_divergences_in_the_plane_are_their_means_over_draws():
    mean_p, cov_p = np.array([0.3, -0.2]), np.array([[1.0, 0.3], [0.3, 0.8]])
    mean_q, cov_q = np.array([0.0, 0.1]), np.array([[1.2, -0.1], [-0.1, 1.0]])
    p, q = Gaussian(mean=mean_p, covariance=cov_p), Gaussian(mean=mean_q, covariance=cov_q)
    draws = np.random.default_rng(0).multivariate_normal(mean_q, cov_q, size=400_000)
    log_ratio = multivariate_normal(mean_p, cov_p).logpdf(draws) - multivariate_normal(
        mean_q, cov_q
    ).logpdf(draws)
    ratio = np.exp(log_ratio)
    for exact, sample in (
        (gaussian_chi_squared(p, q), (ratio - 1) ** 2),
        (gaussian_kl(q, p), -log_ratio),
        (gaussian_kl(p, q), ratio * log_ratio),
        (gaussian_affinity(p, q), np.sqrt(ratio)),
    ):
        assert exact == pytest.approx(sample.mean(), abs=4.5 * sample.std() / math.sqrt(len(draws)))
    between = gaussian_tv_interval(p, q)
    assert between.lower <= 0.5 * np.abs(ratio - 1).mean() <= between.upper


def test_with_one_covariance_total_variation_is_exact_in_any_dimension():
    cov = np.array([[2.0, 0.5], [0.5, 1.0]])
    p, q = Gaussian(mean=[1.0, 0.0], covariance=cov), Gaussian(mean=[0.0, 0.5], covariance=cov)
    draws = np.random.default_rng(1).multivariate_normal([0.0, 0.5], cov, size=400_000)
    ratio = np.exp(
        multivariate_normal([1.0, 0.0], cov).logpdf(draws)
        - multivariate_normal([0.0, 0.5], cov).logpdf(draws)
    )
    gaps = 0.5 * np.abs(ratio - 1)
    assert gaussian_tv(p, q) == pytest.approx(gaps.mean(), abs=4.5 * gaps.std() / 632)


@pytest.mark.parametrize("excess", [1e-3, 1e-6, 1e-9, 1e-11, 1e-13, 0.0])
@pytest.mark.parametrize("gap", [0.0, 1e-3, 0.7, 5.0])
def test_total_variation_is_continuous_where_variances_meet(excess, gap):
    near = gaussian_tv(
        Gaussian(mean=gap, covariance=2.0 * (1 + excess)), Gaussian(mean=0.0, covariance=2.0)
    )
    same = 2 * norm.cdf(gap / math.sqrt(2.0) / 2) - 1
    assert near == pytest.approx(same, abs=excess + 1e-12)


def test_chi_squared_does_not_exist_where_q_is_too_narrow():
    wide, narrow = Gaussian(mean=0.0, covariance=2.0), Gaussian(mean=0.0, covariance=1.0)
    assert gaussian_chi_squared(wide, narrow) == math.inf
    assert math.isfinite(gaussian_chi_squared(narrow, wide))


@given(LINES)
def test_every_inequality_holds_between_gaussians(pair):
    p, q, _, _ = _line(*pair)
    tv, kl = gaussian_tv(p, q), gaussian_kl(p, q)
    between = gaussian_tv_interval(p, q)
    assert between.lower - 1e-9 <= tv <= between.upper + 1e-9
    assert tv <= pinsker(kl) + 1e-9
    assert tv <= bretagnolle_huber(kl) + 1e-9
    assert tv <= tv_at_most_from_chi_squared(gaussian_chi_squared(p, q)) + 1e-9
    assert kl <= kl_at_most_from_chi_squared(gaussian_chi_squared(p, q)) + 1e-9
    assert gaussian_tv(p, q) == pytest.approx(gaussian_tv(q, p), abs=1e-12)


@given(
    WEIGHTS.flatmap(
        lambda p: st.tuples(
            st.just(p), st.lists(st.floats(0.01, 1), min_size=len(p), max_size=len(p))
        )
    )
)
def test_every_inequality_holds_between_discrete_distributions(pair):
    p, q = (np.array(side) / math.fsum(side) for side in pair)
    tv, kl, chi = (
        float(f(p, q))
        for f in (divergences.total_variation, divergences.kl, divergences.chi_squared)
    )
    between = tv_between_from_affinity(float(divergences.affinity(p, q)))
    assert between.lower - 1e-9 <= tv <= between.upper + 1e-7
    assert tv <= tv_at_most_from_kl(kl) + 1e-7
    assert kl <= kl_at_most_from_chi_squared(chi) + 1e-9
    assert tv <= tv_at_most_from_chi_squared(chi) + 1e-9
    assert chi == pytest.approx((p**2 / q).sum() - 1, abs=1e-9)
    events = [sum(p[i] - q[i] for i in range(len(p)) if e >> i & 1) for e in range(2 ** len(p))]
    assert tv == pytest.approx(max(abs(gap) for gap in events))


def test_what_q_misses_is_infinitely_far():
    assert divergences.kl([0.5, 0.5], [1.0, 0.0]) == math.inf
    assert divergences.chi_squared([0.5, 0.5], [1.0, 0.0]) == math.inf
    assert divergences.kl([1.0, 0.0], [0.5, 0.5]) == pytest.approx(math.log(2))
    assert divergences.chi_squared([0.5, 0.5, 0.0], [0.5, 0.5, 0.0]) == 0


def test_propensities_are_compared_row_by_row():
    own, other = np.array([[0.5, 0.5], [0.2, 0.8]]), np.array([[0.5, 0.5], [0.4, 0.6]])
    second = 0.2 * math.log(0.5) + 0.8 * math.log(0.8 / 0.6)
    assert divergences.propensity_kl(own, other) == pytest.approx(second / 2)
    assert divergences.propensity_kl(own, other, [0.25, 0.75]) == pytest.approx(0.75 * second)


def test_gaussian_outcomes_add_up_over_actions():
    means, others = np.array([[0.0, 1.0], [2.0, 0.5]]), np.array([[1.0, 1.0], [2.0, -1.0]])
    rows = gaussian_outcome_kl(means, others, [1.0, 2.0], 1.5)
    for i in range(2):
        assert rows[i] == pytest.approx(
            sum(
                gaussian_kl(
                    Gaussian(mean=means[i, a], covariance=variance),
                    Gaussian(mean=others[i, a], covariance=1.5),
                )
                for a, variance in enumerate((1.0, 2.0))
            )
        )


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: Gaussian(mean=0.0, covariance=-1.0), OptionError),
        (lambda: Gaussian(mean=[0.0, 0.0], covariance=[[1.0, 0.2], [0.0, 1.0]]), OptionError),
        (lambda: Gaussian(mean=[0.0, 0.0], covariance=1.0), DataError),
        (
            lambda: gaussian_kl(
                Gaussian(mean=0.0, covariance=1.0), Gaussian(mean=[0.0] * 2, covariance=np.eye(2))
            ),
            DataError,
        ),
        (
            lambda: gaussian_tv(
                Gaussian(mean=[0.0] * 2, covariance=np.eye(2)),
                Gaussian(mean=[0.0] * 2, covariance=2 * np.eye(2)),
            ),
            OptionError,
        ),
        (lambda: gaussian_outcome_kl([[0.0]], [[0.0]], -1.0, 1.0), OptionError),
        (lambda: gaussian_outcome_kl([[0.0]], [[0.0, 1.0]], 1.0, 1.0), DataError),
        (lambda: divergences.kl([0.5, 0.4], [0.5, 0.5]), OptionError),
        (lambda: divergences.total_variation([0.5, 0.5], [1.0]), DataError),
        (lambda: divergences.propensity_kl([[1.0, 0.0]], [[0.5, 0.5]]), OptionError),
        (lambda: divergences.averaged([0.1, 0.2], [0.5, 0.4]), OptionError),
        (lambda: pinsker(-0.1), OptionError),
        (lambda: tv_between_from_affinity(1.5), OptionError),
    ],
)
def test_nonsense_is_refused(call, error):
    with pytest.raises(error):
        call()
