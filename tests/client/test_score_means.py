"""How many rows a sum rests on, in effect."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedopl.client.local.effective_rows import EffectiveRows


def behind(pulls, at_once=None):
    rows = EffectiveRows()
    for start in range(0, len(pulls), at_once or len(pulls)):
        rows.add(pulls[start : start + (at_once or len(pulls))])
    return rows


def effective_rows_behind(pulls):
    return behind(pulls).fewest()


def test_rows_that_pull_alike_all_count_and_one_that_pulls_alone_counts_alone():
    assert effective_rows_behind(np.full((7, 1), -2.0)) == pytest.approx(7)
    alone = np.zeros((7, 1))
    alone[3] = 2.0
    assert effective_rows_behind(alone) == 1


def test_the_column_that_rests_on_the_fewest_rows_decides():
    pulls = np.ones((6, 3))
    pulls[2:, 1] = 0.0
    assert effective_rows_behind(pulls) == pytest.approx(2)


@given(st.integers(0, 2**32), st.sampled_from([1e-300, 1e-200, 1.0, 1e200, 1e300]))
def test_how_large_pulls_are_does_not_matter(seed, size):
    pulls = np.random.default_rng(seed).standard_normal((20, 2))
    by_hand = (np.abs(pulls).sum(axis=0) ** 2 / (pulls**2).sum(axis=0)).min()
    assert effective_rows_behind(size * pulls) == pytest.approx(by_hand)


def test_a_column_of_zeros_rests_on_no_row():
    pulls = np.ones((6, 3))
    pulls[:, 1] = 0.0
    assert effective_rows_behind(pulls) == 0
    assert effective_rows_behind(np.zeros((6, 1))) == 0


def test_zeros_of_the_clients_own_doing_are_left_out():
    pulls = np.ones((6, 3))
    pulls[:, 1] = 0.0
    assert behind(pulls).fewest_without_zeros() == pytest.approx(6)
    assert behind(np.zeros((6, 2))).fewest_without_zeros() == np.inf


@given(st.integers(0, 2**32), st.sampled_from([1e-300, 1.0, 1e300]))
def test_rows_that_come_one_after_the_other_count_as_at_once(seed, size):
    rng = np.random.default_rng(seed)
    pulls = size * rng.standard_normal((20, 3)) * rng.integers(0, 2, (20, 3))
    at_once = behind(pulls)
    for n_rows in (1, 7):
        parts = behind(pulls, n_rows)
        assert parts.fewest() == pytest.approx(at_once.fewest())
        assert parts.fewest_without_zeros() == pytest.approx(at_once.fewest_without_zeros())


def test_no_row_at_all_is_no_row_behind_anything():
    assert EffectiveRows().fewest() == EffectiveRows().fewest_without_zeros() == 0


def test_a_pull_that_is_no_number_is_never_enough():
    rows = behind(np.array([[1.0, 1.0], [np.nan, 1.0], [1.0, 1.0]]), 1)
    assert not rows.fewest() >= 0
    assert not rows.fewest_without_zeros() >= 0
