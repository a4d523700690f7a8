"""The door: bytes in, bytes out. It never raises, and nothing leaves any other way."""

import hashlib
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from fedopl.arrays import BoolArray, IntArray
from fedopl.client.candidates import estimate_candidates
from fedopl.client.descent import improve
from fedopl.client.ledger import Ledger, MemoryLedger, entry_for
from fedopl.client.limits import Limits, RefusedError
from fedopl.client.logged_data import LoggedData
from fedopl.client.statistics import pair_means, value_slope
from fedopl.client.store import MemoryStore, Store
from fedopl.client.workspace import Rule, Workspace
from fedopl.errors import WireError
from fedopl.seeds import generator_for
from fedopl.study import Study
from fedopl.wire import codec
from fedopl.wire.vocabulary import (
    N_OWN_CANDIDATES,
    Enrol,
    Enrolment,
    EstimateValues,
    ImprovedPolicy,
    ImprovePolicy,
    Message,
    OutcomeSums,
    PairSums,
    Refusal,
    RefusalCode,
    ScoreSums,
    Slope,
    SlopeOfValue,
    Split,
    SumOutcomes,
    SumPairs,
    SumScores,
    Values,
    axis_sizes,
    queries_of,
)


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
    ) -> None:
        self.name, self.study = name, study
        self.limits = limits or Limits()
        self.ledger: Ledger = MemoryLedger() if ledger is None else ledger
        self._space = Workspace(data, study, store or MemoryStore(), rules or {})
        self._sizes, self._digest = axis_sizes(study), study.digest
        self._needed = queries_of(study)

    def handle(self, content: bytes) -> bytes:
        """Answer a query, or refuse it with a code; whatever happens, no text leaves."""
        query: Message | None = None
        try:
            query = codec.decode(content, self._sizes)
            answer = self._answer(query, content)
            self._check_norm(answer)
        except RefusedError as refused:
            answer = self._refusal(refused.code, query)
        except codec.WrongVersionError:
            answer = self._refusal(RefusalCode.WRONG_VERSION, query)
        except WireError:
            answer = self._refusal(RefusalCode.MALFORMED, query)
        except (Exception, SystemExit):
            answer = self._refusal(RefusalCode.FAILED, query)
        return self._written_down(query, content, answer)

    def _written_down(self, query: Message | None, asked: bytes, answer: Message) -> bytes:
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

    def _answer(self, query: Message, content: bytes) -> Message:
        if query.study != self._digest:
            raise RefusedError(RefusalCode.WRONG_STUDY)
        if type(query) not in HANDLERS:
            raise RefusedError(RefusalCode.MALFORMED)
        if type(query) not in self._needed:
            raise RefusedError(RefusalCode.NOT_IN_STUDY)
        self.limits.check_rows(self._space.n_training)
        self._count(query, content)
        kind, fields = HANDLERS[type(query)](self, query)
        return kind(study=self._digest, exchange=query.exchange, **fields)

    def _count(self, query: Message, content: bytes) -> None:
        """Queries that could be varied to single out rows have budgets; repeating one is free."""
        if isinstance(query, EstimateValues) and not self.limits.values:
            raise RefusedError(RefusalCode.VALUES_FORBIDDEN)
        budget = {
            EstimateValues: self.limits.value_queries,
            SumScores: self.limits.sum_queries,
            SlopeOfValue: self.limits.sum_queries,
        }.get(type(query))
        if budget is None:
            return
        paid = self._paid.setdefault(type(query).__name__, set())
        digest = hashlib.sha256(content).hexdigest()
        if digest in paid:
            return
        if len(paid) >= budget:
            raise RefusedError(RefusalCode.BUDGET_SPENT)
        paid.add(digest)

    @cached_property
    def _paid(self) -> dict[str, set[str]]:
        """The queries answered so far, also by an earlier process: the ledger knows."""
        paid: dict[str, set[str]] = {}
        for entry in self.ledger.entries():
            if entry.answer != Refusal.__name__:
                paid.setdefault(entry.query, set()).add(entry.query_sha256)
        return paid

    def _check_norm(self, answer: Message) -> None:
        for name, axes in codec.FIELDS[type(answer)]:
            if not isinstance(axes, tuple):
                continue
            array = getattr(answer, name)
            largest = np.abs(array).max(initial=0.0)
            if not np.isfinite(largest):
                raise RefusedError(RefusalCode.NOT_FINITE)
            if largest > self.limits.norm_cap:
                raise RefusedError(RefusalCode.NORM_TOO_LARGE)

    # --- the answers ---------------------------------------------------------------------------

    def _enrol(self, _query: Message) -> tuple[type[Message], dict[str, Any]]:
        counts = self._space.rows_per_action
        shown = counts * (counts >= self.limits.minimum_cell)
        if np.sum(shown < counts) == 1:
            # All but one add up to the total: a second has to go, or the first was not hidden.
            shown[np.argmin(np.where(shown > 0, shown, np.inf))] = 0
        return Enrolment, {"n_rows": int(counts.sum()), "rows_per_action": shown}

    def _outcome_sums(self, _query: Message) -> tuple[type[Message], dict[str, Any]]:
        needed = self.limits.rows_needed(self.study.n_features + 1)
        enough = _large_enough(self._space.rows_per_cell, needed)
        if not enough.any():
            raise RefusedError(RefusalCode.SMALL_CELLS)
        sums, squared = self._space.outcome_sums()
        return OutcomeSums, {
            "sums": sums * enough[..., None, None],
            "squared_weights": squared * enough,
        }

    def _score_sums(self, query: SumScores) -> tuple[type[Message], dict[str, Any]]:
        self._check_sums()
        federated = self.study.nuisances.kind == "federated"
        if len(query.models) != (self.study.nuisances.folds + 1 if federated else 0):
            raise RefusedError(RefusalCode.MALFORMED)
        self._space.score(np.where(query.supported[..., None] > 0, query.models, np.nan))
        self._check_scored()
        means = self._space.score_means()
        return ScoreSums, {
            "grams": means.grams,
            "products": means.products,
            "squares": means.squares,
            "shares": means.shares,
        }

    def _pair_sums(self, _query: Message) -> tuple[type[Message], dict[str, Any]]:
        self._check_sums()
        self._check_scored()
        space = self._space
        grams, products = pair_means(space.data, space.scores, space.training)
        return PairSums, {"grams": grams, "products": products}

    def _improve(self, query: ImprovePolicy) -> tuple[type[Message], dict[str, Any]]:
        space, plan = self._space, self.study.plan
        rows = space.examples(query.centre, query.scale)
        n_parameters = query.parameters.size if space.mask is None else int(space.mask.sum())
        n_used = min(len(rows.features), plan.batch_size * plan.local_steps)
        self.limits.check_parameters(n_parameters, n_used)
        rng = generator_for(self.study.seed, client=self.name, purpose=f"steps {query.round}")
        decay = 1 / np.sqrt(1 + query.round / 4)
        improved = improve(query.parameters, rows, plan, space.mask, rng, float(decay))
        return ImprovedPolicy, {"parameters": improved}

    def _slope(self, query: SlopeOfValue) -> tuple[type[Message], dict[str, Any]]:
        self._check_sums()
        self._check_scored()
        space = self._space
        rows = space.rows(Split.FITTING)
        slope, n_effective = value_slope(
            space.data, space.scores, rows, query.parameters, query.temperature
        )
        # A hard policy's slope rests on the few rows where it is undecided.
        if n_effective < self.limits.rows_needed(self.study.n_features + 1):
            raise RefusedError(RefusalCode.SMALL_CELLS)
        return Slope, {"gradient": slope if space.mask is None else slope * space.mask}

    def _values(self, query: EstimateValues) -> tuple[type[Message], dict[str, Any]]:
        n_rows = int(self._space.rows(query.split).sum())
        n_values = len(query.linear) + len(query.pairwise) + len(query.rules) + N_OWN_CANDIDATES
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

    def _check_values(self, n_values: int, n_rows: int) -> None:
        if n_rows < self.limits.minimum_cell:
            raise RefusedError(RefusalCode.TOO_FEW_ROWS)
        self.limits.check_parameters(n_values, n_rows)

    def _check_scored(self) -> None:
        """Sums are over rows that have a score: of no action may there be just a few."""
        counts = self._space.scored_per_action
        needed = self.limits.rows_needed(self.study.n_features + 1)
        self.limits.check_rows(int(counts.max()))
        if ((counts > 0) & (counts < needed)).any():
            raise RefusedError(RefusalCode.SMALL_CELLS)

    def _check_sums(self) -> None:
        if self._space.n_training < self.limits.rows_needed(self.study.n_features + 1):
            raise RefusedError(RefusalCode.TOO_MANY_PARAMETERS)


def _large_enough(counts: IntArray, needed: int) -> BoolArray:
    """The cells whose sums may leave.

    The sums of all rows leave by another query, so what is left out could be had by subtraction: it
    must be large enough, too, or the next smallest cells go with it.
    """
    enough: BoolArray = counts >= needed
    for cell in np.argsort(counts, axis=None):
        left_out = int(counts[~enough].sum())
        if left_out == 0 or left_out >= needed:
            break
        enough.reshape(-1)[cell] = False
    return enough


HANDLERS: dict[type[Message], Callable[[Door, Any], tuple[type[Message], dict[str, Any]]]] = {
    Enrol: Door._enrol,
    SumOutcomes: Door._outcome_sums,
    SumScores: Door._score_sums,
    SumPairs: Door._pair_sums,
    ImprovePolicy: Door._improve,
    SlopeOfValue: Door._slope,
    EstimateValues: Door._values,
}
