"""Passes over rows: chunk after chunk, summed partition by partition, here or by workers.

A partition is a fixed number of consecutive chunks. What is summed over each is added up in their
order, so that totals have the same bits whoever sums them, and however many do.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from fedopl.base.one_thread import ONE_BLAS_THREAD
from fedopl.client.disk.prefetch import prefetched

_Item = TypeVar("_Item")
_Other = TypeVar("_Other")
_Total = TypeVar("_Total")

# About a million rows: enough that a worker is busy for a second, and totals are few.
CHUNKS_PER_PARTITION = 32

Partition = Sequence[slice]  # the rows of each of its chunks


class PassEngine(Protocol):
    """Workers of the client's own that read its files by themselves."""

    def check(self, file: Path, n_bytes: int) -> None:
        """Refuse workers that do not see this file as it is here."""

    def map(
        self, task: Callable[[Partition], _Total], partitions: Sequence[Partition]
    ) -> Iterator[_Total]:
        """What the task makes of each partition, in their order."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Pass(Generic[_Item]):
    """What is read of each chunk of rows: iterated over here, or summed by partition.

    `read` gives whatever there is of one chunk. Where there is an engine, it is sent to workers, so
    it may refer to files of rows, but to no rows.
    """

    chunks: Partition
    read: Callable[[slice], Iterable[_Item]]
    engine: PassEngine | None = None

    @classmethod
    def of_one(cls, item: _Item) -> "Pass[_Item]":
        """Rows in memory, which are one chunk."""
        return cls(chunks=[slice(None)], read=lambda _: [item])

    def __iter__(self) -> Iterator[_Item]:
        return self._through(self.chunks)

    def _through(self, chunks: Partition) -> Iterator[_Item]:
        if len(chunks) < 2:
            return chain.from_iterable(map(self.read, chunks))
        # Made in the threads that read, and not when they are used.
        return chain.from_iterable(prefetched(lambda rows: list(self.read(rows)), chunks))

    def mapped(self, change: Callable[[_Item], _Other]) -> "Pass[_Other]":
        """The same pass, with something made of each item."""
        return self.spread(partial(_alone, change))

    def spread(self, change: Callable[[_Item], Iterable[_Other]]) -> "Pass[_Other]":
        """The same pass, with several things made of each item."""
        return self.by_rows(partial(_spread, change))

    def by_rows(
        self, change: Callable[[slice, Iterable[_Item]], Iterable[_Other]]
    ) -> "Pass[_Other]":
        """The same pass, with things made of all items of a chunk and of which rows it has."""
        read = partial(_changed, self.read, change)
        return Pass(chunks=self.chunks, read=read, engine=self.engine)

    def here(self) -> "Pass[_Item]":
        """The same pass, for this process alone."""
        return replace(self, engine=None)

    @property
    def partitions(self) -> list[Partition]:
        """The chunks in groups of `CHUNKS_PER_PARTITION`."""
        starts = range(0, len(self.chunks), CHUNKS_PER_PARTITION)
        return [self.chunks[start : start + CHUNKS_PER_PARTITION] for start in starts]

    def totals(self, total: Callable[[Iterable[_Item]], _Total]) -> Iterator[_Total]:
        """The total over each partition, in their order."""
        partitions = self.partitions
        if self.engine is not None and len(partitions) > 1:
            yield from self.engine.map(partial(_total_of, self.read, total), partitions)
            return
        if len(partitions) == 1:
            yield total(self._through(partitions[0]))
            return
        for partition in partitions:
            with ONE_BLAS_THREAD:  # the last one may be a single chunk
                found = total(self._through(partition))
            yield found


def totals_of(
    items: Iterable[_Item], total: Callable[[Iterable[_Item]], _Total]
) -> Iterator[_Total]:
    """The total over each partition of a pass, or over all items of anything else."""
    return items.totals(total) if isinstance(items, Pass) else iter([total(items)])


def mapped(change: Callable[[_Item], _Other], items: Iterable[_Item]) -> Iterable[_Other]:
    """`map`, which of a pass is a pass again."""
    return items.mapped(change) if isinstance(items, Pass) else map(change, items)


# --- at module level, as workers are sent them by name ---------------------------------------


def _alone(change: Callable[[_Item], _Other], item: _Item) -> Iterable[_Other]:
    return [change(item)]


def _spread(
    change: Callable[[_Item], Iterable[_Other]], _rows: slice, items: Iterable[_Item]
) -> Iterable[_Other]:
    return chain.from_iterable(map(change, items))


def _changed(
    read: Callable[[slice], Iterable[_Item]],
    change: Callable[[slice, Iterable[_Item]], Iterable[_Other]],
    rows: slice,
) -> Iterable[_Other]:
    return change(rows, read(rows))


def _total_of(
    read: Callable[[slice], Iterable[_Item]],
    total: Callable[[Iterable[_Item]], _Total],
    partition: Partition,
) -> _Total:
    """What a worker does, one chunk after the other: there are as many workers as cores."""
    with ONE_BLAS_THREAD:
        return total(chain.from_iterable(map(read, partition)))
