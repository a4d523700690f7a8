"""Sums over clients: in their order, however many are added at a time."""

import numpy as np
import pytest

from fedopl.solvers import client_differences
from fedopl.solvers.client_differences import _weighed


@pytest.mark.parametrize("n_clients", [1, 8, 9, 300])
@pytest.mark.parametrize(("n_actions", "n_grams"), [(1, 1), (3, 1), (3, 3)])
@pytest.mark.parametrize("width", [2, 11])
def test_clients_are_added_one_after_the_other(monkeypatch, n_clients, n_actions, n_grams, width):
    rng = np.random.default_rng(n_clients)
    weights = rng.uniform(size=(n_clients, n_actions))
    matrices = rng.standard_normal((n_clients, n_grams, width, width))
    total = np.zeros((n_actions, width, width))
    for own, each in zip(weights, matrices, strict=True):
        total += own[:, None, None] * each
    for at_once in (1, 1000, 1 << 14):
        monkeypatch.setattr(client_differences, "NUMBERS_ADDED_AT_ONCE", at_once)
        assert _weighed(weights, matrices).tobytes() == total.tobytes()
