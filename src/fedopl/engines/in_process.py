"""Transport to clients in this process. Queries and answers are still encoded and decoded."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any, Protocol

from fedopl.base.arrays import check_whole
from fedopl.base.errors import OptionError
from fedopl.base.packed_arrays import PackedArrays
from fedopl.base.restricted import OnDemand
from fedopl.client.disclosure.checked_ledger import with_head
from fedopl.client.disclosure.ledger import Ledger
from fedopl.client.disk.store import MemoryStore, PackedStore, Store
from fedopl.client.door import Door
from fedopl.client.table.logged_data import LoggedData, fingerprint
from fedopl.policies.policy import Policy
from fedopl.study.study import Study

MOST_THREADS = 1000


QUESTIONS_AT_ONCE = 64  # questions in the queue, per thread
# Doors stay open while all of them together take about this many bytes.
MOST_BYTES_OPEN = 1 << 28
BYTES_OF_DOOR = 1 << 14  # without its rows


class Answering(Protocol):
    """A door, or an aggregator."""

    ledger: Ledger

    def handle(self, content: bytes) -> bytes:
        """Answer a query, or several that came together."""


class InProcess:
    """Passes queries to the clients' doors, in turn or in threads, with the same result."""

    def __init__(self, doors: Mapping[str, Answering], threads: int = 1) -> None:
        check_whole(threads, "threads", 1, MOST_THREADS)
        self.doors: Mapping[str, Any] = doors
        self.threads = threads

    @property
    def clients(self) -> tuple[str, ...]:
        """The names of all clients, sorted."""
        return tuple(sorted(self.doors))

    def exchange(self, queries: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """Let each client's door answer its query."""
        if self.threads == 1:
            for name, query in queries.items():
                yield name, self._answer(name, query)
            return
        names, some = list(queries), QUESTIONS_AT_ONCE * self.threads
        with ThreadPoolExecutor(self.threads) as pool:
            # In batches, so that not all answers of many clients are in memory at once.
            for start in range(0, len(names), some):
                own = names[start : start + some]
                answers = pool.map(lambda name: self._answer(name, queries[name]), own)
                yield from zip(own, answers, strict=True)

    def _answer(self, name: str, query: bytes) -> bytes:
        door = self.doors[name]
        return with_head(door.handle(query), door.ledger)


class DoorsOnDemand(OnDemand[Door]):
    """Doors that are opened for one question and closed after it, together with their rows.

    What a client keeps between questions stays in one file for all clients. The first doors, up to
    `MOST_BYTES_OPEN` together, stay open. So with few clients no rows are made again, and none of
    them needs the file.
    """

    def __init__(
        self,
        clients: Mapping[str, LoggedData],
        opened: Callable[[str, LoggedData, Store], Door],
        store: Store | None = None,
    ) -> None:
        super().__init__(clients, self._door)
        self._clients, self._opened = clients, opened
        self._file, self._store = PackedArrays(), store
        self._stores: dict[str, Store] = {}
        self._open: dict[str, Door] = {}
        self._bytes_open = 0

    def _door(self, name: str) -> Door:
        if name in self._open:
            return self._open[name]
        data = self._clients[name]
        # Rows are there as given, and in the study's order.
        n_bytes = BYTES_OF_DOOR + 2 * data.bytes_in_memory
        stays = name not in self._stores and self._bytes_open + n_bytes <= MOST_BYTES_OPEN
        own = MemoryStore() if stays else self._packed_store(name)
        door = self._opened(name, data, own if self._store is None else self._store)
        if stays:
            self._open[name] = door
            self._bytes_open += n_bytes
        return door

    def _packed_store(self, name: str) -> Store:
        """A store that outlives the client's doors."""
        if name not in self._stores:
            self._stores[name] = PackedStore(self._file)
        return self._stores[name]


def check_packages(study: Study) -> None:
    """Refuse a study that needs a package that is not installed."""
    if study.linear.oracle == "csoaa-vw" and find_spec("vowpalwabbit") is None:
        raise OptionError("oracle: csoaa-vw needs Vowpal Wabbit; pip install 'fedopl[vw]'")
    if study.tree.thresholds == "observed" and find_spec("numba") is None:
        raise OptionError("thresholds: observed ones need numba; pip install 'fedopl[observed]'")


def only_policy(doors: Mapping[str, Answering]) -> Callable[[], Policy] | None:
    """Access to the local policy if there is only one client, else None."""
    if len(doors) != 1:
        return None
    (door,) = doors.values()
    return (lambda: door.local_policy) if isinstance(door, Door) else None


def fingerprint_of(clients: Mapping[str, LoggedData]) -> str:
    """A hash of all clients' rows. A journal is replayed only with the rows it was written for."""
    return " ".join(f"{name} {fingerprint(clients[name])}" for name in sorted(clients))
