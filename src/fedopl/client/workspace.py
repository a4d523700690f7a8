"""A client's rows as one study sees them: dealt, scored, and ready to be summed."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.errors import DataError
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.random_rounding import rounding_generator
from fedopl.client.disclosure.release_history import ReleaseHistory
from fedopl.client.disk.disk_array import DiskArray
from fedopl.client.disk.store import MemoryStore, Store
from fedopl.client.local.local_policy import learned_alone, local_kind
from fedopl.client.local.local_steps import Examples, examples
from fedopl.client.local.score_means import ScoreMeans, means_of, score_means
from fedopl.client.local.vowpal import Vowpal
from fedopl.client.rows.chunks import Chunk, ScoredRows
from fedopl.client.rows.fold_sums import measured_from_zero
from fedopl.client.rows.folds import Folds
from fedopl.client.rows.study_rows import DealtRows
from fedopl.client.scoring.chances import Chances, chances_of
from fedopl.client.scoring.outcome import action_blocks, models_from
from fedopl.client.scoring.scoring import STORED, Scored, Scoring
from fedopl.client.scoring.support import Support
from fedopl.client.table.logged_data import LoggedData, folder_of
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.kinds import Policy
from fedopl.solvers.least_squares import LinearModels
from fedopl.study.study import Study

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
        self.study, self.store, self.rules = study, store, rules
        self.rows_needed = rows_needed  # behind any sum of scores that may be told
        self._minimum_cell = minimum_cell
        self._rows = DealtRows(data, study, minimum_cell)
        self._in_use: Scored | None = None
        self._examples: tuple[bytes, Examples] | None = None
        self._vowpal: tuple[Examples, Vowpal] | None = None

    # --- rows ----------------------------------------------------------------------------------

    @property
    def data(self) -> LoggedData:
        """The rows in their order, without values that would give a few of them away."""
        return self._rows.whole.data

    @property
    def folds(self) -> Folds:
        """The fold of each of these rows."""
        return self._rows.whole.folds

    @property
    def parts(self) -> Folds:
        """The part of each of these rows that models are fitted without."""
        return self._rows.parts

    @property
    def fingerprint(self) -> str:
        """Changes whenever the rows do; it never leaves the client."""
        return self._rows.fingerprint

    def rounding_draws(self, asked: FloatArray | None = None) -> np.random.Generator:
        """Draws for random rounding: the same for the same rows and the same query."""
        return rounding_generator(self.study.seed, self.fingerprint, asked)

    def unscored_chunks(self) -> Iterator[Chunk]:
        """The rows, some at a time where they are on disk."""
        return self._rows.chunks()

    def chunks(self) -> Iterator[Chunk]:
        """The same with their scores."""
        return self._with_scores(self._scored)

    def _with_scores(self, scored: Scored) -> Iterator[Chunk]:
        start = 0
        for chunk in self.unscored_chunks():
            stop = start + chunk.data.n_rows
            yield chunk.with_scores(scored.part(slice(start, stop)))
            start = stop

    @property
    def training(self) -> slice:
        """The rows that may be learned from, where rows are in memory."""
        return self.rows(RowSplit.TRAINING)

    @property
    def n_training(self) -> int:
        """How many rows may be learned from."""
        return self.n_rows(RowSplit.TRAINING)

    def rows(self, split: RowSplit) -> slice:
        """The rows of a split, where rows are in memory."""
        return self._rows.whole.rows(split)

    def n_rows(self, split: RowSplit) -> int:
        """How many rows a split has."""
        return self._rows.n_rows(split)

    @cached_property
    def rows_per_action(self) -> IntArray:  # (n_actions,)
        """Training rows that took each action."""
        counted: IntArray = self._rows.counts[:-1].sum(axis=0)
        return counted

    @property
    def rows_per_cell(self) -> IntArray:  # (n_folds, n_actions)
        """Training rows of each fold that took each action."""
        return self._rows.counts[:-1]

    def without_rare(self, cells: IntArray) -> LoggedData:
        """The rows, without values that are rare in the cell (n_training,) that a row is in."""
        return self._rows.without_rare(cells)

    def outcome_sums(self) -> tuple[FloatArray, FloatArray]:
        """Σ w·zzᵀ and Σ w² for each fold and action, measured from zero."""
        sums = self._rows.outcome_sums()
        return measured_from_zero(sums), sums.squared_weights

    @cached_property
    def blocks(self) -> list[IntArray] | None:
        """Each action's own columns, where the policy has them."""
        wanted = self.study.policy_features == "blocks"
        return action_blocks(self._rows.given) if wanted else None

    @cached_property
    def mask(self) -> FloatArray | None:  # (n_actions, n_features + 1)
        """Which parameters an oracle may move, if not all."""
        if self.blocks is None:
            return None
        mask = np.zeros((self.study.n_actions, len(self.study.features) + 1))
        for action, own in enumerate(self.blocks):
            mask[action, own] = 1.0
        return mask

    # --- scores --------------------------------------------------------------------------------

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
        scored = scoring.scored(
            self.unscored_chunks(),
            self.rows_needed,
            self._values_path(key),
            described=self.study.describe,
        )
        local = self._learned_alone(scoring, scored) if self._needs_local_policy else np.empty(0)
        return replace(scored, models=key, local=local)

    def keep(self, scored: Scored) -> None:
        """Keep the scores, so that a fresh process answers later queries without a fit."""
        self.store.put(self._key, scored.arrays())
        self._in_use = scored
        self._examples = None

    @property
    def scores(self) -> FloatArray:  # (n_rows, n_actions)
        """The scores of all rows, where rows are in memory."""
        if self._rows.is_on_disk:
            raise RefusedError(RefusalCode.ROWS_ON_DISK)
        return self._scored.part(slice(None))

    @property
    def is_complete(self) -> bool:
        """Whether all training rows have all scores."""
        return bool(self._scored.is_complete)

    @property
    def local_policy(self) -> Policy:
        """What this client would have learned alone."""
        return local_kind(self.study).from_numbers(self._scored.local, self.study)

    @property
    def support(self) -> Support:
        """How well each action is supported by the training rows."""
        return self._scored.support

    @cached_property
    def history(self) -> ReleaseHistory:
        """Answers that were released before."""
        return ReleaseHistory(self.store, self._key)

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
        shape = (self._rows.given.n_rows, self.study.n_actions)
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
        if not self._rows.is_on_disk:
            return None
        name = hashlib.sha256(f"{self._key} {models.tobytes().hex()}".encode()).hexdigest()[:32]
        return folder_of(self._rows.given) / f"scores-{name}.bin"

    @cached_property
    def _key(self) -> str:
        persistent = not isinstance(self.store, MemoryStore)
        rows = self.fingerprint if persistent else ""
        return f"{self.study.digest.hex()} {rows} {self.rows_needed} {self._minimum_cell}"

    @property
    def _needs_local_policy(self) -> bool:
        """To compare with on held-out rows, or because it is what the party is after."""
        study = self.study
        alone = study.policy == "tree" and study.tree.thresholds == "observed"
        return alone or study.evaluation_share > 0

    @cached_property
    def chances(self) -> Chances:
        """How likely each action was in each row: known, or fitted out of fold."""
        study = self.study
        try:
            return chances_of(self._rows, study.nuisances.propensity, study.seed)
        except DataError:
            raise RefusedError(RefusalCode.NO_PROPENSITIES) from None

    @cached_property
    def _own_models(self) -> LinearModels:
        """Outcome models of these rows alone."""
        apart = self.n_rows(RowSplit.EVALUATION) > 0
        return models_from(self._rows.fold_sums(), self.study.nuisances.outcome, apart=apart)

    def _learned_alone(
        self, scoring: Scoring, scored: Scored
    ) -> FloatArray:  # the numbers of a policy
        """Own nuisances, own scores, the exact oracle or search: numbers that never leave."""
        nothing = np.zeros(self.study.n_actions, bool)
        alone = Scoring(models=self._own_models, chances=self.chances, clip=None, masked=nothing)
        parts = partial(self._with_scores, scored)
        if not (scoring.agrees_with(alone) and scored.is_complete):
            parts = partial(alone.scores, self.unscored_chunks)
        return learned_alone(self._rows, self.study, parts, self.blocks).numbers()

    # --- what is made of them ------------------------------------------------------------------

    def scored_rows(self) -> Iterator[ScoredRows]:
        """The training rows with their scores, to learn a tree from."""
        return (chunk.scored_rows() for chunk in self.chunks())

    def score_means(self, scored: Scored) -> ScoreMeans:
        """What the exact oracle needs to know of the training rows."""
        parts = partial(self._with_scores, scored)
        return means_of(parts, self._rows, self.blocks, complete=bool(scored.is_complete))

    def fitting_means(self) -> ScoreMeans:
        """The same without the first fold, to be tried on it.

        Values that few rows of either side have beside the usual one are left out, for the means
        over all tell one side by the other.
        """
        first = np.zeros(self.n_training, np.int64)
        first[self.rows(RowSplit.VALIDATION)] = 1
        data = self.without_rare(first)
        return score_means(data, self.scores, self.rows(RowSplit.FITTING), self.blocks)

    def examples(self, centre: FloatArray, scale: FloatArray) -> Examples:
        """Training rows for the iterative oracle, made once for each standardisation."""
        key = centre.tobytes() + scale.tobytes()
        if self._examples is None or self._examples[0] != key:
            scores = self.scores
            rows = np.flatnonzero(np.isfinite(scores[self.training]).any(axis=1))
            data = self.data
            made = examples(data.contexts, scores, data.weights, centre, scale, rows)
            self._examples = (key, made)
        return self._examples[1]

    def vowpal(self, rows: Examples) -> Vowpal:
        """The one Vowpal Wabbit workspace for these examples."""
        if self._vowpal is None or self._vowpal[0] is not rows:
            self._vowpal = (rows, Vowpal(rows, self.study.plan.rate))
        return self._vowpal[1]


def _borrowed(models: FloatArray) -> LinearModels:
    coefficients = models[..., :-1]
    return LinearModels(
        coefficients=np.where(np.isnan(coefficients), 0.0, coefficients),
        intercepts=models[..., -1],
        penalties=np.zeros(models.shape[:2]),
    )
