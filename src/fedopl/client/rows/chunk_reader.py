"""What it takes to read chunks of one study's rows on disk: neither the study nor any secret."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fedopl.base.arrays import IntArray
from fedopl.client.disclosure.held_values import NOTHING_HELD, HeldValues
from fedopl.client.disk.disk_array import slices
from fedopl.client.rows.chunks import Chunk, sorted_order
from fedopl.client.rows.clipped import Clip
from fedopl.client.rows.folds import Folds
from fedopl.client.table.logged_data import LoggedData
from fedopl.policies.terms import Terms

# Many terms of these rows stay in a core's cache while they are made and summed.
ROWS_IN_TERMS_AT_ONCE = 1 << 12


@dataclass(frozen=True, eq=False, kw_only=True)
class ChunkReader:
    """Files of rows and of their folds, perhaps with a further outcome in place of the reward."""

    given: LoggedData
    folds: Folds
    outcome: str | None
    clip: Clip | None = None

    def prepared(self, data: LoggedData) -> LoggedData:
        """The rows as they count: clipped to agreed ranges, and perhaps with another outcome."""
        clipped = data if self.clip is None else self.clip(data)
        return clipped if self.outcome is None else clipped.valued_by(self.outcome)

    def read(self, rows: slice) -> list[Chunk]:
        """These rows in order, with all their values."""
        return [self.in_order(rows)[0]]

    def in_order(self, rows: slice) -> tuple[Chunk, IntArray]:
        """The same, and which of the rows each is."""
        data = self.prepared(self.given.part(rows))
        chunk = Chunk(data=data, folds=self.folds.part(rows))
        order = sorted_order(chunk.folds.of_row, data.actions, self.folds.n_folds, data.n_actions)
        return chunk.taken(order), order


@dataclass(frozen=True, eq=False, kw_only=True)
class IntoTerms:
    """The terms that models are linear in, and those that are held at one value."""

    terms: Terms | None  # None if they are the features themselves
    held: HeldValues = NOTHING_HELD

    def __call__(self, chunk: Chunk) -> Iterator[tuple[slice, Chunk]]:
        """The chunk, some rows at a time, with terms for contexts, and which rows these are.

        Without a basis these are the features, and all rows at once.
        """
        if self.terms is None:
            yield slice(None), chunk
            return
        for rows in slices(chunk.data.n_rows, ROWS_IN_TERMS_AT_ONCE):
            data = chunk.data.part(rows)
            found = data.with_contexts(self.held(self.terms.of(data.contexts)))
            yield rows, Chunk(data=found, folds=chunk.folds.part(rows))

    def chunks(self, chunk: Chunk) -> Iterator[Chunk]:
        """The same without saying which rows these are."""
        return (part for _, part in self(chunk))


def with_held(held: HeldValues, chunk: Chunk) -> Chunk:
    """The chunk with features held in all its rows; the same chunk if there are none."""
    if not held:
        return chunk
    return replace(chunk, data=chunk.data.with_contexts(held(chunk.data.contexts)))
