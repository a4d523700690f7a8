"""Rows that come in Arrow batches, from a database or a reader, and can be read once."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from fedopl.base.errors import DataError

# Arrow schemas and batches have no types to check against.
RecordBatch = Any


class RowBatches:
    """Batches with the same columns; a column's type may differ between batches.

    `origin` is the same whenever the same query is run again. If it is given, copies on disk of
    earlier answers are removed.
    """

    def __init__(
        self, names: Iterable[str], batches: Iterable[RecordBatch], *, name: str, origin: str = ""
    ) -> None:
        self.names, self.name, self.origin = list(names), name, origin
        self._batches = iter(batches)
        self._read_ahead: deque[RecordBatch] = deque()

    def has_more_than(self, n_rows: float) -> bool:
        """Whether there are more rows; this reads ahead, and keeps what it read."""
        n_read = 0
        for batch in self._batches:
            self._read_ahead.append(batch)
            n_read += batch.num_rows
            if n_read > n_rows:
                return True
        return False

    def __iter__(self) -> Iterator[RecordBatch]:
        while self._read_ahead:
            yield self._read_ahead.popleft()
        yield from self._batches

    def table(self) -> Any:  # a pyarrow.Table
        """All rows."""
        parts = [pa.Table.from_batches([batch]) for batch in self]
        if not parts:
            return pa.table({name: pa.array([], pa.null()) for name in self.names})
        try:
            return pa.concat_tables(parts, promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            raise DataError(f"{self.name}: a column changes its type; cast it to one") from None
