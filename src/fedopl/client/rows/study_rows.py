"""A client's rows as one study goes through them: dealt, in order, and telling of nobody."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.rare_values import RareValues, mask_rare, rare_values
from fedopl.client.disk.disk_array import slices
from fedopl.client.disk.prefetch import prefetched
from fedopl.client.rows.chunks import ROWS_PER_CHUNK, Chunk, in_order
from fedopl.client.rows.fold_sums import MANY_BYTES, FoldSums, fold_sums, squares_from_zero
from fedopl.client.rows.folds import Folds, assign_folds_and_set_apart
from fedopl.client.table.logged_data import LoggedData, fingerprint
from fedopl.messages.diagnosis.client_models import N_PARTS
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.study.study import Study


class DealtRows:
    """The rows, in one chunk where they are in memory; on disk only `chunks` can be had."""

    def __init__(self, given: LoggedData, study: Study, minimum_cell: int) -> None:
        self.given, self._study, self._minimum_cell = given, study, minimum_cell
        self._squares: FloatArray | None = None
        self._kept: FoldSums | None = None

    @property
    def is_on_disk(self) -> bool:
        """Whether rows are to be had some at a time only."""
        return self.given.is_on_disk

    @cached_property
    def fingerprint(self) -> str:
        """Changes whenever the rows do, or their order."""
        order = f"by fold, {ROWS_PER_CHUNK} at a time" if self.is_on_disk else "by fold"
        return f"{fingerprint(self.given)} {order}"

    # --- going through them --------------------------------------------------------------------

    def chunks(self) -> Iterator[Chunk]:
        """The rows, some at a time where they are on disk, without values that tell of a few."""
        if not self.is_on_disk:
            yield self.whole
            return
        for chunk in self._given_chunks():
            yield self._usual(chunk)

    def _given_chunks(self) -> Iterator[Chunk]:
        """The rows in order, with all their values."""
        if not self.is_on_disk:
            yield self._in_order[1]
            return

        def read(rows: slice) -> Chunk:
            return in_order(self.given.part(rows), self.dealt.part(rows))[1]

        yield from prefetched(read, slices(self.given.n_rows, ROWS_PER_CHUNK))

    @cached_property
    def whole(self) -> Chunk:
        """All rows, where they are in memory."""
        return self._usual(self._in_order[1])

    @property
    def order(self) -> IntArray:  # (n_rows,)
        """Which of the rows that were given each row is, where they are in memory."""
        return self._in_order[0]

    @cached_property
    def _in_order(self) -> tuple[IntArray, Chunk]:
        if self.is_on_disk:
            raise RefusedError(RefusalCode.ROWS_ON_DISK)
        return in_order(self.given, self.dealt)

    @cached_property
    def dealt(self) -> Folds:
        """The fold of each row as it was given; the seed decides, not the order."""
        study = self._study
        return assign_folds_and_set_apart(
            self.given, study.nuisances.folds, study.evaluation_share, study.seed
        )

    @cached_property
    def parts(self) -> Folds:
        """The training rows dealt to `N_PARTS` parts, for models to be fitted without each."""
        study = self._study
        dealt = assign_folds_and_set_apart(self.given, N_PARTS, study.evaluation_share, study.seed)
        return dealt.taken(self.order)

    # --- counting them -------------------------------------------------------------------------

    @cached_property
    def counts(self) -> IntArray:  # (n_folds + 1, n_actions)
        """Rows of each fold that took each action; those set apart come last."""
        counts: IntArray = self._by_cell(
            lambda cells, _, n_cells: np.bincount(cells, None, n_cells)
        )
        return counts

    @cached_property
    def weights(self) -> FloatArray:  # (n_folds + 1, n_actions)
        """The same, with each row counting by its weight."""
        weights = self.given.weights
        if weights is None:
            return self.counts.astype(np.float64)
        found: FloatArray = self._by_cell(
            lambda cells, rows, n_cells: np.bincount(cells, weights[rows], n_cells)
        )
        return found

    def _by_cell(self, counted: Callable[[IntArray, slice, int], NDArray[Any]]) -> Any:
        """What is counted in parts of the rows, by fold and action; no context is read."""
        given, folds = self.given, self.dealt
        n_cells = (folds.n_folds + 1) * given.n_actions
        every = slices(given.n_rows, ROWS_PER_CHUNK) if self.is_on_disk else [slice(None)]
        found: Any = 0
        for rows in every:
            cells = folds.of_row[rows].astype(np.int64) * given.n_actions + given.actions[rows]
            found = found + counted(cells, rows, n_cells)
        return found.reshape(-1, given.n_actions)

    @property
    def n_folds(self) -> int:
        """How many folds rows are dealt to."""
        return len(self.counts) - 1

    def n_rows(self, split: RowSplit) -> int:
        """How many rows a split has."""
        return self._sizes[split]

    @cached_property
    def _sizes(self) -> dict[RowSplit, int]:
        first, *others, apart = self.counts.sum(axis=1).tolist()
        return {
            RowSplit.TRAINING: first + sum(others),
            RowSplit.FITTING: sum(others),
            RowSplit.VALIDATION: first,
            RowSplit.EVALUATION: apart,
        }

    # --- values that would give a few of them away ---------------------------------------------

    def _usual(self, chunk: Chunk) -> Chunk:
        """The same, in which what is rare among training rows is what is usual there."""
        if not self._rare:
            return chunk
        everybody = np.zeros(chunk.training.stop, np.int64)
        return chunk.with_data(without_rare(chunk.data, chunk.training, self._rare, everybody))

    @cached_property
    def _rare(self) -> tuple[RareValues, ...]:
        """What few of all training rows have."""

        def parts() -> Iterator[tuple[FloatArray, IntArray]]:
            for chunk in self._given_chunks():
                contexts = chunk.data.contexts[chunk.training]
                yield contexts, np.zeros(len(contexts), np.int64)

        return rare_values(parts, 1, self._minimum_cell)

    def without_rare(self, cells: IntArray) -> LoggedData:
        """The rows, without values that are rare in the cell (n_training,) that a row is in."""
        data, training = self.whole.data, self.whole.training
        contexts = data.contexts[training]
        n_cells = int(cells.max(initial=-1)) + 1
        rare = rare_values(lambda: [(contexts, cells)], n_cells, self._minimum_cell)
        return without_rare(data, training, rare, cells)

    # --- summing them --------------------------------------------------------------------------

    def outcome_sums(self) -> FoldSums:
        """Sums about one origin, without what is rare in a fold and action, to be written over."""

        def parts() -> Iterator[tuple[FloatArray, IntArray]]:
            for chunk in self.chunks():
                training = chunk.training
                yield chunk.data.contexts[training], chunk.cells()[training]

        found = self.fold_sums(rare_values(parts, self.counts[:-1].size, self._minimum_cell))
        return replace(found, sums=found.sums.copy()) if found is self._kept else found

    def fold_sums(self, rare: tuple[RareValues, ...] = ()) -> FoldSums:
        """Sums about one origin, without these values."""
        if self._kept is not None and not rare:
            return self._kept
        total: FoldSums | None = None
        for chunk in self.chunks():
            data, training = chunk.data, chunk.training
            if rare:
                data = without_rare(data, training, rare, chunk.cells()[training])
            total = fold_sums(data, chunk.folds, onto=total)
        if total is None:
            raise RefusedError(RefusalCode.NOTHING_TO_SAY)
        if not rare:
            self._squares = squares_from_zero(total)
            # The client's own models will be made of them, too.
            if self._study.evaluation_share and total.sums.nbytes <= MANY_BYTES:
                self._kept = total
        return total

    @property
    def squares(self) -> FloatArray:  # (n_features + 1, n_features + 1)
        """Σ w·(x, 1)(x, 1)ᵀ over the training rows; sums for outcome models have it for nothing."""
        if self._squares is None:
            self._squares = squares_from_zero(self.fold_sums())
        return self._squares


def without_rare(
    data: LoggedData, rows: slice | BoolArray, rare: tuple[RareValues, ...], cells: IntArray
) -> LoggedData:
    """The data, in which rare values of these rows are the usual ones."""
    if not rare:
        return data
    contexts = data.contexts[rows]
    usual = mask_rare(rare, contexts, cells)
    if usual is contexts:
        return data
    whole = np.array(data.contexts)
    whole[rows] = usual
    return data.with_contexts(whole)
