import threading
import time
from contextlib import closing

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from fedopl.client.disk.prefetch import N_THREADS, prefetched


def algebra_threads():
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


def test_what_is_made_comes_in_the_order_of_the_parts():
    def make(part):
        time.sleep(0.001 * (part % 3))
        return part**2

    assert list(prefetched(make, range(20))) == [part**2 for part in range(20)]


def test_several_threads_make_them_at_once():
    meeting = threading.Barrier(N_THREADS, timeout=30)  # which nobody passes alone
    assert list(prefetched(lambda _: meeting.wait() >= 0, range(2 * N_THREADS)))


def test_one_part_is_made_by_whoever_asks():
    assert list(prefetched(lambda _: threading.current_thread(), [1])) == [
        threading.current_thread()
    ]
    assert not list(prefetched(str, []))


def test_no_more_parts_are_made_than_memory_is_meant_to_hold():
    asked = []

    def parts():
        for part in range(30):
            asked.append(part)
            yield part

    ahead = [asked[-1] - part for part in prefetched(int, parts())]
    assert max(ahead) == N_THREADS


def test_what_goes_wrong_reaches_whoever_asks():
    def make(part):
        if part == 3:
            raise ValueError("the third")
        return part

    made = prefetched(make, range(9))
    assert [next(made) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="the third"):
        next(made)


def test_linear_algebra_has_one_thread_until_the_last_is_done():
    with threadpool_limits(2, user_api="blas"):  # tests may run with one
        before = algebra_threads()
        assert set(before) == {2}
        check_that_algebra_has_one_thread_meanwhile()
        assert algebra_threads() == before


def check_that_algebra_has_one_thread_meanwhile():
    first, second = prefetched(int, range(9)), prefetched(int, range(9))
    next(second)
    with closing(first):
        next(first)
        assert set(algebra_threads()) == {1}
    assert set(algebra_threads()) == {1}
    assert list(second) == list(range(1, 9))
