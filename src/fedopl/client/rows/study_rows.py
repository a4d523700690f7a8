"""One study's view of the rows: folds assigned, sorted by fold and action, rare values masked."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.computed_once import computed_once
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.masking import NOTHING, Mask, find_mask
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.disclosure.rare_values import ContextPart
from fedopl.client.disk.passes import Pass, has_partitions
from fedopl.client.disk.prefetch import prefetched
from fedopl.client.disk.store import Arrays
from fedopl.client.rows.chunk_reader import ChunkReader, IntoTerms, without_rare
from fedopl.client.rows.chunks import ROWS_PER_CHUNK, Chunk, joined, sorted_order
from fedopl.client.rows.dominated_by_fold import (
    NOTHING_DOMINATED,
    BeforeAndAfter,
    DominatedByFold,
    dominated_by_fold,
)
from fedopl.client.rows.fold_sums import (
    MANY_BYTES,
    FoldSums,
    fold_sums,
    no_sums,
    squares_by_fold,
)
from fedopl.client.rows.folds import Folds, as_agreed, assign_folds_and_hold_out
from fedopl.client.table.logged_data import LoggedData, fingerprint
from fedopl.messages.diagnosis.client_models import N_PARTS
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.terms import Terms
from fedopl.study.study import Study


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
        dominance: float = 1.0,  # the largest share of a fold's sums that one row may have
        derived: Arrays | None = None,  # what was `derived` before, from the same rows
    ) -> None:
        self.given, self._study, self._minimum_cell = given, study, minimum_cell
        self._draws, self.outcome, self._dominance = draws, outcome, dominance
        self._held_out = study.evaluation.share if held_out is None else held_out
        self._derived = derived or {}
        self._squares: FloatArray | None = self._derived.get("squares")
        self._kept: FoldSums | None = None

    @computed_once
    def fingerprint(self) -> str:
        """A hash of the rows, with a note on their order: it changes whenever either does."""
        order = f"by fold, {ROWS_PER_CHUNK} at a time" if self.given.is_on_disk else "by fold"
        return f"{fingerprint(self.given)} {order}"

    # --- going through them --------------------------------------------------------------------

    def chunks(self) -> Pass[Chunk]:
        """The rows, some at a time where they are on disk, with rare values masked."""
        if not self.given.is_on_disk:
            return self._in_memory
        return self._unmasked_chunks().mapped(partial(without_rare, self._rare))

    def _unmasked_chunks(self) -> Pass[Chunk]:
        """The rows in order, with all their values."""
        if not self.given.is_on_disk:
            return Pass.of_one(self._unmasked)
        chunks, engine = list(self.given.slices(ROWS_PER_CHUNK)), self.given.engine
        return Pass(chunks=chunks, read=self._reader.read, engine=engine)

    @property
    def _reader(self) -> ChunkReader:
        return ChunkReader(given=self.given, folds=self.folds_as_given, outcome=self.outcome)

    def chunks_and_parts(self) -> Iterator[tuple[Chunk, Folds]]:
        """The rows with rare values masked, and the part (of `N_PARTS`) of each row."""
        parts = self._parts_as_given
        if not self.given.is_on_disk:
            yield self.whole, parts.taken(self.order)
            return
        reader = self._reader

        def read(rows: slice) -> tuple[Chunk, Folds]:
            chunk, order = reader.in_order(rows)
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

    @computed_once
    def _in_memory(self) -> Pass[Chunk]:
        return Pass.of_one(self.whole)

    @computed_once
    def whole(self) -> Chunk:
        """All rows, if they are in memory."""
        return self._masked(self._unmasked)

    @computed_once
    def order(self) -> IntArray:  # (n_rows,)
        """The place of each sorted row in the table as given, if rows are in memory."""
        if self.given.is_on_disk:
            raise RefusedError(RefusalCode.ROWS_ON_DISK)
        return sorted_order(Chunk(data=self.given, folds=self.folds_as_given))

    @computed_once
    def _unmasked(self) -> Chunk:
        order = self.order
        data = self._with_outcome(self.given.taken(order))
        return Chunk(data=data, folds=self.folds_as_given.taken(order))

    def _with_outcome(self, data: LoggedData) -> LoggedData:
        return data if self.outcome is None else data.valued_by(self.outcome)

    @computed_once
    def folds_as_given(self) -> Folds:
        """The fold of each row in the order of the table; the seed decides, not that order."""
        n_folds, kept = self._study.nuisances.folds, self._derived.get("folds")
        return self._assigned(n_folds) if kept is None else as_agreed(kept, n_folds)

    @property
    def derived(self) -> Arrays:
        """What takes long to derive from a few rows in memory, so that it need not be again."""
        if self.given.is_on_disk:
            return {}
        squares = {} if self._squares is None else {"squares": self._squares}
        return {"folds": self.folds_as_given.of_row, **squares}

    @computed_once
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
        return self.into_terms(chunk)

    @property
    def terms(self) -> Terms | None:
        """The terms that models are linear in, None if these are the features."""
        return self._study.terms

    @property
    def n_terms(self) -> int:
        """The number of terms of a row."""
        return self._study.n_terms

    def chunks_in_terms(self) -> Pass[Chunk]:
        """All rows with their terms, as sums are taken of them."""
        if self.terms is None:
            return self.chunks()
        return self.chunks().spread(self.into_terms.chunks)

    @computed_once
    def into_terms(self) -> IntoTerms:
        """Makes terms of chunks, without what few training rows have of one.

        Such as being above a knot.
        """
        terms = self.terms
        if terms is None:
            return IntoTerms(terms=None)

        def parts() -> Pass[ContextPart]:
            unmasked = self.chunks().spread(IntoTerms(terms=terms).chunks)
            return unmasked.mapped(_among_all)

        return IntoTerms(terms=terms, rare=find_mask(parts, 1, self._minimum_cell, terms))

    # --- counting them -------------------------------------------------------------------------

    @computed_once
    def rows_by_fold_action(self) -> IntArray:  # (n_folds + 1, n_actions)
        """Rows of each fold that took each action; held-out rows come last."""
        return self._by_fold_action(None).astype(np.int64, copy=False)

    @computed_once
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
    def training_by_chunk(self) -> list[int]:
        """How many training rows each chunk has; no context is read."""
        if not self.given.is_on_disk:
            return [self.whole.training.stop]
        folds = self.folds_as_given
        return [
            int(np.count_nonzero(folds.of_row[rows] < folds.n_folds))
            for rows in self.given.slices(ROWS_PER_CHUNK)
        ]

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

    @computed_once
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
        return without_rare(self._rare, chunk)

    @computed_once
    def _rare(self) -> Mask:
        """Values that few of all training rows have."""

        def parts() -> Pass[ContextPart]:
            return self._unmasked_chunks().mapped(_among_all)

        return find_mask(parts, 1, self._minimum_cell)

    # --- summing them --------------------------------------------------------------------------

    @computed_once
    def _rare_in_cells(self) -> Mask:
        """Values that few training rows of a fold and action have."""
        n_cells = self.rows_by_fold_action[:-1].size
        return find_mask(self._by_fold_and_action, n_cells, self._minimum_cell, self.terms)

    def _by_fold_and_action(self) -> Pass[ContextPart]:
        return self.chunks_in_terms().mapped(_by_cell)

    def chunks_as_summed(self) -> Pass[Chunk]:
        """The rows, without what is rare in a fold and action: as outcome sums have them."""
        return self.chunks_in_terms().mapped(partial(_without_in, self._rare_in_cells))

    def chunks_by_fold(self) -> Pass[Chunk]:
        """The rows as sums of scores by fold have them.

        What is rare in a fold and action is masked here, too. Otherwise these sums and outcome sums
        would differ by the few rows of a fold that took an action and have a rare value.
        """
        zeroed = self.dominated_by_fold.zeroed
        return self.chunks_as_summed().mapped(partial(_without_in_folds, zeroed))

    @computed_once
    def dominated_by_fold(self) -> DominatedByFold:
        """What rests on one row in sums by fold, and the terms that are set to zero for it."""
        if self._dominance >= 1 or not self._minimum_cell:
            return NOTHING_DOMINATED
        both = self.chunks_in_terms().mapped(partial(_before_and_after, self._rare_in_cells))
        n_folds = self._study.nuisances.folds
        return dominated_by_fold(both, n_folds, self._study.n_features, self._dominance)

    def chunks_by_side(self) -> Pass[Chunk]:
        """The rows as sums without the first fold have them, masked for the same reason."""
        chunks = self.chunks_as_summed()
        # At once where they are in memory, and sums have the same bits for any size of chunks.
        return chunks if self.given.is_on_disk else Pass.of_one(joined(list(chunks)))

    def chunks_by_part(self) -> Iterator[tuple[Chunk, Folds]]:
        """The rows without values that are rare in a part and action, and the part of each row."""
        for chunk, parts in self.chunks_and_parts():
            yield without_rare(self._rare_in_parts, chunk, _part_actions(chunk, parts)), parts

    @computed_once
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
        chunks = self.chunks_in_terms()
        if rare:
            chunks = chunks.mapped(partial(_without_in, rare))
        nothing = None
        if has_partitions(chunks):
            first = next(iter(chunks))
            nothing = no_sums(first.data, first.folds)
        total: Any = None  # until the first partition, and there is one
        for found in chunks.totals(partial(_summed, nothing)):
            total = found if total is None else total.plus(found)
        if not rare:
            self._squares = squares_by_fold(total)
            # The client's own outcome models will also be solved from them.
            if self._study.evaluation.share and total.sums.nbytes <= MANY_BYTES:
                self._kept = total
        return cast("FoldSums", total)

    @property
    def squares_by_fold(self) -> FloatArray:  # (n_folds, n_terms + 1, n_terms + 1)
        """Σ w·(φ, 1)(φ, 1)ᵀ over each fold's rows; after `fold_sums` it costs nothing."""
        if self._squares is None:
            self._squares = squares_by_fold(self.fold_sums())
        return self._squares

    @property
    def released_squares_by_fold(self) -> FloatArray | None:
        """The same as they may be released; None where some values are masked before."""
        are_changed = self._rare_in_cells or self.dominated_by_fold.zeroed
        return None if are_changed else self.squares_by_fold


