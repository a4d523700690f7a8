"""Statistics of jumps are those of regressions that are worked out threshold by threshold."""

import numpy as np
import pytest

from fedopl.client.screening.jump_statistics import Jumps, SmoothResiduals
from fedopl.client.screening.screen_terms import strongest_by_part

N_ROWS, N_CUTS = 300, 9
CUTS = np.linspace(-1.2, 1.2, N_CUTS)
RNG = np.random.default_rng(3)
NUMBERS = RNG.standard_normal((N_ROWS, 2))
SMOOTH = np.column_stack([NUMBERS, NUMBERS[:, 0] * NUMBERS[:, 1]])
BINS = [np.searchsorted(CUTS, number) for number in NUMBERS.T]
WEIGHTS = RNG.uniform(0.5, 2.0, N_ROWS)
FOLDS = RNG.integers(0, 3, N_ROWS)
VERSIONS = [np.flatnonzero(FOLDS != 1), np.flatnonzero(FOLDS != 2), np.arange(N_ROWS)]
HAS_FOLD = np.array([[1.0, 0, 1], [1, 1, 0], [1, 1, 1]])


def outcomes(jump):
    beyond = (NUMBERS[:, 0] > CUTS[5]) == (NUMBERS[:, 1] > CUTS[2])
    return NUMBERS[:, 0] + RNG.standard_normal(N_ROWS) + jump * beyond


def residuals(jump=0.0):
    return SmoothResiduals.of(SMOOTH, outcomes(jump), WEIGHTS, FOLDS, HAS_FOLD)


def by_hand(outcomes, rows, column, others):
    """Σv / √Σv² of some rows, which count by weight, less what others say of the column."""

    def left_of(numbers, columns):
        root = np.sqrt(WEIGHTS[rows])
        fitted, *_ = np.linalg.lstsq(
            columns[rows] * root[:, None], numbers[rows] * root, rcond=None
        )
        return numbers[rows] - columns[rows] @ fitted

    smooth = np.column_stack([np.ones(N_ROWS), SMOOTH])
    moved = WEIGHTS[rows] * left_of(outcomes, smooth) * left_of(column, others)
    lost = np.sqrt(1 - smooth.shape[1] / len(rows))
    return lost * moved.sum() / np.sqrt(np.square(moved).sum())


def beyond(axis, cut):
    return (NUMBERS[:, axis] > CUTS[cut]).astype(float)


def test_a_jump_is_what_smooth_terms_leave_of_it_in_the_rows_of_each_version():
    given = outcomes(0.0)
    left = SmoothResiduals.of(SMOOTH, given, WEIGHTS, FOLDS, HAS_FOLD)
    found = Jumps(left, BINS[:1], [N_CUTS], least=1).at(np.arange(N_CUTS))
    for own, rows in zip(found, VERSIONS, strict=True):
        for cut, statistic in enumerate(own):
            expected = by_hand(given, rows, beyond(0, cut), left.smooth)
            assert statistic == pytest.approx(expected, rel=1e-6)


def test_a_corner_is_what_each_of_its_thresholds_leaves_too():
    given = outcomes(0.0)
    left = SmoothResiduals.of(SMOOTH, given, WEIGHTS, FOLDS, HAS_FOLD)
    corners = Jumps(left, BINS, [N_CUTS, N_CUTS], least=1)
    for first, second in ((0, 0), (4, 6), (8, 2), (5, 5)):
        one, two = beyond(0, first), beyond(1, second)
        # Residuals are not regressed on the thresholds themselves, and need not be.
        others = np.column_stack([left.smooth, one, two])
        found = corners.at(np.array([first]), np.array([second]))[:, 0]
        for statistic, rows in zip(found, VERSIONS, strict=True):
            expected = by_hand(given, rows, one * two, others)
            assert statistic == pytest.approx(expected, rel=1e-6)


def test_where_a_side_has_few_rows_nothing_is_said():
    left = residuals()
    few = Jumps(left, BINS[:1], [N_CUTS], least=60).at(np.arange(N_CUTS))
    for own, rows in zip(few, VERSIONS, strict=True):
        beside = [min((beyond(0, k)[rows] == side).sum() for side in (0, 1)) for k in range(N_CUTS)]
        assert np.array_equal(own == 0, np.array(beside) < 60)
    both = [own.ravel() for own in np.indices((9, 9))]
    assert not Jumps(left, BINS, [N_CUTS, N_CUTS], least=N_ROWS).at(*both).any()


def test_of_every_part_the_largest_place_is_told_and_the_middle_says_how_strong():
    left = residuals(jump=2.0)

    def of_cuts(cuts):
        bins = [
            np.searchsorted(CUTS[own], number) for own, number in zip(cuts, NUMBERS.T, strict=True)
        ]
        return Jumps(left, bins, [len(own) for own in cuts], least=1)

    every = of_cuts([np.arange(N_CUTS)] * 2)
    parts = {part: np.arange(3 * part, 3 * part + 3) for part in range(3)}
    told = list(strongest_by_part(of_cuts, [parts, parts]))
    assert len(told) == 9 * len(VERSIONS)
    for version in range(len(VERSIONS)):
        own = [one for one in told if one[0] == version]
        _, cuts, largest, middle = max(own, key=lambda one: abs(one[2]))
        assert cuts == [5, 2]
        assert abs(largest) > 5
        assert middle == pytest.approx(every.at(np.array([4]), np.array([1]))[version, 0])
    least = float(np.median([abs(middle) for *_, middle in told]))
    strong = {(version, middle) for version, _, _, middle in told if abs(middle) >= least}
    again = list(strongest_by_part(of_cuts, [parts, parts], least))
    assert {(version, middle) for version, _, _, middle in again} == strong
