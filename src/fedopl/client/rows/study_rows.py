"""One study's view of the rows: folds assigned, sorted by fold and action, rare values held."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar, cast

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.computed_once import computed_once
from fedopl.client.disclosure.held_values import HeldValues, held_values
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.disk.passes import Pass
from fedopl.client.disk.prefetch import prefetched
from fedopl.client.disk.store import Arrays
from fedopl.client.rows.chunk_reader import ChunkReader, Clip, IntoTerms, with_held
from fedopl.client.rows.chunks import ROWS_PER_CHUNK, Chunk, joined, sorted_order
from fedopl.client.rows.fold_sums import MANY_BYTES, FoldSums, fold_sums, no_sums, squares_by_fold
from fedopl.client.rows.folds import Folds, assign_folds_and_hold_out
from fedopl.client.rows.row_keys import content_order, fingerprint_of_content
from fedopl.client.rows.split_rule import Split, by_fold_action, split_by_rule
from fedopl.client.table.logged_data import LoggedData, fingerprint
from fedopl.messages.about_differences import N_PARTS
from fedopl.messages.message import RowSplit, kept_back
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.terms import Terms
from fedopl.study.study import Study

_Part = TypeVar("_Part")


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
        beside: "StudyRows | None" = None,  # the same rows with the study's outcome
        derived: Arrays | None = None,  # what was `derived` before, from the same rows
    ) -> None:
        self.given, self._study, self.minimum_cell = given, study, minimum_cell
        self._draws, self.outcome, self._beside = draws, outcome, beside
        self._held_out = study.evaluation.share if held_out is None else held_out
        self._derived = derived or {}
        self._squares: FloatArray | None = self._derived.get("squares")
        self._kept: FoldSums | None = None

    @computed_once
    def fingerprint(self) -> str:
        """A hash of the rows; of those on disk, with a note on their order."""
        if self.given.is_on_disk:
            return f"{fingerprint(self.given)} by fold, {ROWS_PER_CHUNK} at a time"
        return fingerprint_of_content(self.given)

    # --- going through them --------------------------------------------------------------------

    def chunks(self) -> Pass[Chunk]:
        """The rows, some at a time where they are on disk, with what few rows have held."""
        if not self.given.is_on_disk:
            return Pass.of_one(self.whole)
        chunks, engine = list(self.given.slices(ROWS_PER_CHUNK)), self.given.engine
        as_given = Pass(chunks=chunks, read=self._reader.read, engine=engine)
        return as_given.mapped(partial(with_held, self.held))

    @property
    def _reader(self) -> ChunkReader:
        return ChunkReader(
            given=self.given,
            folds=self.folds_as_given,
            outcome=self.outcome,
            clip=Clip.of(self._study),
        )

    def kept(self, parts: Callable[[], Iterable[_Part]]) -> Callable[[], Iterable[_Part]]:
        """What is made of the rows, for several passes: made once, if they are in memory."""
        if self.given.is_on_disk:
            return parts
        made = list(parts())
        return lambda: iter(made)

    def chunks_and_parts(self) -> Iterator[tuple[Chunk, Folds]]:
        """The rows, and the part (of `N_PARTS`) of each."""
        parts = self._parts_as_given
        if not self.given.is_on_disk:
            yield self.whole, parts.taken(self.order)
            return
        reader = self._reader

        def read(rows: slice) -> tuple[Chunk, Folds]:
            chunk, order = reader.in_order(rows)
            return chunk, parts.part(rows).taken(order)

        for chunk, own in prefetched(read, self.given.slices(ROWS_PER_CHUNK)):
            yield with_held(self.held, chunk), own

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
    def whole(self) -> Chunk:
        """All rows, if they are in memory."""
        return with_held(self.held, self._sorted)

    @computed_once
    def order(self) -> IntArray:  # (n_rows,)
        """The place of each sorted row in the table as given, if rows are in memory."""
        if self.given.is_on_disk:
            raise RefusedError(RefusalCode.ROWS_ON_DISK)
        if "order" in self._derived:
            return self._derived["order"]
        # Rows of one fold and action are in the order of what they hold, so that sums have the same
        # bits whatever the order of the table.
        order = content_order(self._dealt)
        folds, actions = self.folds_as_given.of_row[order], self.given.actions[order]
        return order[sorted_order(folds, actions, self.folds_as_given.n_folds, self.n_actions)]

    @property
    def n_actions(self) -> int:
        """The number of actions."""
        return self.given.n_actions

    @computed_once
    def _sorted(self) -> Chunk:
        order = self.order
        data = self._reader.prepared(self.given.taken(order))
        return Chunk(data=data, folds=self.folds_as_given.taken(order))

    @computed_once
    def split(self) -> Split:
        """The folds and held-out rows, by the rule on splits; the seed decides, not the order."""
        if self._beside is not None:
            return self._beside.split
        n_folds = self._study.nuisances.folds
        if "folds" in self._derived:
            return Split.from_arrays(self._derived, n_folds)
        return split_by_rule(
            self._dealt, n_folds, self._held_out, self._seed, self.minimum_cell, self.held
        )

    @computed_once
    def _dealt(self) -> LoggedData:
        """The rows that folds and order follow from: held values decide nothing there either."""
        if self._beside is not None:
            return self._beside._dealt
        if self.given.is_on_disk or not self.held:
            return self.given
        return self.given.with_contexts(self.held(self.given.contexts))

    @property
    def _seed(self) -> int:
        return self._draws.split_seed()

    @property
    def folds_as_given(self) -> Folds:
        """The fold of each row in the order of the table."""
        return self.split.folds

    @property
    def derived(self) -> Arrays:
        """What takes long to derive from a few rows in memory, so that it need not be again."""
        if self.given.is_on_disk:
            return {}
        squares = {} if self._squares is None else {"squares": self._squares}
        return {**self.split.arrays, "order": self.order, **squares}

    @computed_once
    def _parts_as_given(self) -> Folds:
        """The training rows in `N_PARTS` parts; models are fitted without each of them."""
        share = self.split.share
        return assign_folds_and_hold_out(self._dealt, N_PARTS, share, self._seed, held=self.held)

    # --- the terms that models are linear in ---------------------------------------------------

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
        return self.chunks().spread(self.into_terms.chunks)

    @computed_once
    def into_terms(self) -> IntoTerms:
        """Makes terms of chunks; those that only a few rows have another value of are held."""
        if self.terms is None:
            return IntoTerms(terms=None)
        plain, contexts = IntoTerms(terms=self.terms), attrgetter("data.contexts")
        parts = lambda: self.chunks().spread(plain.chunks).mapped(contexts)  # noqa: E731
        return IntoTerms(terms=self.terms, held=held_values(parts, self.minimum_cell))

    # --- counting them -------------------------------------------------------------------------

    @computed_once
    def rows_by_fold_action(self) -> IntArray:  # (n_folds + 1, n_actions)
        """Rows of each fold that took each action; held-out rows come last."""
        return by_fold_action(self.given, self.folds_as_given).astype(np.int64, copy=False)

    @computed_once
    def weight_by_fold_action(self) -> FloatArray:  # (n_folds + 1, n_actions)
        """The same, in which each row counts by its weight."""
        if self.given.weights is None:
            return self.rows_by_fold_action.astype(np.float64)
        if not self.given.is_on_disk:  # sorted: bits depend on the order in which weights are added
            return self._sorted.weight_by_fold_action
        return by_fold_action(self.given, self.folds_as_given, self.given.weights)

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
    def training_weight(self) -> float | None:
        """The weight of training rows; None if rows have no weights. No context is read."""
        return None if self.given.weights is None else float(self.weight_by_fold_action[:-1].sum())

    def n_rows(self, split: RowSplit, without: int | None = None) -> int:
        """The number of rows of a split, without those of a fold if it is given."""
        return int(self.rows_by_fold_action[self._is_in(split, without)].sum())

    def _is_in(self, split: RowSplit, without: int | None = None) -> BoolArray:  # (n_folds + 1,)
        """The folds that a split is made of; behind them come the rows that are held out."""
        held_out, first = self.folds_as_given.n_folds, kept_back(without)
        training = {*range(held_out)} - {without}
        folds = {
            RowSplit.EVALUATION: {held_out},
            RowSplit.VALIDATION: {first},
            RowSplit.FITTING: training - {first},
            RowSplit.ALL: {*range(held_out + 1)},
        }
        return np.isin(np.arange(held_out + 1), [*folds.get(split, training)])

    def weight_of(self, split: RowSplit) -> float:
        """The total weight of a split's rows; their number, if rows have no weights."""
        weights, folds = self.given.weights, self.folds_as_given
        if weights is None:
            return float(self.n_rows(split))
        if not self.given.is_on_disk:
            return float(self.whole.data.weights_of(self.whole.rows(split)).sum())
        in_split, total = self._is_in(split), 0.0
        for rows in self.given.slices(ROWS_PER_CHUNK):
            total += float(weights[rows][in_split[folds.of_row[rows]]].sum())
        return total

    # --- summing them --------------------------------------------------------------------------

    @computed_once
    def held(self) -> HeldValues:
        """The features that only a few rows have another value of, which is held."""
        if self._beside is not None:
            return self._beside.held
        read = partial(_clipped_contexts, self.given, Clip.of(self._study))
        chunks, engine = list(self.given.slices(ROWS_PER_CHUNK)), self.given.engine
        parts = lambda: Pass(chunks=chunks, read=read, engine=engine)  # noqa: E731
        return held_values(parts, self.minimum_cell)

    def fold_sums(self) -> FoldSums:
        """Sums over all chunks about one origin."""
        if self._kept is not None:
            return self._kept
        chunks = self.chunks_in_terms()
        nothing = None
        if len(chunks.partitions) > 1:  # whose totals must be about the same origin
            first = next(iter(chunks))
            nothing = no_sums(first.data, first.folds)
        total: Any = None  # until the first partition, and there is one
        for found in chunks.totals(partial(_summed, nothing)):
            total = found if total is None else total.plus(found)
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


def _summed(nothing: FoldSums | None, chunks: Iterable[Chunk]) -> FoldSums | None:
    """Sums over these chunks, about the origin of no sums if there are any."""
    total = nothing and nothing.copied()
    for chunk in chunks:
        total = fold_sums(chunk.data, chunk.folds, onto=total)
    return total


def _clipped_contexts(given: LoggedData, clip: Clip | None, rows: slice) -> list[FloatArray]:
    data = given.part(rows) if given.is_on_disk else given
    return [(data if clip is None else clip(data)).contexts]
