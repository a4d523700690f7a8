"""The door: bytes in, bytes out. It never raises, and nothing leaves any other way."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

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
        self._value_queries: set[bytes] = set()

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
        except Exception:
            answer = self._refusal(RefusalCode.FAILED, query)
        return self._written_down(query, answer)

    def _written_down(self, query: Message | None, answer: Message) -> bytes:
        encoded = codec.encode(answer)
        try:
            self.ledger.append(entry_for(query, answer, encoded))
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
        self.limits.check_rows(int(self._space.training.sum()))
        if isinstance(query, EstimateValues):
            self._count(content)
        kind, fields = HANDLERS[type(query)](self, query)
        return kind(study=self._digest, exchange=query.exchange, **fields)

    def _count(self, content: bytes) -> None:
        """Value queries have a budget; the same query asked again is free."""
        if not self.limits.values:
            raise RefusedError(RefusalCode.VALUES_FORBIDDEN)
        self._value_queries.add(hashlib.sha256(content).digest())
        if len(self._value_queries) > self.limits.value_queries:
            raise RefusedError(RefusalCode.BUDGET_SPENT)

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
        shown = np.where(counts < self.limits.minimum_cell, 0, counts)
        return Enrolment, {"n_rows": int(counts.sum()), "rows_per_action": shown}

    def _outcome_sums(self, _query: Message) -> tuple[type[Message], dict[str, Any]]:
        needed = self.limits.rows_needed(self.study.n_features + 1)
        enough = self._space.rows_per_cell >= needed
        if not enough.any():
            raise RefusedError(RefusalCode.SMALL_CELLS)
        sums, squared = self._space.outcome_sums()
        return OutcomeSums, {
            "sums": sums * enough[..., None, None],
            "squared_weights": squared * enough,
        }

    def _score_sums(self, query: SumScores) -> tuple[type[Message], dict[str, Any]]:
        self._check_sums()
        self._space.score(np.where(query.supported[..., None] > 0, query.models, np.nan))
        means = self._space.score_means()
        return ScoreSums, {
            "grams": means.grams,
            "products": means.products,
            "squares": means.squares,
            "shares": means.shares,
        }

    def _pair_sums(self, _query: Message) -> tuple[type[Message], dict[str, Any]]:
        self._check_sums()
        space = self._space
        grams, products = pair_means(space.data, space.scores, space.training)
        return PairSums, {"grams": grams, "products": products}

    def _improve(self, query: ImprovePolicy) -> tuple[type[Message], dict[str, Any]]:
        space, plan = self._space, self.study.plan
        rows = space.examples(query.centre, query.scale)
        n_parameters = query.parameters.size if space.mask is None else int(space.mask.sum())
        self.limits.check_parameters(n_parameters, len(rows.features))
        rng = generator_for(self.study.seed, client=self.name, purpose=f"steps {query.round}")
        decay = 1 / np.sqrt(1 + query.round / 4)
        improved = improve(query.parameters, rows, plan, space.mask, rng, float(decay))
        return ImprovedPolicy, {"parameters": improved}

    def _slope(self, query: SlopeOfValue) -> tuple[type[Message], dict[str, Any]]:
        self._check_sums()
        space = self._space
        rows = space.rows(Split.FITTING)
        slope = value_slope(space.data, space.scores, rows, query.parameters, query.temperature)
        return Slope, {"gradient": slope if space.mask is None else slope * space.mask}

    def _values(self, query: EstimateValues) -> tuple[type[Message], dict[str, Any]]:
        n_rows = int(self._space.rows(query.split).sum())
        n_values = len(query.linear) + len(query.pairwise) + len(query.rules) + N_OWN_CANDIDATES
        if n_rows < self.limits.minimum_cell:
            raise RefusedError(RefusalCode.TOO_FEW_ROWS)
        self.limits.check_parameters(n_values, n_rows)
        found = estimate_candidates(self._space, query)
        return Values, {
            "n_rows": found.n_rows,
            "degrees_of_freedom": found.degrees_of_freedom,
            "means": found.means,
            "covariances": found.covariances,
        }

    def _check_sums(self) -> None:
        n_rows = int(self._space.training.sum())
        if n_rows < self.limits.rows_needed(self.study.n_features + 1):
            raise RefusedError(RefusalCode.TOO_MANY_PARAMETERS)


HANDLERS: dict[type[Message], Callable[[Door, Any], tuple[type[Message], dict[str, Any]]]] = {
    Enrol: Door._enrol,
    SumOutcomes: Door._outcome_sums,
    SumScores: Door._score_sums,
    SumPairs: Door._pair_sums,
    ImprovePolicy: Door._improve,
    SlopeOfValue: Door._slope,
    EstimateValues: Door._values,
}
