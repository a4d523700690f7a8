"""A client's rows as one study sees them: dealt, scored, and ready to be summed."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.errors import DataError
from fedopl.client.disclosure.limits import Limits, RefusedError
from fedopl.client.disclosure.random_rounding import rounding_generator
from fedopl.client.disclosure.release_history import ReleaseHistory
from fedopl.client.disk.store import MemoryStore, Store
from fedopl.client.local.local_policy import learn_local_policy, local_kind, needs_local_policy
from fedopl.client.local.local_steps import Examples, examples
from fedopl.client.local.minibatches import Batches
from fedopl.client.local.score_means import ScoreMeans, means_of, score_means
from fedopl.client.local.vowpal import Vowpal
from fedopl.client.rows.chunks import Chunk, ScoredChunk, ScoredRows
from fedopl.client.rows.fold_sums import measured_from_zero
from fedopl.client.rows.folds import Folds
from fedopl.client.rows.study_rows import StudyRows
from fedopl.client.scoring.cross_fit import NuisanceModels
from fedopl.client.scoring.outcome import (
    Outcomes,
    action_blocks,
    federated_outcomes,
    linear_outcomes,
)
from fedopl.client.scoring.propensity import Propensities, fit_propensities
from fedopl.client.scoring.study_scores import ScoreArchive, Scorer, StudyScores, score_chunks
from fedopl.client.scoring.support import Support
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.kinds import Policy
from fedopl.study.study import Study

Rule = Callable[[FloatArray], NDArray[np.generic]]


class Workspace:
    """Everything the door needs to know about the rows; nothing here ever leaves by itself."""

    def __init__(
        self,
        data: LoggedData,
        study: Study,
        limits: Limits,
        *,
        store: Store | None = None,
        rules: Mapping[str, Rule] | None = None,
        batches: Batches | None = None,
    ) -> None:
        self.study, self.limits, self.rules = study, limits, rules or {}
        self.store: Store = MemoryStore() if store is None else store
        self.batches = batches or Batches(study.seed)
        # Behind any sum of scores that may be released.
        self.rows_needed = limits.rows_needed(study.n_features + 1)
        self._rows = StudyRows(data, study, limits.minimum_cell)
        self.new_scores: StudyScores | None = None  # not kept before their sums may be released
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

    def chunks(self) -> Iterator[ScoredChunk]:
        """The same with their scores."""
        return self._scored.of(self.unscored_chunks())

    @property
    def training(self) -> slice:
        """The rows that may be learned from, where rows are in memory."""
        return self.rows(RowSplit.TRAINING)

    @property
    def n_training(self) -> int:
        """How many rows may be learned from."""
        return self.n_rows(RowSplit.TRAINING)

    def check_rows_for_sums(self) -> None:
        """Refuse sums of squares where there are too few training rows for any."""
        if self.n_training < self.rows_needed:
            raise RefusedError(RefusalCode.TOO_MANY_PARAMETERS)

    def rows(self, split: RowSplit) -> slice:
        """The rows of a split, where rows are in memory."""
        return self._rows.whole.rows(split)

    def n_rows(self, split: RowSplit) -> int:
        """How many rows a split has."""
        return self._rows.n_rows(split)

    @cached_property
    def rows_per_action(self) -> IntArray:  # (n_actions,)
        """Training rows that took each action."""
        counted: IntArray = self._rows.rows_by_fold_action[:-1].sum(axis=0)
        return counted

    @property
    def rows_by_fold_action(self) -> IntArray:  # (n_folds, n_actions)
        """Training rows of each fold that took each action."""
        return self._rows.rows_by_fold_action[:-1]

    def masked_by_cell(self, cells: IntArray) -> LoggedData:
        """The rows, without values that are rare in the cell (n_training,) that a row is in."""
        return self._rows.masked_by_cell(cells)

    def outcome_sums(self) -> tuple[FloatArray, FloatArray]:
        """Σ w·zzᵀ and Σ w² for each fold and action, measured from zero."""
        sums = self._rows.outcome_sums()
        return measured_from_zero(sums), sums.squared_weights

    @cached_property
    def blocks(self) -> list[IntArray] | None:
        """Each action's own columns, where the policy has them."""
        wanted = self.study.linear.features == "blocks"
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

    def scored_with(self, models: FloatArray) -> StudyScores:
        """All that later queries need, for these outcome models or, without any, for our own.

        Nothing is kept yet: what may not be released must not be used later either.
        """
        key = np.frombuffer(hashlib.sha256(models.tobytes()).digest(), np.uint8)
        kept = self._archive.get()
        if kept is not None and np.array_equal(kept.models, key):
            return kept
        never = self.rows_per_action == 0
        rule = self.study.nuisances.unseen_rule
        if never.any() and rule == "refuse":
            raise RefusedError(RefusalCode.UNSEEN_ACTION)
        outcomes = federated_outcomes(models) if len(models) else self._own_outcomes
        scorer = Scorer(
            models=NuisanceModels(outcomes=outcomes, propensities=self.propensities),
            clip=self.study.nuisances.clip,
            masked=never & (rule == "mask"),
        )
        scores = score_chunks(
            scorer,
            self.unscored_chunks(),
            self.rows_needed,
            self._archive.path(key),
            described=self.study.evaluation.describe,
        )
        local = np.empty(0)
        if needs_local_policy(self.study):
            local = self._learn_local_policy(scorer, scores)
        return replace(scores, models=key, local=local)

    def keep(self, scores: StudyScores) -> None:
        """Keep the scores, so that a fresh process answers later queries without a fit."""
        self._archive.put(scores)
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
    def _scored(self) -> StudyScores:
        kept = self._archive.get()
        if kept is None:
            raise RefusedError(RefusalCode.NOTHING_TO_SAY)
        return kept

    @cached_property
    def _archive(self) -> ScoreArchive:
        return ScoreArchive(self.store, self._key, self._rows.given)

    @cached_property
    def _key(self) -> str:
        """Names what is stored for these rows, this study and these limits."""
        persistent = not isinstance(self.store, MemoryStore)
        rows = self.fingerprint if persistent else ""
        return f"{self.study.digest.hex()} {rows} {self.rows_needed} {self.limits.minimum_cell}"

    @cached_property
    def propensities(self) -> Propensities:
        """How likely each action was in each row: known, or fitted out of fold."""
        study = self.study
        try:
            return fit_propensities(self._rows, study.nuisances.propensity, study.seed)
        except DataError:
            raise RefusedError(RefusalCode.NO_PROPENSITIES) from None

    @cached_property
    def _own_outcomes(self) -> Outcomes:
        """Outcome models of these rows alone."""
        held_out = self.n_rows(RowSplit.EVALUATION) > 0
        plan = self.study.nuisances
        return linear_outcomes(self._rows.fold_sums(), plan.outcome, held_out=held_out)

    def _learn_local_policy(
        self, scorer: Scorer, scores: StudyScores
    ) -> FloatArray:  # the numbers of a policy
        """From own nuisances and own scores, which may be those of the study."""
        own = Scorer(
            models=NuisanceModels(outcomes=self._own_outcomes, propensities=self.propensities),
            clip=None,
            masked=np.zeros(self.study.n_actions, bool),
        )
        shared = scorer.gives_scores_of(own) and scores.is_complete
        score = scores.of if shared else own.scored
        parts = lambda: score(self.unscored_chunks())  # noqa: E731
        return learn_local_policy(self._rows, self.study, parts, self.blocks)

    # --- what is made of them ------------------------------------------------------------------

    def scored_rows(self) -> Iterator[ScoredRows]:
        """The training rows with their scores, to learn a tree from."""
        return (chunk.scored_rows() for chunk in self.chunks())

    def score_means(self, scores: StudyScores) -> ScoreMeans:
        """What the exact oracle needs to know of the training rows."""

        def parts() -> Iterator[ScoredChunk]:
            return scores.of(self.unscored_chunks())

        return means_of(parts, self._rows, self.blocks, complete=bool(scores.is_complete))

    def fitting_means(self) -> ScoreMeans:
        """The same without the first fold, to be tried on it.

        Values that few rows of either side have beside the usual one are left out, for the means
        over all tell one side by the other.
        """
        first = np.zeros(self.n_training, np.int64)
        first[self.rows(RowSplit.VALIDATION)] = 1
        data = self.masked_by_cell(first)
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
            self._vowpal = (rows, Vowpal(rows, self.study.linear.training.rate))
        return self._vowpal[1]
