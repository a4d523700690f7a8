"""Typos and codes for missing values are named, and honest columns are not."""

import numpy as np
import pytest

from fedopl.client.table_findings import far_values

RNG = np.random.default_rng(0)
COSTS = np.abs(RNG.standard_normal(2_000)) * 150
AGES = RNG.integers(18, 96, 2_000).astype(float)


def test_one_outcome_of_a_million_among_values_below_500_is_named():
    column = COSTS.copy()
    column[7] = 1e6
    (found,) = far_values({"the outcome": column})
    assert "the outcome lies far outside the rest in 1 row" in found
    assert "up to 1e+06" in found


@pytest.mark.parametrize(("code", "n_rows"), [(-999, 201), (9999, 3), (-99, 40)])
def test_codes_for_missing_values_are_named_and_counted(code, n_rows):
    column = AGES.copy()
    column[:n_rows] = code
    (found,) = far_values({"feature 'age'": column})
    assert f"feature 'age' is {code} in {n_rows} rows" in found


HONEST = {
    "normal": RNG.standard_normal(20_000),
    "ages, some of them 99": np.append(AGES, [99.0, 99.0]),
    "skewed": np.exp(RNG.standard_normal(2_000)),
    "mostly zero": np.where(RNG.random(2_000) < 0.02, 50.0, 0.0),
    "yes or no": (RNG.random(2_000) < 0.3).astype(float),
    "counts up to 9,999": RNG.integers(0, 10_000, 5_000).astype(float),
    "a few rows": np.array([1.0, 2.0, 900.0]),
}


@pytest.mark.parametrize("column", HONEST.values(), ids=HONEST)
def test_nothing_is_said_of_an_honest_column(column):
    assert far_values({"feature 'x'": column}) == []
