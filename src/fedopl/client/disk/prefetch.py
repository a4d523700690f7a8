"""Processes chunks of rows in a small thread pool, reading the next while the current one is used.

BLAS is limited to one thread in the meantime, so that the pool's threads share the cores.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from threading import Lock
from typing import Any, Self, TypeVar

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
    coming: deque[Future[Result]] = deque()
    with _BLAS_LIMIT, ThreadPoolExecutor(N_THREADS) as pool:
        try:
            for part in chain(several, left):
                coming.append(pool.submit(make, part))
                if len(coming) > N_THREADS:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            for unwanted in coming:
                unwanted.cancel()


class _BlasLimit:
    """Limits BLAS to one thread while it is entered; re-entrant, also across threads.

    When the last user leaves, the previous limits are restored, whoever entered first.
    """

    def __init__(self) -> None:
        self._lock, self._n_users = Lock(), 0
        self._limits: Any = None

    def __enter__(self) -> Self:
        # Imported late: it limits only libraries that are already loaded.
        from threadpoolctl import threadpool_limits

        with self._lock:
            if not self._n_users:
                self._limits = threadpool_limits(1, user_api="blas")
            self._n_users += 1
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._n_users -= 1
            if not self._n_users:
                self._limits.restore_original_limits()


_BLAS_LIMIT = _BlasLimit()


def one_blas_thread() -> _BlasLimit:
    """Limits BLAS to one thread within a `with` statement."""
    return _BLAS_LIMIT
