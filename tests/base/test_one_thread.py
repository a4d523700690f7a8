"""Small linear algebra takes one thread, whatever the machine offers."""

import threading

import numpy as np
import pytest
import sklearn.ensemble  # noqa: F401  it brings OpenMP
from threadpoolctl import threadpool_info, threadpool_limits

from fedopl.base import decompositions
from fedopl.base.one_thread import ONE_BLAS_THREAD, ONE_OPENMP_THREAD, enough_threads

SYMMETRIC = np.eye(40) + 1 / 50
TAKEN = {
    "eigh": decompositions.eigh,
    "eigvalsh": decompositions.eigvalsh,
    "cholesky": decompositions.cholesky,
    "inv": decompositions.inv,
    "pinv": decompositions.symmetric_pinv,
    "solve": lambda matrices: decompositions.solve(matrices, np.ones(len(matrices))),
}


def threads_of(api="blas"):
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == api}


@pytest.fixture(autouse=True)
def _two_threads():
    with threadpool_limits(2):  # tests may run with one
        yield


@pytest.mark.parametrize("name", TAKEN)
def test_decompositions_are_those_of_numpy_on_one_thread(name, monkeypatch):
    numpys, threads = getattr(np.linalg, name), []

    def watched(*given, **named):
        threads.append(threads_of())
        return numpys(*given, **named)

    monkeypatch.setattr(np.linalg, name, watched)
    found = TAKEN[name](SYMMETRIC)
    monkeypatch.undo()
    wanted = {"solve": lambda: numpys(SYMMETRIC, np.ones(40))}.get(name, lambda: numpys(SYMMETRIC))
    assert np.allclose(found[0], wanted()[0], atol=1e-12)
    assert threads == [{1}]
    assert threads_of() == {2}


def test_few_columns_do_not_wait_for_a_limit(monkeypatch):
    monkeypatch.setattr(ONE_BLAS_THREAD, "_lock", None)  # nobody may enter
    decompositions.eigh(np.eye(25))
    with pytest.raises(TypeError):
        decompositions.eigh(np.eye(26))


def test_limits_end_with_their_last_user_even_in_another_thread():
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with ONE_BLAS_THREAD:
            entered.set()
            assert leave.wait(60)

    other = threading.Thread(target=hold)
    with ONE_BLAS_THREAD:
        other.start()
        assert entered.wait(60)
    assert threads_of() == {1}
    leave.set()
    other.join(60)
    assert threads_of() == {2}


def test_an_error_ends_a_limit():
    with pytest.raises(np.linalg.LinAlgError):
        decompositions.cholesky(-SYMMETRIC)
    assert threads_of() == {2}


def test_openmp_is_limited_apart_from_linear_algebra():
    with ONE_OPENMP_THREAD:
        assert threads_of("openmp") == {1}
        assert threads_of() == {2}
    assert threads_of("openmp") == {2}


@pytest.mark.parametrize(("size", "threads"), [(1e4, 2), (1e6, 1), (1e8, 2)])
def test_products_have_one_thread_unless_they_are_large_or_it_makes_no_difference(size, threads):
    with enough_threads(size):
        assert threads_of() == {threads}
