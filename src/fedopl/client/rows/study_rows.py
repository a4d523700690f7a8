"""One study's view of the rows: folds assigned, sorted by fold and action, rare values masked."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.masking import Mask, find_mask
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.disk.disk_array import slices
from fedopl.client.disk.prefetch import prefetched
from fedopl.client.rows.chunks import ROWS_PER_CHUNK, Chunk, joined, sorted_order
from fedopl.client.rows.fold_sums import MANY_BYTES, FoldSums, fold_sums, squares_from_zero
from fedopl.client.rows.folds import Folds, assign_folds_and_hold_out
from fedopl.client.table.logged_data import LoggedData, fingerprint
from fedopl.messages.diagnosis.client_models import N_PARTS
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.terms import Terms
from fedopl.study.study import Study

NOTHING = Mask()


@dataclass(frozen=True)
class TrainingWeight:
    """The total weight of training rows, and the largest weight."""

    total: float
    largest: float


class StudyRows:
    """The rows of a study: one chunk if they are in memory, many chunks if they are on disk."""

    def __init__(
        self,
        given: LoggedData,
        study: Study,
        minimum_cell: int,
        draws: PrivateDraws,
        *,
        outcome: str | None = None,  # a further outcome, in place of the reward
        held_out: float | None = None,  # the share of rows, if not the study's
    ) -> None:
        self.given, self._study, self._minimum_cell = given, study, minimum_cell
        self._draws, self.outcome = draws, outcome
        self._held_out = study.evaluation.share if held_out is None else held_out
        self._squares: FloatArray | None = None
        self._kept: FoldSums | None = None

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the rows, with a note on their order: it changes whenever either does."""
        order = f"by fold, {ROWS_PER_CHUNK} at a time" if self.given.is_on_disk else "by fold"
        return f"{fingerprint(self.given)} {order}"

    # --- going through them --------------------------------------------------------------------

    def chunks(self) -> Iterator[Chunk]:
        """The rows, in chunks if they are on disk, with rare values masked."""
        if not self.given.is_on_disk:
            return iter([self.whole])
        return map(self._masked, self._unmasked_chunks())

    def _unmasked_chunks(self) -> Iterator[Chunk]:
        """The sorted rows, with all their values."""
        if not self.given.is_on_disk:
            return iter([self._unmasked])
        return prefetched(self._read, self.given.slices(ROWS_PER_CHUNK))

    def _read(self, rows: slice) -> Chunk:
        """These rows, which are on disk, sorted."""
        return self._read_in_order(rows)[0]

    def _read_in_order(self, rows: slice) -> tuple[Chunk, IntArray]:
        data = self._with_outcome(self.given.part(rows))
        chunk = Chunk(data=data, folds=self.folds_as_given.part(rows))
        order = sorted_order(chunk)
        return chunk.taken(order), order

    def chunks_and_parts(self) -> Iterator[tuple[Chunk, Folds]]:
        """The rows with rare values masked, and the part (of `N_PARTS`) of each row."""
        parts = self._parts_as_given
        if not self.given.is_on_disk:
            yield self.whole, parts.taken(self.order)
            return

        def read(rows: slice) -> tuple[Chunk, Folds]:
            chunk, order = self._read_in_order(rows)
            return chunk, parts.part(rows).taken(order)

        for chunk, own in prefetched(read, self.given.slices(ROWS_PER_CHUNK)):
            yield self._masked(chunk), own

    def sample(self, most: int) -> Chunk:
        """About `most` evenly spread rows; the whole chunk if rows in memory are no more."""
        step = max(1, -(-self.given.n_rows // most))
        if step == 1 and not self.given.is_on_disk:
            return self.whole
        pieces, start = [], 0
        for chunk in self.chunks():
            pieces.append(chunk.taken(np.arange(-start % step, chunk.data.n_rows, step)))
            start += chunk.data.n_rows
        return joined(pieces)

    @cached_property
    def whole(self) -> Chunk:
        """All rows, if they are in memory."""
        return self._masked(self._unmasked)

    @cached_property
    def order(self) -> IntArray:  # (n_rows,)
        """The place of each sorted row in the table as given, if rows are in memory."""
        if self.given.is_on_disk:
            raise RefusedError(RefusalCode.ROWS_ON_DISK)
        return sorted_order(Chunk(data=self.given, folds=self.folds_as_given))

    @cached_property
    def _unmasked(self) -> Chunk:
        order = self.order
        data = self._with_outcome(self.given.taken(order))
        return Chunk(data=data, folds=self.folds_as_given.taken(order))

    def _with_outcome(self, data: LoggedData) -> LoggedData:
        return data if self.outcome is None else data.valued_by(self.outcome)

    @cached_property
    def folds_as_given(self) -> Folds:
        """The fold of each row in the order of the table; the seed decides, not that order."""
        return self._assigned(self._study.nuisances.folds)

    @cached_property
    def _parts_as_given(self) -> Folds:
        """The training rows in `N_PARTS` parts; models are fitted without each of them."""
        return self._assigned(N_PARTS)

    def _assigned(self, n_folds: int) -> Folds:
        share, draws = self._held_out, self._draws
        rows = self.fingerprint if draws.secret else ""
        seed = draws.split_seed(self._study.agreed_digest, rows)
        return assign_folds_and_hold_out(self.given, n_folds, share, seed)

    # --- the terms that models are linear in ---------------------------------------------------

    def in_terms(self, chunk: Chunk) -> Iterator[tuple[slice, Chunk]]:
        """Blocks of the chunk with terms as contexts, each with the slice of its rows.

        Without a basis the terms are the features, and there is one block.
        """
        for rows, part in self._unmasked_terms(chunk):
            yield rows, part if part is chunk else _without(self._rare_terms, part)

    @property
    def terms(self) -> Terms | None:
        """The terms that models are linear in, None if these are the features."""
        return self._study.terms

    @property
    def n_terms(self) -> int:
        """The number of terms of a row."""
        return self._study.n_terms

    def chunks_in_terms(self) -> Iterator[Chunk]:
        """All rows with their terms, as they are summed."""
        return (part for chunk in self.chunks() for _, part in self.in_terms(chunk))

    def _unmasked_terms(self, chunk: Chunk) -> Iterator[tuple[slice, Chunk]]:
        terms = self.terms
        if terms is None:
            yield slice(None), chunk
            return
        for rows in slices(chunk.data.n_rows, ROWS_PER_CHUNK):
            data = chunk.data.part(rows)
            found = data.with_contexts(terms.of(data.contexts))
            yield rows, Chunk(data=found, folds=chunk.folds.part(rows))

    @cached_property
    def _rare_terms(self) -> Mask:
        """Values of terms that few training rows have, such as being above a knot."""

        def parts() -> Iterator[tuple[FloatArray, IntArray]]:
            for chunk in self.chunks():
                for _, part in self._unmasked_terms(chunk):
                    contexts = part.data.contexts[part.training]
                    yield contexts, np.zeros(len(contexts), np.int64)

        return find_mask(parts, 1, self._minimum_cell, self.terms)

    # --- counting them -------------------------------------------------------------------------

    @cached_property
    def rows_by_fold_action(self) -> IntArray:  # (n_folds + 1, n_actions)
        """Rows of each fold that took each action; held-out rows come last."""
        return self._by_fold_action(None).astype(np.int64, copy=False)

    @cached_property
    def weight_by_fold_action(self) -> FloatArray:  # (n_folds + 1, n_actions)
        """The same, in which each row counts by its weight."""
        if self.given.weights is None:
            return self.rows_by_fold_action.astype(np.float64)
        return self._by_fold_action(self.given.weights)

    def _by_fold_action(self, weights: FloatArray | None) -> NDArray[Any]:
        """The number of rows, or their weight, by fold and action; no context is read."""
        given, folds = self.given, self.folds_as_given
        found: NDArray[Any] = np.zeros((folds.n_folds + 1) * given.n_actions)
        for rows in given.slices(ROWS_PER_CHUNK):
            numbers = folds.of_row[rows].astype(np.int64) * given.n_actions + given.actions[rows]
            weight = None if weights is None else weights[rows]
            found += np.bincount(numbers, weight, len(found))
        return found.reshape(-1, given.n_actions)

    @property
    def training_weight(self) -> TrainingWeight | None:
        """The weight of training rows; None if rows have no weights. No context is read."""
        weights, folds = self.given.weights, self.folds_as_given
        if weights is None:
            return None
        largest = 0.0
        for rows in self.given.slices(ROWS_PER_CHUNK):
            training = folds.of_row[rows] < folds.n_folds
            largest = max(largest, float(np.max(weights[rows], initial=0.0, where=training)))
        total = float(self.weight_by_fold_action[:-1].sum())
        return TrainingWeight(total=total, largest=largest)

    def n_rows(self, split: RowSplit) -> int:
        """The number of rows of a split."""
        return self._sizes[split]

    def weight_of(self, split: RowSplit) -> float:
        """The total weight of training or held-out rows; their number, if rows have no weights."""
        weights, folds = self.given.weights, self.folds_as_given
        if weights is None:
            return float(self.n_rows(split))
        if not self.given.is_on_disk:
            return float(self.whole.data.weights_of(self.whole.rows(split)).sum())
        are_held_out, total = split is RowSplit.EVALUATION, 0.0
        for rows in self.given.slices(ROWS_PER_CHUNK):
            is_held_out = folds.of_row[rows] == folds.n_folds
            total += float(weights[rows][is_held_out == are_held_out].sum())
        return total

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
        """The same chunk, with values masked that are rare among all training rows."""
        return _without(self._rare, chunk)

    @cached_property
    def _rare(self) -> Mask:
        """Values that few of all training rows have."""

        def parts() -> Iterator[tuple[FloatArray, IntArray]]:
            for chunk in self._unmasked_chunks():
                contexts = chunk.data.contexts[chunk.training]
                yield contexts, np.zeros(len(contexts), np.int64)

        return find_mask(parts, 1, self._minimum_cell)

    # --- summing them --------------------------------------------------------------------------

    @cached_property
    def _rare_in_cells(self) -> Mask:
        """Values that few training rows of a fold and action have."""

        def parts() -> Iterator[tuple[FloatArray, IntArray]]:
            for chunk in self.chunks_in_terms():
                training = chunk.training
                yield chunk.data.contexts[training], chunk.fold_actions[training]

        n_cells = self.rows_by_fold_action[:-1].size
        return find_mask(parts, n_cells, self._minimum_cell, self.terms)

    def chunks_as_summed(self) -> Iterator[Chunk]:
        """The rows without values that are rare in a fold and action, as outcome sums use them."""
        for chunk in self.chunks_in_terms():
            yield _without(self._rare_in_cells, chunk, chunk.fold_actions[chunk.training])

    def chunks_by_fold(self) -> Iterator[Chunk]:
        """The rows without values that are rare in a fold, as sums of scores by fold use them."""
        return self._masked_in(self.chunks_in_terms, _folds_of, self._study.nuisances.folds)

    def chunks_by_side(self) -> Iterator[Chunk]:
        """The rows without values that are rare in the first fold or in all others."""

        def chunks() -> Iterator[Chunk]:
            parts = self.chunks_in_terms()
            # All at once if they are in memory, so that sums have the same bits for any chunk size.
            return parts if self.given.is_on_disk else iter([joined(list(parts))])

        return self._masked_in(chunks, lambda chunk: (_folds_of(chunk) == 0).astype(np.int64), 2)

    def _masked_in(
        self,
        chunks: Callable[[], Iterator[Chunk]],
        cells_of: Callable[[Chunk], IntArray],  # (n_training,)
        n_cells: int,
    ) -> Iterator[Chunk]:
        """Chunks of terms, without values that are rare in a row's cell."""

        def parts() -> Iterator[tuple[FloatArray, IntArray]]:
            for chunk in chunks():
                yield chunk.data.contexts[chunk.training], cells_of(chunk)

        rare = find_mask(parts, n_cells, self._minimum_cell, self.terms)
        for chunk in chunks():
            yield _without(rare, chunk, cells_of(chunk))

    def chunks_by_part(self) -> Iterator[tuple[Chunk, Folds]]:
        """The rows without values that are rare in a part and action, and the part of each row."""
        for chunk, parts in self.chunks_and_parts():
            yield _without(self._rare_in_parts, chunk, _part_actions(chunk, parts)), parts

    @cached_property
    def _rare_in_parts(self) -> Mask:
        """Values that few training rows of a part and action have."""

        def cells() -> Iterator[tuple[FloatArray, IntArray]]:
            for chunk, parts in self.chunks_and_parts():
                yield chunk.data.contexts[chunk.training], _part_actions(chunk, parts)

        return find_mask(cells, N_PARTS * self.given.n_actions, self._minimum_cell)

    def outcome_sums(self) -> FoldSums:
        """Sums without values that are rare in a fold and action, for release; may be changed."""
        found = self.fold_sums(self._rare_in_cells)
        # The caller writes over the sums. Those that are kept must not change.
        return replace(found, sums=found.sums.copy()) if found is self._kept else found

    def fold_sums(self, rare: Mask = NOTHING) -> FoldSums:
        """Sums over all chunks about one origin, without these values."""
        if self._kept is not None and not rare:
            return self._kept
        total: Any = None  # until the first chunk; there is at least one
        for chunk in self.chunks_in_terms():
            data, training = chunk.data, chunk.training
            if rare:
                data = with_rare_masked(data, training, rare, chunk.fold_actions[training])
            total = fold_sums(data, chunk.folds, onto=total)
        if not rare:
            self._squares = squares_from_zero(total)
            # The client's own outcome models will also be solved from them.
            if self._study.evaluation.share and total.sums.nbytes <= MANY_BYTES:
                self._kept = total
        found: FoldSums = total
        return found

    @property
    def squares(self) -> FloatArray:  # (n_terms + 1, n_terms + 1)
        """Σ w·(φ, 1)(φ, 1)ᵀ over the training rows; after `fold_sums` it costs nothing."""
        if self._squares is None:
            self._squares = squares_from_zero(self.fold_sums())
        return self._squares


def _folds_of(chunk: Chunk) -> IntArray:  # (n_training,)
    return chunk.folds.of_row[chunk.training].astype(np.int64)


def _part_actions(chunk: Chunk, parts: Folds) -> IntArray:  # (n_training,)
    of_row = parts.of_row[chunk.training].astype(np.int64)
    return of_row * chunk.data.n_actions + chunk.data.actions[chunk.training]


def _without(rare: Mask, chunk: Chunk, cells: IntArray | None = None) -> Chunk:
    """The chunk with rare values masked, by the cell of a training row or among all."""
    own = np.zeros(chunk.training.stop, np.int64) if cells is None else cells
    data = with_rare_masked(chunk.data, chunk.training, rare, own)
    return chunk if data is chunk.data else replace(chunk, data=data)


def with_rare_masked(
    data: LoggedData, rows: slice | BoolArray, rare: Mask, cells: IntArray
) -> LoggedData:
    """The data with rare values of these rows masked, by the cell of each row."""
    if not rare:
        return data
    contexts = data.contexts[rows]
    masked = rare(contexts, cells)
    if masked is contexts:
        return data
    # A copy: for other sums, the rows as read are masked in another way.
    whole = np.array(data.contexts)
    whole[rows] = masked
    return data.with_contexts(whole)
