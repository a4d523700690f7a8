"""Paths of policies that spend less and less: the decisions, gains and costs of each."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.answers.asked_policies import deciders, policies_in
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disk.store import Arrays
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.scoring.corrections.corrected_scores import variance_of_changes
from fedopl.client.scoring.net_scores import costs_in, net_rewards
from fedopl.client.scoring.values import JointEstimate
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.candidate_spending import ValueSpending
from fedopl.messages.evaluation.price_curve import ValuePrices
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.trees.tree_path import ValueTrees
from fedopl.policies.allowed.permissions import first_allowed
from fedopl.policies.linear import LinearPolicy

_HELD_OUT = RowSplit.EVALUATION


class PricedPath(ABC):
    """The decisions at every price, and their gains and costs."""

    def __init__(self, space: Workspace, against: int) -> None:
        study = space.study
        if study.budget is None:
            raise RefusedError(RefusalCode.NOT_IN_STUDY)
        self._against, self._study = against, study
        self._spent, self._n_actions = study.budget.spent(study), study.n_actions
        # An action without scores is given to nobody. For giving it to all, only the cost is
        # released.
        self._hidden, self._obeyed = space.scored.hidden, space.obeyed
        if self._hidden[against]:
            raise RefusedError(RefusalCode.UNSCORED_DECISIONS)

    @abstractmethod
    def along(self, contexts: FloatArray, costs: FloatArray) -> Iterator[IntArray]:
        """The decisions (n_rows,) at every price."""

    def costs(self, chunk: ScoredChunk, rows: slice) -> FloatArray:  # (n_rows, n_actions)
        """The cost of each action in each row."""
        return costs_in(chunk.data.contexts[rows], self._spent)

    def known(self, chunk: ScoredChunk, rows: slice) -> BoolArray:  # (n_rows,)
        """Rows with scores for every action, apart from actions that no row has a score for."""
        return np.asarray(np.isfinite(chunk.scores[rows][:, ~self._hidden]).all(axis=1))

    def forbidden(self, contexts: FloatArray) -> BoolArray:  # (n_rows, n_actions)
        """The actions that each row may not get here."""
        found = self._obeyed.forbidden(contexts)
        return np.zeros((len(contexts), self._n_actions), np.bool_) if found is None else found

    def alike(self, action: int, contexts: FloatArray) -> IntArray:  # (n_rows,)
        """One action for everybody who may get it, and for others the first allowed one."""
        return first_allowed(np.full(len(contexts), action), self.forbidden(contexts))

    def decided(self, chunk: ScoredChunk, rows: slice) -> Iterator[IntArray]:  # (n_rows,) each
        """The decisions at every price, then each action for everybody, then the logged actions."""
        contexts = chunk.data.contexts[rows]
        yield from self.along(contexts, self.costs(chunk, rows))
        for action in range(self._n_actions):
            yield self.alike(action, contexts)
        yield np.asarray(chunk.data.actions[rows])

    def columns(
        self, chunk: ScoredChunk, rows: slice, decided: list[IntArray]
    ) -> Iterator[FloatArray]:  # (n_rows, 2) each
        """The gain over one action for all, and the cost, of each set of decisions."""
        scores, costs = chunk.scores[rows], self.costs(chunk, rows)
        row = np.arange(len(costs))
        without = scores[row, self.alike(self._against, chunk.data.contexts[rows])]
        for own in decided[:-1]:
            gain = np.where(self._hidden[own], 0.0, scores[row, own] - without)
            yield np.column_stack([gain, costs[row, own]])
        rewards = net_rewards(chunk.data, rows, self._study)
        yield np.column_stack([rewards - without, costs[row, decided[-1]]])

    def with_excess(self, found: list[JointEstimate], space: Workspace) -> list[JointEstimate]:
        """With what gains vary by, and rows at hand do not show."""
        whole, excess = space.whole, space.scored.excess
        rows = whole.rows(_HELD_OUT)
        weight = space.data.weights_of(rows)
        row, wider = np.arange(len(excess)), []
        without = self.alike(self._against, whole.data.contexts[rows])
        each = list(self.decided(whole, rows))
        for place, (one, decided) in enumerate(zip(found, each, strict=True)):
            own = np.where(decided == without, 0.0, excess[row, decided] + excess[row, without])
            covariances = np.array(one.covariances)
            covariances[0, 0] += max(float(weight**2 @ own), 0.0) / float(weight.sum()) ** 2
            if (changes := space.scored.changes).any():
                # What was done, last, is known and needs no score.
                apart = changes[row, decided] * (place < len(each) - 1) - changes[row, without]
                covariances[0, 0] += variance_of_changes(apart, weight)
            wider.append(replace(one, covariances=covariances))
        return wider


class AtPrices(PricedPath):
    """A linear policy, argmax_a θ_aᵀφ(x) − μ·c_a(x)."""

    def __init__(self, space: Workspace, query: ValuePrices) -> None:
        super().__init__(space, query.against)
        try:
            self._policy = LinearPolicy.from_numbers(query.parameters, space.study)
        except ValueError:
            raise RefusedError(RefusalCode.MALFORMED) from None
        self._prices = query.prices

    def along(self, contexts: FloatArray, costs: FloatArray) -> Iterator[IntArray]:
        """The allowed action with the largest index after its cost at each price."""
        closed = self._hidden | self.forbidden(contexts)
        if closed.all(axis=1).any():
            raise RefusedError(RefusalCode.UNSCORED_DECISIONS)
        indices = np.where(closed, -np.inf, self._policy.linear(contexts))
        for price in self._prices:
            yield np.argmax(indices - price * costs, axis=1)


class GivenPath(PricedPath):
    """Policies that are given, whatever they cost."""

    def __init__(self, space: Workspace, against: int, policies: Sequence[Arrays]) -> None:
        super().__init__(space, against)
        self._decide = deciders(space, policies)

    def along(self, contexts: FloatArray, costs: FloatArray) -> Iterator[IntArray]:
        """The decisions of each policy; refused where it gives an action without scores."""
        del costs
        for decide in self._decide:
            codes = decide(contexts)
            if self._hidden[codes].any():
                raise RefusedError(RefusalCode.UNSCORED_DECISIONS)
            yield codes


class TreePath(GivenPath):
    """Trees that were found at prices."""

    def __init__(self, space: Workspace, query: ValueTrees) -> None:
        n_trees = len(query.trees) - space.study.n_actions
        super().__init__(space, query.against, [{"trees": one} for one in query.trees[:n_trees]])


class CandidatePath(GivenPath):
    """The candidates of a study."""

    def __init__(self, space: Workspace, query: ValueSpending) -> None:
        super().__init__(space, query.against, policies_in(query))
