"""Shares of people in leaves, where some clients hide theirs."""

import numpy as np
import pytest

from fedopl.messages.trees.leaf_values import LeafValues


def told(shares, counts):
    nothing = np.zeros((len(shares), 2))
    fields = dict.fromkeys(("rows", "degrees_of_freedom", "means", "variances"), nothing)
    numbers = {"shares": np.array(shares), "counts": np.array(counts)}
    return LeafValues(study=b"", exchange=0, **numbers, **fields)


@pytest.mark.parametrize(
    ("shares", "counts", "expected"),
    [
        ((0.5, 0.3, 0.2), (10.0, 10.0, 80.0), (0.5, 0.3, 0.2)),  # nothing is left out
        ((0.4, 0.0, 0.0), (40.0, 0.0, 0.0), (0.4, 0.3, 0.3)),
        ((0.0, 0.0), (0.0, 0.0), (0.5, 0.5)),
    ],
)
def test_what_leaves_that_are_left_out_have_is_divided_alike(shares, counts, expected):
    assert told(shares, counts).likely_shares().tolist() == pytest.approx(expected)
