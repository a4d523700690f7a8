"""Shares of people in leaves, where some clients hide theirs."""

import numpy as np
import pytest

from fedopl.messages.evaluation.policy_values import ValuesByPart


def told(shares, counts):
    nothing = np.zeros((len(shares), 1))
    return ValuesByPart(
        of_rows=np.array(counts),
        shares=np.array(shares),
        n_rows=nothing,
        degrees_of_freedom=nothing,
        means=nothing[..., None],
        covariances=nothing[..., None, None],
    )


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
