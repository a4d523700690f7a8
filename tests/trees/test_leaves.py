"""Shares of people in leaves, where some clients hide theirs."""

import numpy as np
import pytest

from fedopl.server.leaves import _shares
from fedopl.wire.vocabulary import LeafValues


def told(*shares):
    nothing = np.zeros((len(shares), 2))
    fields = dict.fromkeys(("rows", "degrees_of_freedom", "means", "variances"), nothing)
    return LeafValues(study=b"", exchange=0, shares=np.array(shares), **fields)


@pytest.mark.parametrize(
    ("shares", "typical", "expected"),
    [
        ((0.5, 0.3, 0.2), (0.1, 0.1, 0.8), (0.5, 0.3, 0.2)),  # nothing is hidden
        ((0.4, 0.0, 0.0), (0.4, 0.2, 0.1), (0.4, 0.4, 0.2)),  # as others tell them
        ((0.4, 0.0, 0.0), (0.4, 0.0, 0.0), (0.4, 0.3, 0.3)),  # nobody tells
        ((0.0, 0.0), (0.0, 0.0), (0.5, 0.5)),
    ],
)
def test_what_a_client_hides_is_divided_as_others_tell_it(shares, typical, expected):
    assert _shares(told(*shares), np.array(typical)).tolist() == pytest.approx(expected)
