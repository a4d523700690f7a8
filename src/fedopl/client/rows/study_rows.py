"""One study's view of the rows: folds assigned, sorted by fold and action, rare values masked."""

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
from fedopl.client.rows.chunks import ROWS_PER_CHUNK, Chunk, joined, sorted_order
from fedopl.client.rows.fold_sums import MANY_BYTES, FoldSums, fold_sums, squares_from_zero
from fedopl.client.rows.folds import Folds, assign_folds_and_hold_out
from fedopl.client.table.logged_data import LoggedData, fingerprint
from fedopl.messages.diagnosis.client_models import N_PARTS
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.study.study import Study


class StudyRows:
    """The rows of a study: one chunk where they are in memory, many where they are on disk."""

    def __init__(self, given: LoggedData, study: Study, minimum_cell: int) -> None:
        self.given, self._study, self._minimum_cell = given, study, minimum_cell
        self._squares: FloatArray | None = None
        self._kept: FoldSums | None = None

    @property
    def is_on_disk(self) -> bool:
        """Whether rows are read some at a time."""
        return self.given.is_on_disk

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the rows and a word on their order: it changes whenever either does."""
        order = f"by fold, {ROWS_PER_CHUNK} at a time" if self.is_on_disk else "by fold"
        return f"{fingerprint(self.given)} {order}"

    # --- going through them --------------------------------------------------------------------

    def chunks(self) -> Iterator[Chunk]:
        """The rows, some at a time where they are on disk, with rare values masked."""
        if not self.is_on_disk:
            yield self.whole
            return
        for chunk in self._unmasked_chunks():
            yield self._masked(chunk)

    def _unmasked_chunks(self) -> Iterator[Chunk]:
        """The rows in order, with all their values."""
        if not self.is_on_disk:
            yield self._unmasked
            return

        def read(rows: slice) -> Chunk:
            chunk = Chunk(data=self.given.part(rows), folds=self.folds_as_given.part(rows))
            return chunk.taken(sorted_order(chunk))

        yield from prefetched(read, slices(self.given.n_rows, ROWS_PER_CHUNK))

    def sample(self, most: int) -> Chunk:
        """Evenly spread rows, about so many; the whole chunk of no more rows in memory."""
        step = max(1, -(-self.given.n_rows // most))
        if step == 1 and not self.is_on_disk:
            return self.whole
        pieces, start = [], 0
        for chunk in self.chunks():
            pieces.append(chunk.taken(np.arange(-start % step, chunk.data.n_rows, step)))
            start += chunk.data.n_rows
        return joined(pieces)

    @cached_property
    def whole(self) -> Chunk:
        """All rows, where they are in memory."""
        return self._masked(self._unmasked)

    @cached_property
    def order(self) -> IntArray:  # (n_rows,)
        """Which of the rows as they were given each row is, where they are in memory."""
        if self.is_on_disk:
            raise RefusedError(RefusalCode.ROWS_ON_DISK)
        return sorted_order(Chunk(data=self.given, folds=self.folds_as_given))

    @cached_property
    def _unmasked(self) -> Chunk:
        order = self.order
        return Chunk(data=self.given.taken(order), folds=self.folds_as_given.taken(order))

    @cached_property
    def folds_as_given(self) -> Folds:
        """The fold of each row in the order of the table; the seed decides, not that order."""
        study = self._study
        return assign_folds_and_hold_out(
            self.given, study.nuisances.folds, study.evaluation.share, study.seed
        )

    @cached_property
    def parts(self) -> Folds:
        """The training rows in `N_PARTS` parts, for models to be fitted without each of them."""
        study = self._study
        parts = assign_folds_and_hold_out(self.given, N_PARTS, study.evaluation.share, study.seed)
        return parts.taken(self.order)

    # --- counting them -------------------------------------------------------------------------

    @cached_property
    def rows_by_fold_action(self) -> IntArray:  # (n_folds + 1, n_actions)
        """Rows of each fold that took each action; held-out rows come last."""
        counts: IntArray = self._by_fold_action(
            lambda numbers, _, n_numbers: np.bincount(numbers, None, n_numbers)
        )
        return counts

    @cached_property
    def weight_by_fold_action(self) -> FloatArray:  # (n_folds + 1, n_actions)
        """The same, with each row counting by its weight."""
        weights = self.given.weights
        if weights is None:
            return self.rows_by_fold_action.astype(np.float64)
        found: FloatArray = self._by_fold_action(
            lambda numbers, rows, n_numbers: np.bincount(numbers, weights[rows], n_numbers)
        )
        return found

    def _by_fold_action(self, counted: Callable[[IntArray, slice, int], NDArray[Any]]) -> Any:
        """What is counted in parts of the rows, by fold and action; no context is read."""
        given, folds = self.given, self.folds_as_given
        n_numbers = (folds.n_folds + 1) * given.n_actions
        every = slices(given.n_rows, ROWS_PER_CHUNK) if self.is_on_disk else [slice(None)]
        found: Any = 0
        for rows in every:
            numbers = folds.of_row[rows].astype(np.int64) * given.n_actions + given.actions[rows]
            found = found + counted(numbers, rows, n_numbers)
        return found.reshape(-1, given.n_actions)

    def n_rows(self, split: RowSplit) -> int:
        """How many rows a split has."""
        return self._sizes[split]

    @cached_property
    def _sizes(self) -> dict[RowSplit, int]:
        first, *others, held_out = self.rows_by_fold_action.sum(axis=1).tolist()
        return {
            RowSplit.TRAINING: first + sum(others),
            RowSplit.FITTING: sum(others),
            RowSplit.VALIDATION: first,
            RowSplit.EVALUATION: held_out,
        }

    # --- masking rare values -------------------------------------------------------------------

    def _masked(self, chunk: Chunk) -> Chunk:
        """The same, with what is rare among all training rows masked."""
        if not self._rare:
            return chunk
        one_cell = np.zeros(chunk.training.stop, np.int64)
        return chunk.with_data(with_rare_masked(chunk.data, chunk.training, self._rare, one_cell))

    @cached_property
    def _rare(self) -> tuple[RareValues, ...]:
        """What few of all training rows have."""

        def parts() -> Iterator[tuple[FloatArray, IntArray]]:
            for chunk in self._unmasked_chunks():
                contexts = chunk.data.contexts[chunk.training]
                yield contexts, np.zeros(len(contexts), np.int64)

        return rare_values(parts, 1, self._minimum_cell)

    def masked_by_cell(self, cells: IntArray) -> LoggedData:
        """The rows, without values that are rare in the cell (n_training,) that a row is in."""
        data, training = self.whole.data, self.whole.training
        contexts = data.contexts[training]
        n_cells = int(cells.max(initial=-1)) + 1
        rare = rare_values(lambda: [(contexts, cells)], n_cells, self._minimum_cell)
        return with_rare_masked(data, training, rare, cells)

    # --- summing them --------------------------------------------------------------------------

    def outcome_sums(self) -> FoldSums:
        """Sums without what is rare in a fold and action, to be released: they may be changed."""

        def parts() -> Iterator[tuple[FloatArray, IntArray]]:
            for chunk in self.chunks():
                training = chunk.training
                yield chunk.data.contexts[training], chunk.fold_actions[training]

        n_cells = self.rows_by_fold_action[:-1].size
        found = self.fold_sums(rare_values(parts, n_cells, self._minimum_cell))
        return replace(found, sums=found.sums.copy()) if found is self._kept else found

    def fold_sums(self, rare: tuple[RareValues, ...] = ()) -> FoldSums:
        """Sums over all chunks about one origin, without these values."""
        if self._kept is not None and not rare:
            return self._kept
        total: FoldSums | None = None
        for chunk in self.chunks():
            data, training = chunk.data, chunk.training
            if rare:
                data = with_rare_masked(data, training, rare, chunk.fold_actions[training])
            total = fold_sums(data, chunk.folds, onto=total)
        if total is None:
            raise RefusedError(RefusalCode.NOTHING_TO_SAY)
        if not rare:
            self._squares = squares_from_zero(total)
            # The client's own outcome models will be solved from them, too.
            if self._study.evaluation.share and total.sums.nbytes <= MANY_BYTES:
                self._kept = total
        return total

    @property
    def squares(self) -> FloatArray:  # (n_features + 1, n_features + 1)
        """Σ w·(x, 1)(x, 1)ᵀ over the training rows; it costs nothing beside `fold_sums`."""
        if self._squares is None:
            self._squares = squares_from_zero(self.fold_sums())
        return self._squares


def with_rare_masked(
    data: LoggedData, rows: slice | BoolArray, rare: tuple[RareValues, ...], cells: IntArray
) -> LoggedData:
    """The data with rare values of these rows masked, each by the cell that the row is in."""
    if not rare:
        return data
    contexts = data.contexts[rows]
    masked = mask_rare(rare, contexts, cells)
    if masked is contexts:
        return data
    whole = np.array(data.contexts)
    whole[rows] = masked
    return data.with_contexts(whole)
