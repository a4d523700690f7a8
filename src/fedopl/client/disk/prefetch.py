"""Processes chunks of rows in a small thread pool, reading the next while the current one is used.

BLAS is limited to one thread in the meantime, so that the pool's threads share the cores.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Any, TypeVar

from fedopl.base.one_thread import ONE_BLAS_THREAD

Item = TypeVar("Item")
Result = TypeVar("Result")

# The number of threads. As many results are held in memory besides the one in use.
N_THREADS = 2


def prefetched(make: Callable[[Item], Result], parts: Iterable[Item]) -> Iterator[Result]:
    """`map(make, parts)` in order; threads make the next results in the meantime.

    A single part is processed in the calling thread.
    """
    left = iter(parts)
    several = list(islice(left, 2))
    if len(several) < 2:
        yield from map(make, several)
        return
    with ONE_BLAS_THREAD, ThreadPoolExecutor(N_THREADS) as pool:
        yield from results_in_order(
            lambda part: pool.submit(make, part), Future.result, chain(several, left), N_THREADS + 1
        )


def results_in_order(
    submit: Callable[[Item], Any], result: Callable[[Any], Result], items: Iterable[Item], most: int
) -> Iterator[Result]:
    """The result for each item, in their order; at most this many are under way meanwhile."""
    coming: deque[Any] = deque()
    try:
        for item in items:
            coming.append(submit(item))
            if len(coming) >= most:
                yield result(coming.popleft())
        while coming:
            yield result(coming.popleft())
    finally:
        for unwanted in coming:
            unwanted.cancel()
