"""What it takes to read chunks of one study's rows on disk: neither the study nor any secret.

Rows are clipped to the study's ranges before anything else looks at them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.held_values import NOTHING_HELD, HeldValues
from fedopl.client.disk.disk_array import slices
from fedopl.client.rows.chunks import Chunk, sorted_order
from fedopl.client.rows.folds import Folds
from fedopl.client.table.logged_data import LoggedData
from fedopl.policies.terms import Terms
from fedopl.study.study import Study

# Many terms of these rows stay in a core's cache while they are made and summed.
ROWS_IN_TERMS_AT_ONCE = 1 << 12


@dataclass(frozen=True, eq=False)
class Clip:
    """The ends of what is clipped."""

    low: FloatArray  # (n_features,)
    high: FloatArray  # (n_features,)
    outcome: tuple[float, float]  # as rewards are: a larger one is better

    @classmethod
    def of(cls, study: Study) -> Self | None:
        """The study's; None if it has no ranges."""
        if not study.ranges:
            return None
        ends = [study.ranges.features.get(name, (-np.inf, np.inf)) for name in study.features]
        low, high = np.array(ends, np.float64).T
        outcome = study.ranges.outcome or (-np.inf, np.inf)
        first, last = sorted(study.reward_sign * end for end in outcome)
        return cls(low, high, (first, last))

    def __call__(self, data: LoggedData) -> LoggedData:
        """The rows with what lies beyond at the nearer end; the same rows if nothing does."""
        if not self.n_beyond(data):
            return data
        contexts = np.clip(data.contexts, self.low, self.high)
        return data.with_contexts(contexts).with_rewards(np.clip(data.rewards, *self.outcome))

    def n_beyond(self, data: LoggedData) -> int:
        """How many numbers of these rows lie beyond."""
        low, high = self.outcome
        of_rewards = (data.rewards < low) | (data.rewards > high)
        beyond = (data.contexts < self.low) | (data.contexts > self.high)
        return int(np.count_nonzero(beyond)) + int(np.count_nonzero(of_rewards))


def n_clipped(data: LoggedData, study: Study) -> int:
    """How many numbers of all rows lie beyond the study's ranges."""
    clip = Clip.of(study)
    return 0 if clip is None else sum(clip.n_beyond(data.part(rows)) for rows in data.slices())


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
