"""Limits linear algebra, or OpenMP, to one thread for a while.

For matrices of some hundred columns, threads of BLAS gain nothing, and on a machine that is busy
with other things they wait for each other much longer than they work. Also, sums depend on the
number of threads.
"""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from threading import Lock
from typing import Any, Self


class OneThread:
    """A limit that holds while it is entered; re-entrant, also across threads.

    When the last user leaves, the previous limits are restored, whoever entered first.
    """

    def __init__(self, user_api: str) -> None:
        self._user_api = user_api
        self._lock, self._n_users = Lock(), 0
        self._libraries: Any = None
        self._limits: Any = None

    def __enter__(self) -> Self:
        with self._lock:
            if not self._n_users:
                found = _loaded_libraries(len(sys.modules))
                self._libraries = found.select(user_api=self._user_api)
                with _any_thread_may_change(self._libraries):
                    self._limits = self._libraries.limit(limits=1)
            self._n_users += 1
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._n_users -= 1
            if not self._n_users:
                with _any_thread_may_change(self._libraries):
                    self._limits.restore_original_limits()


@contextmanager
def _any_thread_may_change(libraries: Any) -> Iterator[None]:
    """Without this, later versions of threadpoolctl ignore all threads but the first that asked."""
    owned = [one for one in libraries.lib_controllers if hasattr(one, "clear_controlling_thread")]
    for library in owned:
        library.clear_controlling_thread(force=True)
    yield
    for library in owned:
        library.clear_controlling_thread(force=True)


@lru_cache(1)
def _loaded_libraries(_n_modules: int) -> Any:
    """All libraries with threads; looked for only after imports, as that takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


# Products with fewer multiplications take one thread anyway; with more of them, up to the second
# number, one thread takes less time than several need to meet.
_FEWEST, _WORTH_THREADS = 1e5, 1e7

ONE_BLAS_THREAD = OneThread("blas")
ONE_OPENMP_THREAD = OneThread("openmp")


def enough_threads(n_multiplications: float) -> AbstractContextManager[Any]:
    """One thread for a matrix product of this size, unless more are worth it."""
    return ONE_BLAS_THREAD if _FEWEST < n_multiplications < _WORTH_THREADS else nullcontext()
