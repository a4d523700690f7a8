"""What answers are computed from: one client's rows in one study, scores, its local policy."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.computed_once import computed_once
from fedopl.base.errors import DataError
from fedopl.client.disclosure.limits import Limits, RefusedError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.disclosure.study_history import StudyHistory
from fedopl.client.disk.passes import Pass
from fedopl.client.disk.personal_store import keep_candidate, keep_personal, kept_personal
from fedopl.client.disk.store import Arrays, MemoryStore, Store
from fedopl.client.local.local_policy import (
    LocalTask,
    ScoredChunks,
    learn_local_policy,
    local_policies_by_fold,
)
from fedopl.client.local.local_steps import movable
from fedopl.client.local.local_training import Batches, LocalTraining
from fedopl.client.local.network_steps import NetworkTraining
from fedopl.client.local.obeyed_scores import ObeyedScores
from fedopl.client.local.score_means import ScoreMeans, means_of
from fedopl.client.rows.chunks import Chunk, ScoredChunk, ScoredRows
from fedopl.client.rows.fold_sums import measured_from_zero
from fedopl.client.rows.folds import Folds
from fedopl.client.rows.study_rows import StudyRows
from fedopl.client.scoring.cross_fit import NuisanceModels
from fedopl.client.scoring.net_scores import check_cost_columns
from fedopl.client.scoring.outcome import GivenModels, Outcomes, StudyOutcomes, action_blocks
from fedopl.client.scoring.propensity import (
    ImpossiblePropensitiesError,
    Propensities,
    fit_propensities,
)
from fedopl.client.scoring.scoring_pass import Scorer
from fedopl.client.scoring.study_scores import ScoreArchive, StudyScores, score_chunks
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.kinds import KINDS
from fedopl.policies.policy import Policy
from fedopl.study.study import Study

Rule = Callable[[FloatArray], NDArray[np.generic]]


class Workspace:
    """One client's rows in one study, with their scores and what was released about them.

    Answers are computed from it. Nothing in it leaves the client by itself.
    """

    def __init__(
        self,
        data: LoggedData,
        study: Study,
        limits: Limits,
        draws: PrivateDraws,
        *,
        store: Store | None = None,
        rules: Mapping[str, Rule] | None = None,
        regressor: object = None,
    ) -> None:
        self.study, self.limits, self.draws, self.rules = study, limits, draws, rules or {}
        check_cost_columns(draws.client, data, study)
        self.store: Store = MemoryStore() if store is None else store
        self.obeyed = ObeyedScores(study, draws.client)
        kept = None if self.store.is_lasting else self.store.get(self._rows_key)
        self.study_rows = StudyRows(data, study, limits.minimum_cell, draws, derived=kept)
        self.regressor = regressor
        self.outcomes = StudyOutcomes(self.study_rows, study, regressor)
        self.event_spread = 0.0  # an event's size in scores, which adds to the variance of values
        self.new_scores: StudyScores | None = None  # not stored before their sums may be released
        self._whole: ScoredChunk | None = None

    # --- rows ----------------------------------------------------------------------------------

    @property
    def data(self) -> LoggedData:
        """The sorted rows with what few rows have held, if rows are in memory."""
        return self.study_rows.whole.data

    @property
    def folds(self) -> Folds:
        """The fold of each of these rows."""
        return self.study_rows.whole.folds

    def unscored_chunks(self) -> Pass[Chunk]:
        """The rows, some at a time where they are on disk."""
        return self.study_rows.chunks()

    def chunks(self) -> Pass[ScoredChunk]:
        """The same with their scores."""
        return self.scored.of(self.unscored_chunks())

    def scored_rows(self, without: int | None = None) -> Iterable[ScoredRows]:
        """The training rows with scores to learn from; without those of a fold if it is given."""
        return self.obeyed.to_sum(self.chunks, without)

    @property
    def training(self) -> slice:
        """The training rows, if rows are in memory."""
        return self.rows(RowSplit.TRAINING)

    @property
    def n_rows_given(self) -> int:
        """The number of all rows."""
        return self.study_rows.given.n_rows

    @property
    def n_training(self) -> int:
        """The number of training rows."""
        return self.n_rows(RowSplit.TRAINING)

    @computed_once
    def adds_terms(self) -> bool:
        """Whether it adds sums of terms, by the rule on rows for each term."""
        return self.limits.adds_terms(self.study.n_terms + 1, self.n_training)

    def check_held_out(self) -> None:
        """Refuse values of held-out rows if the client only learns."""
        if not self.n_rows(RowSplit.EVALUATION):
            raise RefusedError(RefusalCode.ONLY_LEARNS)

    @property
    def corrected(self) -> BoolArray:  # (n_actions,)
        """The actions whose scores own rows correct, by the rule on splits."""
        return self.study_rows.split.corrected

    def rows(self, split: RowSplit) -> slice:
        """The rows of a split, if rows are in memory."""
        return self.study_rows.whole.rows(split)

    def n_rows(self, split: RowSplit, without: int | None = None) -> int:
        """The number of rows of a split, without those of a fold if it is given."""
        return self.study_rows.n_rows(split, without)

    @computed_once
    def rows_per_action(self) -> IntArray:  # (n_actions,)
        """Training rows that took each action."""
        return np.asarray(self.rows_by_fold_action.sum(axis=0))

    @property
    def rows_by_fold_action(self) -> IntArray:  # (n_folds, n_actions)
        """Training rows of each fold that took each action."""
        return self.study_rows.rows_by_fold_action[:-1]

    def outcome_sums(self) -> tuple[FloatArray, FloatArray]:
        """Σ w·zzᵀ and Σ w² for each fold and action, measured from zero."""
        sums = self.study_rows.fold_sums()
        if not self.store.is_lasting:  # then it has these rows alone
            self.store.put(self._rows_key, self.study_rows.derived)
        # A copy: cells with few rows are left out, but own models need all of them.
        return measured_from_zero(sums.copied()), sums.squared_weights.copy()

    @computed_once
    def blocks(self) -> list[IntArray] | None:
        """Each action's own columns, if the policy has such columns."""
        return None if self.study.has_intercept else action_blocks(self.study_rows.given)

    @computed_once
    def mask(self) -> FloatArray | None:  # (n_actions, n_features + 1)
        """Which parameters an oracle may change; None if all."""
        return movable(self.blocks, self.study.n_features)

    @computed_once
    def local_training(self) -> LocalTraining:
        """What rounds of local steps of a linear policy share."""
        return LocalTraining(self.study, Batches(self.draws))

    @computed_once
    def network_training(self) -> NetworkTraining:
        """What rounds of local steps of a network share."""
        return NetworkTraining(self.study, self.obeyed)

    # --- scores --------------------------------------------------------------------------------

    def scored_with(self, models: GivenModels) -> StudyScores:
        """The scores by these outcome models or, without any, by own ones, and what they rest on.

        Nothing is stored yet: what may not be released must not be used later either.
        """
        key = models.key
        kept = self._archive.get()
        if kept is not None and np.array_equal(kept.models, key):
            return kept
        few = ~self.corrected
        rule = self.study.nuisances.unseen_rule
        if rule == "refuse" and (self.rows_per_action == 0).any():
            raise RefusedError(RefusalCode.UNSEEN_ACTION)
        outcomes = self.outcomes.by(models) if len(models.parameters) else self.outcomes.own
        scorer = self._scorer(outcomes, few & (rule == "mask"), few)
        scores = score_chunks(
            scorer, self.study_rows, self._archive.path(key), self.study.evaluation, key
        )
        # For comparison on held-out rows, or because a single party learns this policy.
        if self.study.policy.learned_by_one or self.study.evaluation.share > 0:
            return replace(scores, local=self._learn_local_policy(scorer, scores))
        return scores

    def keep(self, scores: StudyScores) -> None:
        """Store the scores, so that a new process answers later queries without a fit."""
        self._archive.put(scores)
        self._whole = None

    @property
    def whole(self) -> ScoredChunk:
        """All rows with their scores, if rows are in memory."""
        if self.study_rows.given.is_on_disk:
            raise RefusedError(RefusalCode.ROWS_ON_DISK)
        if self._whole is None:
            self._whole = self.study_rows.whole.with_scores(self.scored.part(slice(None)))
        return self._whole

    @property
    def scores(self) -> FloatArray:  # (n_rows, n_actions)
        """The scores of all rows, if rows are in memory; of training rows, those to learn from."""
        return self.whole.scores

    def own_chunks(self) -> Pass[ScoredChunk]:
        """The rows with scores computed from them alone, some at a time if they are on disk.

        There is no score where the study has none.
        """
        hidden, few = self.scored.hidden, ~self.corrected
        masked = hidden | (few & (self.study.nuisances.unseen_rule == "mask"))
        return self._own_scorer(masked, few).scored(self.unscored_chunks())

    def _own_scorer(self, masked: BoolArray, few_took: BoolArray) -> Scorer:
        return self._scorer(self.outcomes.own, masked, few_took)

    @property
    def client(self) -> str:
        """The client's name in the study."""
        return self.draws.client

    @property
    def local_policy(self) -> Policy:
        """The policy that this client would have learned alone; learned now, if it was not yet."""
        kept = self.scored.local
        numbers = kept if kept.size else learn_local_policy(self._local_task(self.own_chunks))
        return KINDS[self.study.policy.local_kind].from_numbers(numbers, self.study)

    @computed_once
    def local_policies_by_fold(self) -> Sequence[Policy]:
        """The policies that this client would have learned alone without each fold."""
        return local_policies_by_fold(
            self.own_chunks, self.study_rows, self.study, self.blocks, self.obeyed
        )

    def keep_personal(self, policy: Policy) -> None:
        """Store the client's personal policy, for its own use."""
        keep_personal(self.store, self.study, self.client, policy)

    def keep_candidate(self, chosen: Arrays) -> None:
        """Store the candidate that the client chose for itself: its numbers, or those of a rule."""
        keep_candidate(self.store, self.study, self.client, chosen)

    @property
    def personal_policy(self) -> Policy | None:
        """The client's personal policy; None until it is solved for."""
        return kept_personal(self.store, self.study, self.client)

    @computed_once
    def history(self) -> StudyHistory:
        """What this study's later questions have to agree with: found terms, grids, steps."""
        return StudyHistory(self.store, self.key)

    @property
    def scored(self) -> StudyScores:
        """The stored scores, and what they rest on."""
        kept = self._archive.get()
        if kept is None:
            raise RefusedError(RefusalCode.NOTHING_TO_SAY)
        return kept

    @computed_once
    def _archive(self) -> ScoreArchive:
        return ScoreArchive(self.store, self.key, self.study_rows.given)

    @computed_once
    def key(self) -> str:
        """The name under which it stores results for these rows, this study and these limits."""
        # A store that ends with the process has only these rows, and need not wait for their hash.
        rows = self.study_rows.fingerprint if self.store.is_lasting else ""
        return f"{self.study.digest.hex()} {rows} {self.limits.minimum_cell}"

    @property
    def _rows_key(self) -> str:
        """The name under which it stores what was derived from the rows before scores."""
        return f"rows {self.study.digest.hex()} {self.limits.minimum_cell}"

    @computed_once
    def propensities(self) -> Propensities:
        """The propensity of each action in each row: known, or fitted out of fold."""
        try:
            return fit_propensities(
                self.study_rows, self.study.nuisances.propensity, self.study.seed
            )
        except ImpossiblePropensitiesError:
            raise RefusedError(RefusalCode.WRONG_PROPENSITIES) from None
        except DataError:
            raise RefusedError(RefusalCode.NO_PROPENSITIES) from None

    def _scorer(self, outcomes: Outcomes, masked: BoolArray, few_took: BoolArray) -> Scorer:
        models = NuisanceModels(outcomes=outcomes, propensities=self.propensities)
        return Scorer(
            models=models,
            plan=self.study.nuisances,
            masked=masked,
            few_took=few_took,
            costs=self.study.net_costs,
            corrects=self.propensities.chosen != "known",
        )

    def _learn_local_policy(
        self, scorer: Scorer, scores: StudyScores
    ) -> FloatArray:  # the numbers of a policy
        """The local policy, from own nuisances and own scores, which may be those of the study.

        They are computed as the study says. The policy may only choose actions that the study has
        scores for, because on held-out rows these scores value it.
        """
        shared = scorer.models.outcomes is self.outcomes.own
        own = self._own_scorer(scorer.masked | scores.hidden, scorer.few_took)

        def parts() -> Pass[ScoredChunk]:
            chunks = self.unscored_chunks()
            return scores.of(chunks) if shared else own.scored(chunks)

        return learn_local_policy(self._local_task(parts))

    def _local_task(self, parts: ScoredChunks) -> LocalTask:
        return LocalTask(
            rows=self.study_rows,
            study=self.study,
            parts=parts,
            blocks=self.blocks,
            draws=self.draws,
        )

    def score_means(self, scores: StudyScores) -> ScoreMeans:
        """The sums over training rows that the exact oracle needs."""
        return means_of(
            lambda: scores.of(self.unscored_chunks()),
            self.study_rows,
            self.blocks,
            complete=bool(scores.is_complete),
        )


class TargetWorkspace(Workspace):
    """The contexts of a target in one study.

    Nothing is learned from them, so none are held out. Rare values are masked in all of them, as in
    the training rows of other clients. Actions and rewards are zeros that no answer uses.
    """

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        rows, cell = self.study_rows.given, self.limits.minimum_cell
        self.study_rows = StudyRows(rows, self.study, cell, self.draws, held_out=0.0)