def _summed(nothing: FoldSums | None, chunks: Iterable[Chunk]) -> FoldSums | None:
    """Sums over these chunks, about the origin of no sums if there are any."""
    total = nothing and nothing.copied()
    for chunk in chunks:
        total = fold_sums(chunk.data, chunk.folds, onto=total)
    return total


def _among_all(chunk: Chunk) -> ContextPart:
    """Contexts of training rows, which are all in one cell."""
    contexts = chunk.data.contexts[chunk.training]
    return contexts, np.zeros(len(contexts), np.int64)


def _by_cell(chunk: Chunk) -> ContextPart:
    """Contexts of training rows, and the fold and action of each."""
    return chunk.data.contexts[chunk.training], _fold_actions(chunk)


def _without_in(rare: Mask, chunk: Chunk) -> Chunk:
    return without_rare(rare, chunk, _fold_actions(chunk)) if rare else chunk


def _without_in_folds(rare: Mask, chunk: Chunk) -> Chunk:
    folds = chunk.folds.of_row[chunk.training].astype(np.int64)
    return without_rare(rare, chunk, folds) if rare else chunk


def _before_and_after(rare: Mask, chunk: Chunk) -> BeforeAndAfter:
    return chunk, _without_in(rare, chunk)


def _fold_actions(chunk: Chunk) -> IntArray:  # (n_training,)
    return chunk.fold_actions[chunk.training]


def _part_actions(chunk: Chunk, parts: Folds) -> IntArray:  # (n_training,)
    of_row = parts.of_row[chunk.training].astype(np.int64)
    return of_row * chunk.data.n_actions + chunk.data.actions[chunk.training]
