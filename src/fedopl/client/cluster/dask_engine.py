"""Dask workers that sum a client's rows on disk, partition by partition. Needs the `dask` extra.

The workers are the client's own. They read its files by themselves, so they need the same folder,
and send back what would be summed here: nothing that they do is seen by a federation's server.
"""

import logging
from asyncio import CancelledError as AsyncCancelled
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from fedopl.base.errors import OptionError
from fedopl.client.cluster.workers import (
    AHEAD,
    all_gone,
    check_asked,
    check_size,
    check_versions,
    computed,
    connection_lost,
    died_of_rows,
    no_worker,
    size_of,
    task_bytes,
    versions,
)
from fedopl.client.disk.passes import Partition
from fedopl.client.disk.prefetch import results_in_order

_Total = TypeVar("_Total")


class DaskEngine:
    """Workers of a Dask cluster: one that runs, by its scheduler's address, or one on this machine.

    Args:
        address: of a scheduler, such as tls://lake.example.org:8786. Without it, workers are
            started on this machine, and end with this process.
        workers: how many to start on this machine; default: as many as it has cores.
        wait: for how many seconds to wait for the scheduler, and for a first worker.

    """

    def __init__(
        self, address: str | None = None, *, workers: int | None = None, wait: float = 30.0
    ) -> None:
        check_asked(address, workers, wait, extra="dask", packages=("dask", "distributed"))
        self._address, self._workers, self._wait = address, workers, wait

    @cached_property
    def _client(self) -> Any:
        client = self._connected()
        try:
            client.wait_for_workers(1, timeout=self._wait)
            here = versions()
            for worker, there in client.run(versions).items():
                check_versions(worker, there, here)
        except TimeoutError:
            client.close()
            raise no_worker(self._name, self._wait) from None
        except BaseException:
            client.close()
            raise
        return client

    def _connected(self) -> Any:
        import distributed

        connect: Any = distributed.Client  # which has no types
        if self._address is None:
            return connect(self._local_cluster, set_as_default=False, timeout=self._wait)
        _check_address(self._address)
        try:
            return connect(self._address, set_as_default=False, timeout=self._wait)
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            raise OptionError(
                f"engine: no Dask scheduler could be reached at {self._address} in "
                f"{self._wait:g} seconds ({type(error).__name__}); start one (dask scheduler), or "
                "correct the address"
            ) from None

    @cached_property
    def _local_cluster(self) -> Any:
        import dask
        import distributed

        start: Any = distributed.LocalCluster
        for handler in logging.getLogger("distributed").handlers:
            handler.setLevel(logging.ERROR)  # also of what it says when it ends
        # With certificates of its own: whoever reaches a scheduler can run programs by it. And
        # with no page that tells what is computed.
        pages: dict[str, list[str]] = {
            f"distributed.{part}.http.routes": [] for part in ("scheduler", "worker", "nanny")
        }
        with dask.config.set(pages):
            return start(
                n_workers=self._workers,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},
                security=True,
            )

    @property
    def _name(self) -> str:
        return self._address or "the Dask cluster of this machine"

    def connect(self) -> None:
        """Reach the cluster, or start it; the first pass over rows does so otherwise."""
        self._client  # noqa: B018

    def check(self, file: Path, n_bytes: int) -> None:
        """Refuse workers that do not see this file as it is here."""
        for worker, found in self._client.run(size_of, file.absolute()).items():
            check_size(file, n_bytes, worker, found)

    def map(
        self, task: Callable[[Partition], _Total], partitions: Sequence[Partition]
    ) -> Iterator[_Total]:
        """What the task makes of each partition, in their order; some are under way meanwhile."""
        content, client = task_bytes(task), self._client

        def submit(partition: Partition) -> Any:
            # Not pure: whoever asks twice wants rows read twice.
            return client.submit(computed, content, list(partition), pure=False)

        most = AHEAD * max(1, sum(client.nthreads().values()))
        return results_in_order(submit, self._result, partitions, most)

    def _result(self, future: Any) -> Any:
        """The result of one partition; Dask has it computed again where a worker died."""
        from distributed.scheduler import KilledWorker

        while True:
            try:
                return future.result(timeout=self._wait)
            except TimeoutError:
                if future.status == "pending" and not self._client.nthreads():
                    raise all_gone(self._name) from None
            except (AsyncCancelled, CancelledError):
                raise connection_lost(self._name) from None
            except KilledWorker:
                raise died_of_rows(self._name) from None

    def close(self) -> None:
        """End the connection, and the workers that were started for it."""
        if "_client" in vars(self):
            self._client.close()
        if "_local_cluster" in vars(self):
            self._local_cluster.close()


def _check_address(address: str) -> None:
    """Refuse what is no scheduler's address: a client of Dask that fails on it prints an error."""
    from distributed.comm.addressing import parse_address, parse_host_port
    from distributed.comm.registry import get_backend

    try:
        scheme, place = parse_address(address)
        get_backend(scheme)
        if scheme != "inproc":  # which is in this process, and has no host and port
            parse_host_port(place)
    except ValueError:
        raise OptionError(
            f"engine: address: expected that of a Dask scheduler, such as "
            f"tls://lake.example.org:8786, came {address!r}"
        ) from None
