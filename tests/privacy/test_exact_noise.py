"""The discrete Gaussian: the probabilities of its definition, nothing else."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binomtest, chisquare, kstest

import fedopl
from fedopl.privacy.accountant import delta_at
from fedopl.privacy.exact_noise import (
    MOST_STEPS,
    SMOOTHING,
    KeyedBits,
    discrete_gaussian,
    variance_on_grid,
)

KEY = bytes(range(32))
DRAWS = 30_000


def drawn(variance, size=DRAWS, label=b"noise", key=KEY):
    return discrete_gaussian((size,), variance, KeyedBits(key, label))


def probabilities(variance):
    """Of every whole number out to where nothing is left, by the definition."""
    reach = int(40 * variance**0.5) + 10
    numbers = np.arange(-reach, reach + 1)
    heights = np.exp(-(numbers**2) / (2 * variance))
    return numbers, heights / heights.sum()


def fit(draws, variance, least=8):
    """The p-value of a chi-square test against the definition; rare numbers are one cell."""
    numbers, likely = probabilities(float(variance))
    expected = len(draws) * likely
    found = np.array([np.count_nonzero(draws == number) for number in numbers])
    common = expected >= least
    return chisquare(
        np.append(found[common], found[~common].sum()),
        np.append(expected[common], expected[~common].sum()),
    ).pvalue


SMALL = [Fraction(1, 2), 1, Fraction(7, 3), Fraction(10**30, 10**29 + 7), 100]


@pytest.mark.parametrize("variance", SMALL, ids=str)
def test_small_numbers_come_as_often_as_the_definition_says(variance):
    draws = drawn(variance)
    assert fit(draws, variance) > 1e-3
    # The same test sees a variance that is wrong by a tenth.
    assert fit(draws, variance * Fraction(11, 10)) < 1e-6
    assert fit(draws, variance * Fraction(9, 10)) < 1e-6


@pytest.mark.parametrize("variance", SMALL, ids=str)
def test_its_real_variance_is_not_above_the_one_asked_for(variance):
    numbers, likely = probabilities(float(variance))
    assert (numbers**2 * likely).sum() <= variance * (1 + 1e-12)


@pytest.mark.parametrize("variance", [Fraction(7, 3), 10**14], ids=str)
def test_noise_has_no_side(variance):
    draws = drawn(variance)
    above, below = np.count_nonzero(draws > 0), np.count_nonzero(draws < 0)
    assert binomtest(above, above + below).pvalue > 1e-3


def test_large_noise_is_gaussian_to_its_last_digit():
    draws = drawn(10**14) / 1e7
    assert abs(draws.mean()) < 4 / np.sqrt(DRAWS)
    assert abs(draws.var() - 1) < 4 * np.sqrt(2 / DRAWS)
    assert abs((draws**4).mean() - 3) < 4 * np.sqrt(96 / DRAWS)
    assert kstest(draws, "norm").pvalue > 1e-3
    last = np.bincount(drawn(10**14) % 16, minlength=16)
    assert chisquare(last).pvalue > 1e-3


def test_tails_are_as_heavy_as_they_should_be_and_no_heavier():
    draws = np.abs(drawn(100, 60_000))
    numbers, likely = probabilities(100)
    for far in (20, 30, 35):
        chance = likely[np.abs(numbers) >= far].sum()
        assert binomtest(np.count_nonzero(draws >= far), len(draws), chance).pvalue > 1e-3


def test_numbers_are_independent():
    draws = drawn(10**14) / 1e7
    for lag in (1, 2, 5):
        assert abs((draws[lag:] * draws[:-lag]).mean()) < 4 / np.sqrt(DRAWS)
        assert abs(np.corrcoef(draws[lag:] ** 2, draws[:-lag] ** 2)[0, 1]) < 4 / np.sqrt(DRAWS)


def test_the_same_key_gives_the_same_noise_and_another_gives_other_noise():
    first = drawn(10**14, 1000)
    assert (drawn(10**14, 1000) == first).all()
    for other in (drawn(10**14, 1000, label=b"other"), drawn(10**14, 1000, key=KEY[::-1])):
        assert abs(np.corrcoef(first, other)[0, 1]) < 4 / np.sqrt(1000)
        assert not (first == other).any()


def test_noise_is_what_it_always_was():
    """A client that answers again with a later version has to add the same noise."""
    assert drawn(10**14, 4).tolist() == [3432554, 3089594, -3061686, -7711175]
    assert drawn(Fraction(7, 3), 8).tolist() == [1, 2, -3, -1, 1, 3, 0, 1]


def test_the_largest_noise_fits_into_64_bits():
    draws = discrete_gaussian((20, 50), MOST_STEPS**2, KeyedBits(KEY, b"large"))
    assert draws.shape == (20, 50)
    assert draws.dtype == np.int64
    assert abs((draws / MOST_STEPS).var() - 1) < 4 * np.sqrt(2 / draws.size)


def test_no_numbers_are_no_noise():
    assert discrete_gaussian((3, 0), 5, KeyedBits(KEY, b"")).shape == (3, 0)
    assert discrete_gaussian((), 5, KeyedBits(KEY, b"")).shape == ()


def shift_cost(variance, shift, epsilon):
    """The exact δ(ε) of discrete noise, by the definition: Σ max(0, P(y) − e^ε·P(y − shift))."""
    numbers, likely = probabilities(variance)
    shifted = np.exp(-((numbers - shift) ** 2) / (2 * variance))
    shifted /= shifted.sum()
    return np.maximum(likely - np.exp(epsilon) * shifted, 0).sum()


@pytest.mark.parametrize("sigma", [1.0, 1.7, 3.0, 20.0])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_noise_on_the_grid_keeps_the_promise_of_continuous_noise(sigma, shift):
    """Whatever ε is looked at: δ of whole-number noise is never above that of Gaussian noise."""
    variance = variance_on_grid(sigma, Fraction(1))
    for epsilon in np.geomspace(0.01, 20, 60):
        promised = delta_at(epsilon, shift / sigma)
        assert shift_cost(variance, shift, epsilon) <= promised * (1 + 1e-9) + 1e-15


def test_numbers_rounded_by_chance_from_a_continuous_release_are_nearly_discrete_gaussian():
    """The heart of the proof, for one number: σ² = 9, and rounding with the variance `SMOOTHING`.

    Σ_z exp(−(z − y)²/2τ²) is the same for every y but for η = 2·Σ exp(−2π²τ²k²), here 1e-34.
    """
    across = np.linspace(0, 1, 101)[:, None]
    totals = np.exp(-((np.arange(-60, 61) - across) ** 2) / (2 * SMOOTHING)).sum(axis=1)
    assert totals == pytest.approx(np.sqrt(2 * np.pi * SMOOTHING), rel=1e-14)
    assert 2 * np.exp(-2 * np.pi**2 * SMOOTHING) * 2.1 < 3e-34


def test_discrete_noise_of_the_same_variance_would_break_it():
    """Why `SMOOTHING` is there: σ = 1, a shift of 1; at some ε more is told than was promised."""
    epsilons = np.geomspace(0.01, 3, 200)
    assert any(shift_cost(1, 1, epsilon) > delta_at(epsilon, 1) * 1.01 for epsilon in epsilons)


def test_a_variance_on_the_grid_is_rounded_up():
    assert variance_on_grid(3.0, Fraction(1)) == 9 + SMOOTHING
    assert variance_on_grid(0.1, Fraction(1, 1024)) == int((0.1 * 1024) ** 2) + 1 + SMOOTHING
    grid = Fraction(1, 2**20)
    exact = (Fraction(71.943) / grid) ** 2
    assert 0 <= variance_on_grid(71.943, grid) - SMOOTHING - exact < 1


@pytest.mark.parametrize("variance", [0, -1, 1.5, float("nan"), "4", MOST_STEPS**2 + 1])
def test_a_variance_that_is_not_exact_or_out_of_range_is_refused(variance):
    with pytest.raises(
        fedopl.OptionError, match=r"^variance: expected a whole number or a fraction"
    ):
        discrete_gaussian((1,), variance, KeyedBits(KEY, b""))


def test_a_grid_needs_a_noise_and_a_step():
    for sigma, step in ((0, Fraction(1)), (1.0, Fraction(0)), (float("inf"), Fraction(1))):
        with pytest.raises(fedopl.OptionError, match=r"^(sigma|step): expected a number above 0"):
            variance_on_grid(sigma, step)
