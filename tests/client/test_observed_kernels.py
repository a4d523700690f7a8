"""The kernels in machine code do what the same lines do in Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")

from fedopl.client.local import observed_kernels

KERNELS = [name for name, kernel in vars(observed_kernels).items() if hasattr(kernel, "py_func")]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_rows=st.integers(1, 40),
    n_ranks=st.integers(2, 12),
    minimum_leaf=st.integers(1, 4),
)
def test_machine_code_finds_the_stumps_that_python_finds(seed, n_rows, n_ranks, minimum_leaf):
    rng = np.random.default_rng(seed)
    ranks = rng.integers(0, n_ranks, (2, n_rows)).astype(np.int32)
    scores = rng.integers(-5, 6, (3, n_rows)).astype(float)
    ends = np.unique(rng.integers(1, n_rows + 1, 5))
    totals = np.ascontiguousarray(scores.cumsum(axis=1)[:, ends - 1])
    question = (ranks, np.full(2, n_ranks), scores, totals, ends, minimum_leaf)
    compiled = observed_kernels.best_stumps(*question)
    with pytest.MonkeyPatch.context() as patch:
        for name in KERNELS:
            patch.setattr(observed_kernels, name, getattr(observed_kernels, name).py_func)
        interpreted = observed_kernels.best_stumps(*question)
    np.testing.assert_array_equal(compiled, interpreted)


def test_kernels_are_compiled_where_no_folder_can_keep_them(monkeypatch):
    def njit(*, nogil, cache=False):
        if cache:
            raise RuntimeError("no locator available")
        return lambda function: function

    monkeypatch.setattr("numba.njit", njit)
    assert observed_kernels._compiled(abs) is abs
