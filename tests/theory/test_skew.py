import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedopl.base.errors import DataError, OptionError
from fedopl.theory.divergences import chi_squared
from fedopl.theory.skew import (
    contrast_weights,
    effective_sample_size,
    largest_row_weight_bound,
    noise_of_each,
    noise_on_total,
    row_weights,
    skewness,
)

ROWS = {"north": 600, "south": 300, "west": 100}
COUNTS = st.lists(st.tuples(st.integers(1, 10**4), st.floats(0.001, 1)), min_size=1, max_size=6)


def _mixture(pairs):
    total = math.fsum(share for _, share in pairs)
    weights = {str(c): share / total for c, (_, share) in enumerate(pairs)}
    return weights, {str(c): count for c, (count, _) in enumerate(pairs)}


@given(COUNTS)
def test_skewness_is_one_plus_chi_squared_from_the_empirical_mixture(pairs):
    weights, rows = _mixture(pairs)
    shares = np.array(list(rows.values())) / sum(rows.values())
    lam = np.array(list(weights.values()))
    assert skewness(weights, rows) == pytest.approx(1 + float(chi_squared(lam, shares)))
    assert skewness(weights, rows) == pytest.approx(float((lam**2 / shares).sum()))
    assert skewness(weights, rows) >= 1 - 1e-12


@pytest.mark.parametrize(
    ("alpha", "skew", "total", "each"),
    [(0, 1.0, 1.0, 2.24), (0.1, 1.16, 2.6, 3.16), (0.5, 5.0, 9.0, 9.06), (1, 17.0, 17.0, 17.0)],
)
def test_noise_grows_with_the_largest_weight_of_a_row(alpha, skew, total, each):
    rows = {"small": 2000} | {f"large {place}": 8000 for place in range(4)}
    shares = {name: n_rows / 34_000 for name, n_rows in rows.items()}
    weights = {name: (1 - alpha) * share for name, share in shares.items()}
    weights["small"] += alpha
    assert skewness(weights, rows) == pytest.approx(skew, abs=0.005)
    assert noise_on_total(weights, rows) == pytest.approx(total, abs=0.005)
    assert noise_of_each(weights, rows) == pytest.approx(each, abs=0.005)


def test_skewness_is_one_where_every_row_counts_the_same():
    assert skewness({"north": 0.6, "south": 0.3, "west": 0.1}, ROWS) == pytest.approx(1)


def test_one_client_alone_is_worth_its_own_rows():
    alone = {"north": 0.0, "south": 0.0, "west": 1.0}
    assert skewness(alone, ROWS) == pytest.approx(1000 / 100)
    assert effective_sample_size(alone, ROWS) == pytest.approx(100)


@given(COUNTS)
def test_the_effective_sample_size_is_that_of_the_rows_weights(pairs):
    weights, rows = _mixture(pairs)
    codes = np.repeat(np.arange(len(rows)), list(rows.values()))
    each = row_weights(list(weights.values()), codes)
    assert each.sum() == pytest.approx(1)
    assert effective_sample_size(weights, rows) == pytest.approx(1 / float((each**2).sum()))
    assert each.max() <= largest_row_weight_bound(weights, rows) * (1 + 1e-9)


def test_contrast_weights_turn_scores_into_a_difference_of_values():
    codes, lam = np.array([0, 0, 1, 1, 1, 2]), np.array([0.5, 0.3, 0.2])
    scores = np.array([1.0, 3.0, 4.0, 4.0, 7.0, -2.0])
    values = np.array([2.0, 5.0, -2.0])
    for target in range(3):
        gap = contrast_weights(lam, codes, target) @ scores
        assert gap == pytest.approx(values[target] - lam @ values)


@pytest.mark.parametrize(
    ("weights", "rows"),
    [
        ({"a": 0.5, "b": 0.4}, {"a": 1, "b": 1}),
        ({"a": 1.5, "b": -0.5}, {"a": 1, "b": 1}),
        ({"a": 1.0}, {"a": 1, "b": 1}),
        ({"a": 0.5, "b": 0.5}, {"a": 1, "b": 0}),
    ],
)
def test_what_is_no_mixture_is_refused(weights, rows):
    with pytest.raises(OptionError):
        skewness(weights, rows)


def test_codes_that_name_no_client_are_refused():
    with pytest.raises(DataError, match="codes from 0 to 1"):
        row_weights([0.5, 0.5], [0, 2])
    with pytest.raises(DataError, match="has no row"):
        row_weights([0.5, 0.5], [0, 0])
    with pytest.raises(DataError, match="target has no row"):
        contrast_weights([1.0, 0.0], [0, 0], 1)
