"""Parts of the rows are worked on by several threads at once, which share what cores there are."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from threading import Lock
from typing import Any, Self, TypeVar

Part = TypeVar("Part")
Made = TypeVar("Made")

# Memory holds so many parts more than the one that was asked for last.
MADE_AT_ONCE = 2


def made_ahead(make: Callable[[Part], Made], parts: Iterable[Part]) -> Iterator[Made]:
    """What is made of each part, in their order; the next are made while one is looked at.

    If there is one part only, that is made here and now.
    """
    left = iter(parts)
    several = list(islice(left, 2))
    if len(several) < 2:
        yield from map(make, several)
        return
    coming: deque[Future[Made]] = deque()
    with _ONE_THREAD_OF_ALGEBRA, ThreadPoolExecutor(MADE_AT_ONCE) as pool:
        try:
            for part in chain(several, left):
                coming.append(pool.submit(make, part))
                if len(coming) > MADE_AT_ONCE:
                    yield coming.popleft().result()
            while coming:
                yield coming.popleft().result()
        finally:
            for unwanted in coming:
                unwanted.cancel()


class _OneThreadOfAlgebra:
    """Where several threads call libraries of linear algebra, these do not start more of their own.

    Any number of users may come and go in any order; what was set before comes back with the last.
    """

    def __init__(self) -> None:
        self._lock, self._n_users = Lock(), 0
        self._limits: Any = None

    def __enter__(self) -> Self:
        from threadpoolctl import threadpool_limits  # which looks at what is loaded by then

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


_ONE_THREAD_OF_ALGEBRA = _OneThreadOfAlgebra()
