"""The door: bytes in, bytes out. It never raises, and nothing leaves any other way."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import largest_size, perhaps_beyond
from fedopl.base.errors import WireError
from fedopl.client.answers import tell_models
from fedopl.client.answers.classify_contexts import classify
from fedopl.client.answers.compare_models import compare_models
from fedopl.client.answers.declared_bounds import beyond_declared
from fedopl.client.answers.describe import describe
from fedopl.client.answers.estimate_values import estimate_candidates, n_policies
from fedopl.client.answers.tell_moments import tell_moments
from fedopl.client.answers.tree_answers import count_bins, sum_cells, value_leaves
from fedopl.client.disclosure.ledger import Ledger, MemoryLedger, entry_for
from fedopl.client.disclosure.limits import Limits, RefusedError
from fedopl.client.disclosure.small_cells import (
    Budgets,
    check_parts,
    releasable_cells,
    suppress_small_counts,
)
from fedopl.client.disk.store import MemoryStore, Store
from fedopl.client.local.local_steps import improve
from fedopl.client.local.minibatches import Batches
from fedopl.client.local.score_means import pair_means, value_slope
from fedopl.client.query_cache import read_query, sha256_of
from fedopl.client.scoring.study_scores import StudyScores
from fedopl.client.table.logged_data import LoggedData
from fedopl.client.workspace import Rule, Workspace
from fedopl.messages import codec
from fedopl.messages.bundle import bundled, unbundled
from fedopl.messages.derived_sizes import decoder_of
from fedopl.messages.diagnosis.classifier_sums import ClassifierSums, ClassifyContexts
from fedopl.messages.diagnosis.client_models import Models, TellModels
from fedopl.messages.diagnosis.model_shifts import CompareModels, ModelShifts
from fedopl.messages.diagnosis.score_moments import ScoreMoments, TellMoments
from fedopl.messages.evaluation.description import Describe, Description
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES, EstimateValues, Values
from fedopl.messages.learning.enrolment import Enrol, Enrolment
from fedopl.messages.learning.improved_policy import ImprovedPolicy, ImprovePolicy
from fedopl.messages.learning.outcome_sums import OutcomeSums, SumOutcomes
from fedopl.messages.learning.pair_sums import PairSums, SumPairs
from fedopl.messages.learning.score_sums import ScoreSums, SumFitting, SumScores
from fedopl.messages.learning.value_slope import Slope, SlopeOfValue
from fedopl.messages.message import Message, RowSplit
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.trees.bin_counts import BinCounts, CountBins
from fedopl.messages.trees.cell_sums import CellSums, SumCells
from fedopl.messages.trees.leaf_values import LeafValues, ValueLeaves
from fedopl.messages.vocabulary import queries_of
from fedopl.policies.kinds import Policy
from fedopl.policies.trees.growing import n_levels
from fedopl.study.study import Study


class Door:
    """One client's answers to one study's queries.

    Args:
        name: what the client is called in the study.
        data: its rows.
        study: the study it agreed to.
        limits: what it is willing to say.
        store: where it keeps its scores between messages.
        ledger: where it writes down what it said.
        rules: the study's candidate policies that are code; code never crosses, only its position.
        secret: goes into the draw of batches, so that nobody else can tell which rows they hold.

    """

    def __init__(
        self,
        name: str,
        data: LoggedData,
        study: Study,
        *,
        limits: Limits | None = None,
        store: Store | None = None,
        ledger: Ledger | None = None,
        rules: Mapping[str, Rule] | None = None,
        secret: str = "",
    ) -> None:
        self.name, self.study, self._secret = name, study, secret
        self._batches = Batches(study.seed, name, secret)
        self.limits = limits or Limits()
        self.ledger: Ledger = MemoryLedger() if ledger is None else ledger
        needed = self.limits.rows_needed(study.n_features + 1)
        least = self.limits.minimum_cell
        self._space = Workspace(data, study, store or MemoryStore(), rules or {}, needed, least)
        self._decoder, self._digest = decoder_of(study), study.digest
        self._needed = queries_of(study)
        self._made: StudyScores | None = None  # scores for the latest answer about them

    def handle(self, content: bytes) -> bytes:
        """Answer a query, or several that came together; whatever happens, no text leaves."""
        try:
            queries = unbundled(content)
        except WireError:
            queries = [content]  # which is no message either, and is refused as such
        return bundled([self._handle(query) for query in queries])

    def _handle(self, content: bytes) -> bytes:
        """Answer a query, or refuse it with a code."""
        query: Message | None = None
        asked = sha256_of(content)
        try:
            query = read_query(content, self._decoder)
            answer = self._answer(query, asked)
        except RefusedError as refused:
            answer = self._refusal(refused.code, query)
        except codec.WrongVersionError:
            answer = self._refusal(RefusalCode.WRONG_VERSION, query)
        except WireError:
            answer = self._refusal(RefusalCode.MALFORMED, query)
        except (Exception, SystemExit):
            answer = self._refusal(RefusalCode.FAILED, query)
        return self._written_down(query, asked, answer)

    def _written_down(self, query: Message | None, asked: str, answer: Message) -> bytes:
        encoded = codec.encode(answer)
        try:
            self.ledger.append(entry_for(query, asked, answer, encoded))
        except Exception:
            # What cannot be written down does not leave.
            return codec.encode(self._refusal(RefusalCode.FAILED, query))
        return encoded

    def _refusal(self, code: RefusalCode, query: Message | None) -> Refusal:
        exchange = query.exchange if query else 0
        return Refusal(study=self._digest, exchange=exchange, reason=code)

    def _answer(self, query: Message, asked: str) -> Message:
        if query.study != self._digest:
            raise RefusedError(RefusalCode.WRONG_STUDY)
        if type(query) not in HANDLERS:
            raise RefusedError(RefusalCode.MALFORMED)
        if type(query) not in self._needed:
            raise RefusedError(RefusalCode.NOT_IN_STUDY)
        self.limits.check_rows(self._n_training)
        if isinstance(query, EstimateValues | ValueLeaves) and not self.limits.values:
            raise RefusedError(RefusalCode.VALUES_FORBIDDEN)
        self._budgets.check(query, asked)
        try:
            kind, fields = HANDLERS[type(query)](self, query)
        except RefusedError as refused:
            if refused.code is RefusalCode.SMALL_CELLS:
                self._budgets.pay(query, asked)
            raise
        answer = kind(study=self._digest, exchange=query.exchange, **fields)
        self._check_sizes(
            np.asarray(value) for value in fields.values() if isinstance(value, (np.ndarray, float))
        )
        if self._made is not None and isinstance(query, SumScores):
            self._space.keep(self._made)  # now that their sums may be told
        self._budgets.pay(query, asked)
        return answer

    @cached_property
    def _n_training(self) -> int:
        return self._space.n_training

    @cached_property
    def _budgets(self) -> Budgets:
        budgets: dict[type[Message], int] = {
            EstimateValues: self.limits.value_queries,
            SumScores: self.limits.score_queries,
            SumFitting: self.limits.score_queries,
            SlopeOfValue: self.limits.slope_queries,
            Describe: self.limits.descriptions,
            ValueLeaves: self.limits.descriptions,
            CountBins: self.limits.count_queries,
            SumCells: min(self.limits.cell_queries, n_levels(self.study.tree.depth)),
            ImprovePolicy: self.study.plan.rounds,
            TellModels: self.limits.model_queries,
            CompareModels: self.limits.model_queries,
            TellMoments: self.limits.model_queries,
            ClassifyContexts: self.limits.classifier_queries,
        }
        return Budgets(budgets, self.ledger, self._digest)

    def _check_sizes(self, arrays: Iterable[NDArray[Any]]) -> None:
        for array in perhaps_beyond(arrays, self.limits.norm_cap):
            largest = largest_size(array)
            if not isfinite(largest):
                raise RefusedError(RefusalCode.NOT_FINITE)
            if largest > self.limits.norm_cap:
                raise RefusedError(RefusalCode.NORM_TOO_LARGE)

    @property
    def local_policy(self) -> Policy:
        """What the party learned alone, for itself: no answer ever carries it."""
        return self._space.local_policy

    # --- the answers ---------------------------------------------------------------------------

    def _enrol(self, _query: Message) -> tuple[type[Message], dict[str, Any]]:
        counts = self._space.rows_per_action
        shown = suppress_small_counts(counts, self.limits.minimum_cell)
        return Enrolment, {"n_rows": int(counts.sum()), "rows_per_action": shown}

    def _outcome_sums(self, _query: Message) -> tuple[type[Message], dict[str, Any]]:
        space = self._space
        enough = releasable_cells(space.rows_by_fold_action, space.rows_needed)
        if not enough.any():
            raise RefusedError(RefusalCode.SMALL_CELLS)
        sums, squared = space.outcome_sums()
        if not enough.all():
            sums[~enough], squared[~enough] = 0.0, 0.0
        return OutcomeSums, {"sums": sums, "squared_weights": squared}

    def _score_sums(self, query: SumScores) -> tuple[type[Message], dict[str, Any]]:
        self._check_sums()
        self._check_models(query)
        models = np.where(query.supported[..., None] > 0, query.models, np.nan)
        self._made = self._space.scored_with(models)
        return ScoreSums, vars(self._space.score_means(self._made))

    def _fitting_sums(self, _query: Message) -> tuple[type[Message], dict[str, Any]]:
        self._check_sums()
        space = self._space
        parts = (space.rows(RowSplit.FITTING), space.rows(RowSplit.VALIDATION))
        check_parts(np.isfinite(space.scores), parts, space.rows_needed)
        return ScoreSums, vars(space.fitting_means())

    def _pair_sums(self, _query: Message) -> tuple[type[Message], dict[str, Any]]:
        self._check_sums()
        space = self._space
        grams, products = pair_means(space.data, space.scores, space.training)
        return PairSums, {"grams": grams, "products": products}

    def _improve(self, query: ImprovePolicy) -> tuple[type[Message], dict[str, Any]]:
        space, plan = self._space, self.study.plan
        if not 0 <= query.round < plan.rounds:
            raise RefusedError(RefusalCode.MALFORMED)
        rows = space.examples(query.centre, query.scale)
        n_parameters = query.parameters.size if space.mask is None else int(space.mask.sum())
        n_used = min(len(rows.features), plan.batch_size * plan.local_steps)
        self.limits.check_parameters(n_parameters, n_used)
        if not self._secret:
            # Whoever can tell what the batches hold could solve for rows, given enough rounds.
            self.limits.check_parameters(plan.rounds, len(rows.features))
        if self.study.oracle == "csoaa-vw":
            rng = self._batches.generator(f"steps {query.round}")
            # Its labels have no room for row weights: heavier rows are drawn more often instead.
            shares = None if rows.weights is None else rows.weights / rows.weights.sum()
            drawn = rng.choice(len(rows.features), (plan.local_steps, plan.batch_size), p=shares)
            improved = space.vowpal(rows).improve(query.parameters, drawn)
        else:
            decay = 1 / np.sqrt(1 + query.round / 4)
            picks = self._batches.of_round(query.round, len(rows.features), plan)
            improved = improve(query.parameters, rows, plan, space.mask, picks, float(decay))
        return ImprovedPolicy, {"parameters": improved}

    def _slope(self, query: SlopeOfValue) -> tuple[type[Message], dict[str, Any]]:
        self._check_sums()
        space = self._space
        rows = space.rows(RowSplit.FITTING)
        slope, n_effective = value_slope(
            space.data, space.scores, rows, query.parameters, query.temperature
        )
        # A hard policy's slope rests on the few rows where it is undecided.
        if not n_effective >= self._space.rows_needed:
            raise RefusedError(RefusalCode.SMALL_CELLS)
        return Slope, {"gradient": slope if space.mask is None else slope * space.mask}

    def _values(self, query: EstimateValues) -> tuple[type[Message], dict[str, Any]]:
        n_rows = self._space.n_rows(query.split)
        n_values = n_policies(query) + N_OWN_CANDIDATES
        self._check_values(n_values, n_rows)
        found = estimate_candidates(self._space, query, self.limits.minimum_cell)
        # Rows without a score were left out: the limits are for those that remain.
        self._check_values(n_values, found.n_rows)
        return Values, {
            "n_rows": found.n_rows,
            "degrees_of_freedom": found.degrees_of_freedom,
            "means": found.means,
            "covariances": found.covariances,
        }

    def _description(self, query: Describe) -> tuple[type[Message], dict[str, Any]]:
        self._check_sums()
        return Description, describe(self._space, query, self.limits.minimum_cell)

    def _bin_counts(self, query: CountBins) -> tuple[type[Message], dict[str, Any]]:
        return BinCounts, count_bins(self._space, query, self.limits.minimum_cell)

    def _cell_sums(self, query: SumCells) -> tuple[type[Message], dict[str, Any]]:
        needed = self.limits.rows_needed(self.study.n_actions)
        return CellSums, sum_cells(self._space, query, needed)

    def _leaf_values(self, query: ValueLeaves) -> tuple[type[Message], dict[str, Any]]:
        needed = self.limits.rows_needed(2 * self.study.n_actions)  # a mean and a variance each
        return LeafValues, value_leaves(self._space, query, needed, self.limits.minimum_cell)

    def _models(self, _query: Message) -> tuple[type[Message], dict[str, Any]]:
        self._check_sums()
        own = vars(self._own_models)
        return Models, {**own, "supported": own["supported"].astype(np.float64)}

    def _model_shifts(self, query: CompareModels) -> tuple[type[Message], dict[str, Any]]:
        self._check_sums()
        return ModelShifts, compare_models(self._space, self._own_models, query, self.limits)

    @cached_property
    def _own_models(self) -> tell_models.Models:
        return tell_models.fit_models(self._space, self.limits)

    def _classifier_sums(self, query: ClassifyContexts) -> tuple[type[Message], dict[str, Any]]:
        return ClassifierSums, classify(self._space, query, self.limits)

    def _score_moments(self, _query: Message) -> tuple[type[Message], dict[str, Any]]:
        self._check_sums()
        if beyond_declared(self._space):
            raise RefusedError(RefusalCode.BEYOND_DECLARED)
        return ScoreMoments, tell_moments(self._space)

    def _check_values(self, n_values: int, n_rows: int) -> None:
        if n_rows < self.limits.minimum_cell:
            raise RefusedError(RefusalCode.TOO_FEW_ROWS)
        self.limits.check_parameters(n_values, n_rows)

    def _check_models(self, query: SumScores) -> None:
        """As many models as the study has parts, with the same support in all of them.

        Support that differs from fold to fold would tell the sums of single folds.
        """
        plan = self.study.nuisances
        expected = plan.folds + 1 if plan.kind == "federated" else 0
        if len(query.models) != expected or len(query.supported) != expected:
            raise RefusedError(RefusalCode.MALFORMED)
        if self.limits.minimum_cell and (query.supported != query.supported[:1]).any():
            raise RefusedError(RefusalCode.SMALL_CELLS)

    def _check_sums(self) -> None:
        if self._n_training < self._space.rows_needed:
            raise RefusedError(RefusalCode.TOO_MANY_PARAMETERS)


HANDLERS: dict[type[Message], Callable[[Door, Any], tuple[type[Message], dict[str, Any]]]] = {
    Enrol: Door._enrol,
    SumOutcomes: Door._outcome_sums,
    SumScores: Door._score_sums,
    SumPairs: Door._pair_sums,
    ImprovePolicy: Door._improve,
    SlopeOfValue: Door._slope,
    EstimateValues: Door._values,
    Describe: Door._description,
    CountBins: Door._bin_counts,
    SumCells: Door._cell_sums,
    ValueLeaves: Door._leaf_values,
    TellModels: Door._models,
    CompareModels: Door._model_shifts,
    ClassifyContexts: Door._classifier_sums,
    TellMoments: Door._score_moments,
    SumFitting: Door._fitting_sums,
}
