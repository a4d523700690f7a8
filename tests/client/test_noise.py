"""Noise on counts and values: how much, drawn by whom, and the same for the same numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedopl.client.disclosure.noise import noisy_counts, values_with_noise
from fedopl.client.disclosure.private_draws import PrivateDraws


def test_counts_have_two_sided_geometric_noise_and_empty_ones_too():
    rng = np.random.default_rng(0)
    found = noisy_counts(np.full(200_000, 100.0), 5, rng)
    ratio = np.exp(-1 / 2.5)
    spread = 2 * ratio / (1 - ratio) ** 2
    assert found.mean() == pytest.approx(100, abs=5 * (spread / len(found)) ** 0.5)
    assert found.var() == pytest.approx(spread, rel=0.03)
    assert (found % 1 == 0).all()
    empty = noisy_counts(np.zeros(100_000), 5, rng)
    assert empty.min() == 0
    assert (empty > 0).mean() == pytest.approx(ratio / (1 + ratio), abs=0.01)


def test_one_row_more_makes_no_count_much_likelier():
    """Every outcome's chance changes by at most e^(2/minimum_cell)."""
    draws = np.random.default_rng(1)
    chances = []
    for count in (3.0, 4.0):
        found = noisy_counts(np.full(400_000, count), 5, draws)
        chances.append(np.bincount(found.astype(int), minlength=30)[:12] / len(found))
    ratios = chances[0] / chances[1]
    assert ratios.max() < np.exp(2 / 5) * 1.05
    assert ratios.min() > np.exp(-2 / 5) / 1.05


@given(st.integers(0, 1))
def test_without_a_minimum_cell_counts_are_exact(minimum_cell):
    counts = np.array([0.0, 1.0, 7.0])
    assert noisy_counts(counts, minimum_cell, np.random.default_rng(0)) is counts


def estimates(seed=0, n_rows=400, n_columns=5):
    values = np.random.default_rng(seed).standard_normal((n_rows, n_columns)) * [1, 2, 3, 4, 5]
    return values.mean(axis=0), np.cov(values.T) / n_rows


def draws_for(secret, *questions):
    return [PrivateDraws(0, "north", secret).noise_for(question) for question in questions]


def test_noise_on_values_has_its_size_and_is_in_the_covariances():
    means, covariances = estimates()
    influence = 0.05
    moved, wider = [], []
    for secret in range(2_000):
        draws = draws_for(str(secret), *range(len(means)), "all")
        noisy, spread = values_with_noise(means, covariances, influence, draws)
        moved.append(noisy - means)
        wider.append(spread)
    assert np.std(moved, axis=0) == pytest.approx(np.full(5, influence), rel=0.06)
    assert np.abs(np.mean(moved, axis=0)).max() < 0.1 * influence
    # At least the variance of the noise itself: a negative square would make a contrast sure.
    assert np.linalg.eigvalsh(wider).min() > 0.999 * influence**2
    assert (np.mean(wider, axis=0) - covariances).diagonal().min() > 0.9 * influence**2


def test_the_same_question_has_the_same_noise_beside_whatever_others():
    means, covariances = estimates()
    every, _ = values_with_noise(means, covariances, 0.05, draws_for("secret", *range(5), "all"))
    some = [3, 1]
    draws = draws_for("secret", *some, "both")
    few, _ = values_with_noise(means[some], covariances[np.ix_(some, some)], 0.05, draws)
    assert few.tolist() == every[some].tolist()


def test_another_question_or_secret_has_other_noise_and_no_noise_changes_nothing():
    means, covariances = estimates()
    one, other, asked_otherwise = (
        values_with_noise(means, covariances, 0.05, draws)[0]
        for draws in (
            draws_for("one", *range(5), "all"),
            draws_for("other", *range(5), "all"),
            draws_for("one", *range(5, 10), "all"),
        )
    )
    assert (one != other).all()
    assert (one != asked_otherwise).all()
    assert values_with_noise(means, covariances, 0.0, [])[0] is means


def test_arrays_in_a_question_count_to_the_last_bit():
    draws = PrivateDraws(0, "north", "secret")
    asked = np.arange(5_000.0)
    nearly = asked.copy()
    nearly[2_500] = np.nextafter(nearly[2_500], 0)
    first, again, other = (draws.noise_for("x", a).random() for a in (asked, asked, nearly))
    assert first == again != other
