import numpy as np
import pytest

from fedopl.base.arrays import length, perhaps_beyond


@pytest.mark.parametrize("array", [np.zeros((0, 3)), np.array([[3.0], [4.0]]), np.array([3, 4])])
def test_an_arrays_length_is_the_root_of_its_squares(array):
    assert length(array) == np.sqrt((array**2).sum())


def test_whole_numbers_whose_squares_are_too_large_for_them_have_a_length():
    assert length(np.array([2**40, 0])) == 2.0**40


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e200, -11.0])
@pytest.mark.parametrize("bound", [10.0, 1e300, np.inf])
def test_no_number_beyond_a_bound_is_overlooked(number, bound):
    arrays = [np.array([1.0, 2.0]), np.array([[1.0, number]])]
    found = perhaps_beyond(arrays, bound)
    if not abs(number) <= bound or not np.isfinite(number):
        assert found == arrays[1:]
    assert not any(array is arrays[0] for array in found)
