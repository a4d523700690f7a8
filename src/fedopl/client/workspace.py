"""A client's rows as one study sees them: split, scored, and ready to be summed."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopl import least_squares
from fedopl.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.cells import ScoredRows
from fedopl.client.chances import Chances, in_memory, in_passes
from fedopl.client.chunks import ROWS_PER_CHUNK, Chunk
from fedopl.client.descent import Examples, examples
from fedopl.client.folds import Folds, assign_folds_and_set_apart
from fedopl.client.limits import RefusedError
from fedopl.client.logged_data import LoggedData, folder_of, trusted
from fedopl.client.on_disk import DiskArray, read_ahead, slices
from fedopl.client.outcome import action_blocks, models_from
from fedopl.client.propensity import Propensities, fit_propensities
from fedopl.client.rarity import RareValues, rare_values, without
from fedopl.client.scoring import STORED, Scored, Scoring
from fedopl.client.statistics import ScoreMeans, ScoreTotals, score_means
from fedopl.client.store import Arrays, MemoryStore, Store, fingerprint
from fedopl.client.sums import FoldSums, added, fold_sums, measured_from_zero
from fedopl.client.support import Support
from fedopl.client.tree_alone import tree_alone
from fedopl.client.vowpal import Vowpal
from fedopl.errors import DataError
from fedopl.least_squares import LinearModels
from fedopl.policies.kinds import Policy
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.tree import TreePolicy, as_array, from_array
from fedopl.solving import solve_scores
from fedopl.study import Study
from fedopl.wire.vocabulary import N_PARTS, RefusalCode, Split

Rule = Callable[[FloatArray], NDArray[np.generic]]


class Workspace:
    """Everything the door needs to know about the rows; nothing here ever leaves by itself."""

    def __init__(
        self,
        data: LoggedData,
        study: Study,
        store: Store,
        rules: Mapping[str, Rule],
        rows_needed: int,
        minimum_cell: int,
    ) -> None:
        self._given, self.study, self.store, self.rules = data, study, store, rules
        self.rows_needed = rows_needed  # behind any sum of scores that may be told
        self._minimum_cell = minimum_cell
        self._in_use: Scored | None = None
        self._examples: tuple[bytes, Examples] | None = None
        self._vowpal: tuple[Examples, Vowpal] | None = None

    @cached_property
    def folds(self) -> Folds:
        """The fold of each row, and which rows are set apart; the seed decides, not the order."""
        study = self.study
        return assign_folds_and_set_apart(
            self._given, study.nuisances.folds, study.evaluation_share, study.seed
        )

    @cached_property
    def parts(self) -> Folds:
        """The training rows dealt to `N_PARTS` parts, for models to be fitted without each."""
        study = self.study
        return assign_folds_and_set_apart(self._given, N_PARTS, study.evaluation_share, study.seed)

    @cached_property
    def data(self) -> LoggedData:
        """The rows, without values that would give a few of them away.

        Rows on disk are as they are: chunks of them are without such values.
        """
        given = self._given
        return given if given.is_on_disk else self._usual(given, self.folds)

    def _usual(self, data: LoggedData, folds: Folds) -> LoggedData:
        """The same, in which what is rare among training rows is what is usual there."""
        training = ~folds.set_apart
        cells = np.zeros(int(training.sum()), np.int64)
        return _changed(data, training, self._rare, cells)

    @cached_property
    def _rare(self) -> tuple[RareValues, ...]:
        """What few of all training rows have."""

        def parts() -> Iterator[tuple[FloatArray, IntArray]]:
            for chunk in self._given_chunks():
                contexts = chunk.data.contexts[chunk.training]
                yield contexts, np.zeros(len(contexts), np.int64)

        return rare_values(parts, 1, self._minimum_cell)

    # --- going through the rows ----------------------------------------------------------------

    def _given_chunks(self) -> Iterator[Chunk]:
        """The rows as they were given, and not yet scored."""
        none = np.empty((0, self._given.n_actions))
        if not self._given.is_on_disk:
            yield Chunk(data=self._given, folds=self.folds, scores=none)
            return

        def read(rows: slice) -> Chunk:
            return Chunk(data=self._given.part(rows), folds=self.folds.part(rows), scores=none)

        yield from read_ahead(read, slices(self._given.n_rows, ROWS_PER_CHUNK))

    def unscored_chunks(self) -> Iterator[Chunk]:
        """The rows, some at a time where they are on disk, without values that tell of a few."""
        if not self._given.is_on_disk:
            yield replace(next(self._given_chunks()), data=self.data)
            return
        for chunk in self._given_chunks():
            yield replace(chunk, data=self._usual(chunk.data, chunk.folds))

    def chunks(self) -> Iterator[Chunk]:
        """The same with their scores."""
        scored, start = self._scored, 0
        for chunk in self.unscored_chunks():
            stop = start + chunk.data.n_rows
            yield replace(chunk, scores=scored.part(slice(start, stop)))
            start = stop

    @cached_property
    def _counts(self) -> IntArray:  # (n_folds + 1, n_actions)
        """Rows of each fold that took each action; those set apart come last."""
        shape = (self.folds.n_folds + 1, self._given.n_actions)
        counts = np.zeros(shape[0] * shape[1], np.int64)
        for chunk in self._given_chunks():
            counts += np.bincount(chunk.cells(), minlength=len(counts))
        return counts.reshape(shape)

    @property
    def training(self) -> BoolArray:  # (n_rows,)
        """The rows that may be learned from, where rows are in memory."""
        return self.rows(Split.TRAINING)

    @property
    def n_training(self) -> int:
        """How many rows may be learned from."""
        return self.n_rows(Split.TRAINING)

    def rows(self, split: Split) -> BoolArray:  # (n_rows,)
        """The rows of a split, where rows are in memory."""
        if self._given.is_on_disk:
            raise RefusedError(RefusalCode.ROWS_ON_DISK)
        return next(self._given_chunks()).rows(split)

    def n_rows(self, split: Split) -> int:
        """How many rows a split has."""
        by_part = self._counts.sum(axis=1)
        if split is Split.EVALUATION:
            return int(by_part[-1])
        first = {Split.TRAINING: 0, Split.FITTING: 1}
        return int(by_part[first[split] : -1].sum() if split in first else by_part[0])

    @property
    def rows_per_action(self) -> IntArray:  # (n_actions,)
        """Training rows that took each action."""
        counted: IntArray = self._counts[:-1].sum(axis=0)
        return counted

    @property
    def rows_per_cell(self) -> IntArray:  # (n_folds, n_actions)
        """Training rows of each fold that took each action."""
        return self._counts[:-1]

    @cached_property
    def blocks(self) -> list[IntArray] | None:
        """Each action's own columns, where the policy has them."""
        return action_blocks(self.data) if self.study.policy_features == "blocks" else None

    @cached_property
    def mask(self) -> FloatArray | None:  # (n_actions, n_features + 1)
        """Which parameters an oracle may move, if not all."""
        if self.blocks is None:
            return None
        mask = np.zeros((self.data.n_actions, self.data.n_features + 1))
        for action, own in enumerate(self.blocks):
            mask[action, own] = 1.0
        return mask

    # --- scores --------------------------------------------------------------------------------

    def outcome_sums(self) -> tuple[FloatArray, FloatArray]:
        """Σ w·zzᵀ and Σ w² for each fold and action, measured from zero."""
        n_cells = self.rows_per_cell.size

        def parts() -> Iterator[tuple[FloatArray, IntArray]]:
            for chunk in self.unscored_chunks():
                training = chunk.training
                yield chunk.data.contexts[training], chunk.cells()[training]

        rare = rare_values(parts, n_cells, self._minimum_cell)
        sums = self._fold_sums(rare)
        return measured_from_zero(sums), sums.squared_weights

    def _fold_sums(self, rare: tuple[RareValues, ...] = ()) -> FoldSums:
        """Sums about one origin, without what is rare in a fold and action."""
        total: FoldSums | None = None
        for chunk in self.unscored_chunks():
            training = chunk.training
            data = _changed(chunk.data, training, rare, chunk.cells()[training])
            origin = None if total is None else total.origin
            found = fold_sums(data, chunk.folds, origin=origin)
            total = found if total is None else added(total, found)
        if total is None:
            raise RefusedError(RefusalCode.NOTHING_TO_SAY)
        return total

    def without_rare(self, cells: IntArray) -> LoggedData:
        """The rows, without values that are rare in the cell (n_training,) that a row is in."""
        training = self.training
        contexts = self.data.contexts[training]
        n_cells = int(cells.max(initial=-1)) + 1
        rare = rare_values(lambda: [(contexts, cells)], n_cells, self._minimum_cell)
        return _changed(self.data, training, rare, cells)

    def scored_with(self, models: FloatArray) -> Scored:
        """All that later queries need, for these outcome models or, without any, for our own.

        Nothing is kept yet: what may not be told must not be used later either.
        """
        key = np.frombuffer(hashlib.sha256(models.tobytes()).digest(), np.uint8)
        kept = self._kept()
        if kept is not None and np.array_equal(kept.models, key):
            return kept
        never = self.rows_per_action == 0
        rule = self.study.nuisances.unseen_rule
        if never.any() and rule == "refuse":
            raise RefusedError(RefusalCode.UNSEEN_ACTION)
        scoring = Scoring(
            models=_borrowed(models) if len(models) else self._own_models,
            chances=self.chances,
            clip=self.study.nuisances.clip,
            masked=never & (rule == "mask"),
        )
        local = self._learned_alone() if self._needs_local_policy else np.empty(0)
        scored = scoring.scored(self.unscored_chunks(), self.rows_needed, self._values_path(key))
        return replace(scored, models=key, local=local)

    def keep(self, scored: Scored) -> None:
        """Keep the scores, so that a fresh process answers later queries without a fit."""
        self.store.put(self._key, scored.arrays())
        self._in_use = scored
        self._examples = None

    @property
    def scores(self) -> FloatArray:  # (n_rows, n_actions)
        """The scores of all rows, where rows are in memory."""
        if self._given.is_on_disk:
            raise RefusedError(RefusalCode.ROWS_ON_DISK)
        return self._scored.part(slice(None))

    @property
    def is_complete(self) -> bool:
        """Whether all training rows have all scores."""
        return bool(self._scored.is_complete)

    @property
    def local_policy(self) -> Policy:
        """What this client would have learned alone."""
        study, local = self.study, self._scored.local
        if study.policy != "tree":
            return LinearPolicy(local, study.actions, study.features)
        root = from_array(local, study.columns, range(study.n_actions))
        return TreePolicy(root, study.actions, study.features, study.encoding)

    @property
    def support(self) -> Support:
        """How well each action is supported by the training rows."""
        return self._scored.support

    @property
    def _scored(self) -> Scored:
        kept = self._kept()
        if kept is None:
            raise RefusedError(RefusalCode.NOTHING_TO_SAY)
        return kept

    def _kept(self) -> Scored | None:
        """What was stored, unless it is not what we store."""
        if self._in_use is not None:
            return self._in_use
        kept = self.store.get(self._key)
        if kept is None or not set(STORED) <= set(kept):
            return None
        shape = (self._given.n_rows, self._given.n_actions)
        values: FloatArray | DiskArray | None = kept.pop("values", None)
        path = self._values_path(kept["models"])
        if path is not None and path.is_file():
            values = DiskArray(path, shape, np.dtype(np.float64))
        if values is None or values.shape != shape:
            return None
        self._in_use = Scored(values=values, **{name: kept[name] for name in STORED})
        return self._in_use

    def _values_path(self, models: NDArray[Any]) -> Path | None:
        """Where the scores of rows on disk are: beside these."""
        if not self._given.is_on_disk:
            return None
        name = hashlib.sha256(f"{self._key} {models.tobytes().hex()}".encode()).hexdigest()[:32]
        return folder_of(self._given) / f"scores-{name}.bin"

    def remembered(self, what: str) -> list[Arrays]:
        """What was told before under this name, in the order in which it was."""
        found: dict[str, Arrays] = {}
        for name, array in sorted((self.store.get(f"{self._key} {what}") or {}).items()):
            place, _, own = name.partition(" ")
            found.setdefault(place, {})[own] = array
        return list(found.values())

    def remember(self, what: str, told: Iterable[Arrays]) -> None:
        """Keep what is told now behind what was told before."""
        every = [*self.remembered(what), *told]
        self.store.put(
            f"{self._key} {what}",
            {f"{n:06d} {name}": a for n, item in enumerate(every) for name, a in item.items()},
        )

    def agree_on_grid(self, n_cuts: FloatArray, cuts: FloatArray) -> None:
        """Keep to the first grid that was asked about: another would tell what lies between."""
        key, grid = f"{self._key} grid", {"n_cuts": n_cuts, "cuts": cuts}
        kept = self.store.get(key)
        if kept is None or set(kept) != set(grid):
            self.store.put(key, grid)
        elif not all(np.array_equal(kept[name], grid[name]) for name in grid):
            raise RefusedError(RefusalCode.BUDGET_SPENT)

    @cached_property
    def _key(self) -> str:
        persistent = not isinstance(self.store, MemoryStore)
        rows = fingerprint(self.data) if persistent else ""
        return f"{self.study.digest.hex()} {rows} {self.rows_needed} {self._minimum_cell}"

    @property
    def _needs_local_policy(self) -> bool:
        """To compare with on held-out rows, or because it is what the party is after."""
        study = self.study
        alone = study.policy == "tree" and study.tree.thresholds == "observed"
        return alone or study.evaluation_share > 0

    @cached_property
    def propensities(self) -> Propensities:
        """How likely each action was in each row: known, or fitted out of fold."""
        plan = self.study.nuisances
        try:
            return fit_propensities(self.data, self.folds, plan.propensity, self.study.seed)
        except DataError:
            raise RefusedError(RefusalCode.NO_PROPENSITIES) from None

    @cached_property
    def chances(self) -> Chances:
        """The same for rows that come some at a time."""
        if not self._given.is_on_disk:
            return in_memory(self.propensities)
        shape = (self.folds.n_folds, self._given.n_actions)
        try:
            return in_passes(self.unscored_chunks, self.study.nuisances.propensity, shape)
        except DataError:
            raise RefusedError(RefusalCode.NO_PROPENSITIES) from None

    @cached_property
    def _own_models(self) -> LinearModels:
        """Outcome models of these rows alone."""
        apart = self.n_rows(Split.EVALUATION) > 0
        return models_from(self._fold_sums(), self.study.nuisances.outcome, apart=apart)

    # --- what is made of them ------------------------------------------------------------------

    def scored_rows(self, chunk: Chunk, scores: FloatArray) -> ScoredRows:
        """The training rows of a chunk with these scores, to learn a tree from."""
        data = chunk.data
        return ScoredRows(
            contexts=data.contexts, scores=scores, weights=data.weights, used=chunk.training
        )

    def score_means(self, scored: Scored) -> ScoreMeans:
        """What the exact oracle needs to know of the training rows."""

        def parts() -> Iterator[tuple[Chunk, FloatArray]]:
            start = 0
            for chunk in self.unscored_chunks():
                rows = slice(start, start + chunk.data.n_rows)
                yield chunk, scored.part(rows)
                start = rows.stop

        return self._means_of(parts, complete=bool(scored.is_complete))

    def _means_of(
        self, parts: Callable[[], Iterator[tuple[Chunk, FloatArray]]], *, complete: bool
    ) -> ScoreMeans:
        totals = ScoreTotals(
            self._given.n_actions, self._given.n_features, self.blocks, complete=complete
        )
        for chunk, scores in parts():
            training = chunk.training
            if complete and not np.isfinite(scores[training]).all():
                return self._means_of(parts, complete=False)
            totals.add(chunk.data, scores, training)
        return totals.means()

    def fitting_means(self) -> ScoreMeans:
        """The same without the first fold, to be tried on it.

        Values that few rows of either side have beside the usual one are left out, for the means
        over all tell one side by the other.
        """
        first = self.rows(Split.VALIDATION)[self.training]
        data = self.without_rare(first.astype(np.int64))
        return score_means(data, self.scores, self.rows(Split.FITTING), self.blocks)

    def examples(self, centre: FloatArray, scale: FloatArray) -> Examples:
        """Training rows for the iterative oracle, made once for each standardisation."""
        key = centre.tobytes() + scale.tobytes()
        if self._examples is None or self._examples[0] != key:
            scores = self.scores
            rows = np.flatnonzero(self.training & np.isfinite(scores).any(axis=1))
            data = self.data
            made = examples(data.contexts, scores, data.weights, centre, scale, rows)
            self._examples = (key, made)
        return self._examples[1]

    def vowpal(self, rows: Examples) -> Vowpal:
        """The one Vowpal Wabbit workspace for these examples."""
        if self._vowpal is None or self._vowpal[0] is not rows:
            self._vowpal = (rows, Vowpal(rows, self.study.plan.rate))
        return self._vowpal[1]

    def _learned_alone(self) -> FloatArray:  # (n_actions, n_features + 1), or a tree's numbers
        """Own nuisances, own scores, the exact oracle or search: numbers that never leave."""
        nothing = np.zeros(self._given.n_actions, bool)
        scoring = Scoring(models=self._own_models, chances=self.chances, clip=None, masked=nothing)

        def parts() -> Iterator[tuple[Chunk, FloatArray]]:
            for chunk, scores, _ in scoring.each(self.unscored_chunks()):
                yield chunk, scores

        if self.study.policy == "tree":
            return self._tree_alone(parts)
        means = self._means_of(parts, complete=True)
        parameters = solve_scores(
            means.grams,
            means.products,
            means.squares,
            means.shares,
            intercept=self.study.has_intercept,
        )
        return least_squares.widen(parameters, self.blocks, self._given.n_features)

    def _tree_alone(
        self, parts: Callable[[], Iterator[tuple[Chunk, FloatArray]]]
    ) -> FloatArray:  # a tree's numbers
        study = self.study
        if self._given.is_on_disk and study.tree.thresholds == "observed":
            raise RefusedError(RefusalCode.ROWS_ON_DISK)

        def rows() -> Iterator[ScoredRows]:
            return (self.scored_rows(chunk, scores) for chunk, scores in parts())

        found = rows
        if not self._given.is_on_disk:
            whole = list(rows())  # scored once, and gone through for every level
            found = lambda: iter(whole)  # noqa: E731
        return as_array(tree_alone(found, study.tree, study.columns, study.actions))


def _borrowed(models: FloatArray) -> LinearModels:
    return LinearModels(
        coefficients=np.nan_to_num(models[..., :-1]),
        intercepts=models[..., -1],
        penalties=np.zeros(models.shape[:2]),
    )


def _changed(
    data: LoggedData, rows: BoolArray, rare: tuple[RareValues, ...], cells: IntArray
) -> LoggedData:
    """The data, in which rare values of these rows are the usual ones."""
    if not rare:
        return data
    contexts = data.contexts[rows]
    usual = without(rare, contexts, cells)
    if usual is contexts:
        return data
    whole = np.array(data.contexts)
    whole[rows] = usual
    return trusted(
        whole,
        data.actions,
        data.rewards,
        data.propensities,
        action_names=data.action_names,
        feature_names=data.feature_names,
        weights=data.weights,
        groups=data.groups,
        schema=data.schema,
    )
