"""Statistics of jumps are those of regressions that are worked out threshold by threshold."""

import numpy as np
import pytest

from fedopl.client.screening.jump_statistics import (
    Corners,
    Jumps,
    SmoothResiduals,
    strongest_by_part,
)

N_ROWS, N_CUTS = 300, 9
CUTS = np.linspace(-1.2, 1.2, N_CUTS)
RNG = np.random.default_rng(3)
NUMBERS = RNG.standard_normal((N_ROWS, 2))
SMOOTH = np.column_stack([NUMBERS, NUMBERS[:, 0] * NUMBERS[:, 1]])
BINS = [np.searchsorted(CUTS, number) for number in NUMBERS.T]
WEIGHTS = RNG.uniform(0.5, 2.0, N_ROWS)


def outcomes(jump):
    beyond = (NUMBERS[:, 0] > CUTS[5]) == (NUMBERS[:, 1] > CUTS[2])
    return NUMBERS[:, 0] + RNG.standard_normal(N_ROWS) + jump * beyond


def residuals(jump=0.0):
    return SmoothResiduals.of(SMOOTH, outcomes(jump), WEIGHTS)


def by_hand(left, column, others):
    """Σv / √Σv² with what others say taken out of the column, rows counting by weight."""
    root = np.sqrt(WEIGHTS)
    fitted, *_ = np.linalg.lstsq(others * root[:, None], column * root, rcond=None)
    moved = WEIGHTS * left.left * (column - others @ fitted)
    return left.lost * moved.sum() / np.sqrt(np.square(moved).sum())


def test_a_jump_is_what_smooth_terms_leave_of_it():
    left = residuals()
    found = Jumps(left, BINS[0], N_CUTS, least=1).at(np.arange(N_CUTS))
    for cut, statistic in enumerate(found):
        beyond = (NUMBERS[:, 0] > CUTS[cut]).astype(float)
        assert statistic == pytest.approx(by_hand(left, beyond, left.smooth), rel=1e-6)


def test_a_corner_is_what_each_of_its_thresholds_leaves_too():
    left = residuals()
    corners = Corners(left, BINS, [N_CUTS, N_CUTS], least=1)
    for first, second in ((0, 0), (4, 6), (8, 2), (5, 5)):
        one, two = (
            (NUMBERS[:, axis] > CUTS[cut]).astype(float) for axis, cut in enumerate((first, second))
        )
        expected = by_hand(left, one * two, np.column_stack([left.smooth, one, two]))
        # SmoothResiduals are not regressed on the thresholds themselves, and need not be.
        found = corners.at(np.array([first]), np.array([second]))[0]
        assert found == pytest.approx(expected, rel=1e-6)


def test_where_a_side_has_few_rows_nothing_is_said():
    left = residuals()
    few = Jumps(left, BINS[0], N_CUTS, least=60).at(np.arange(N_CUTS))
    beside = np.array([min((NUMBERS[:, 0] > c).sum(), (NUMBERS[:, 0] <= c).sum()) for c in CUTS])
    assert np.array_equal(few == 0, beside < 60)
    assert not Corners(left, BINS, [N_CUTS, N_CUTS], least=N_ROWS).at(*np.indices((9, 9))).any()


def test_of_every_part_the_largest_place_is_told_and_the_middle_says_how_strong():
    corners = Corners(residuals(jump=2.0), BINS, [N_CUTS, N_CUTS], least=1)
    parts = {part: np.arange(3 * part, 3 * part + 3) for part in range(3)}
    told = list(strongest_by_part(corners, [parts, parts]))
    assert len(told) == 9
    cuts, largest, middle = max(told, key=lambda one: abs(one[1]))
    assert cuts == [5, 2]
    assert abs(largest) > 6
    assert middle == corners.at(np.array([4]), np.array([1]))[0]
