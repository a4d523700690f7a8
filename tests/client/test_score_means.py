"""How many rows a sum rests on, in effect."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedopl.client.local.score_means import effective_rows_behind, without_zeros


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
    assert without_zeros(pulls).shape == (6, 2)
    assert effective_rows_behind(without_zeros(pulls)) == pytest.approx(6)
    assert effective_rows_behind(without_zeros(np.zeros((6, 2)))) == np.inf
