"""What policies gain and spend on the client's held-out rows, at prices or as they are."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.answers.asked_policies import deciders, policies_in
from fedopl.client.answers.valuing.estimate_values import check_not_selected
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.scoring.corrections.corrected_scores import variance_of_changes
from fedopl.client.scoring.net_scores import costs_in, net_rewards
from fedopl.client.scoring.values import JointEstimate, JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.price_curve import PriceCurve, ValueSpending, n_points
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.allowed.permissions import first_allowed
from fedopl.policies.linear import LinearPolicy

_HELD_OUT = RowSplit.EVALUATION


def answer(space: Workspace, query: ValueSpending) -> PriceCurve:
    """Means and covariances of gains and costs."""
    space.check_held_out()
    path = _Path(space, query)
    sums = [JointSums() for _ in range(n_points(space.study))]
    for chunk in space.chunks():
        rows = chunk.rows(_HELD_OUT)
        known, decided = path.known(chunk, rows), list(path.decided(chunk, rows))
        weights, groups = chunk.weights(rows), chunk.data.groups_of(rows)
        for own, columns in zip(sums, path.columns(chunk, rows, decided), strict=True):
            own.add(np.where(known[:, None], columns, np.nan), weights, groups)
    found = [one for own in sums if (one := own.estimate())]
    if len(found) < len(sums):
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if space.scored.adds_variance:
        found = path.with_excess(found, space)
    check_not_selected(space, _HELD_OUT, found[0].n_rows)
    return PriceCurve(
        n_rows=found[0].n_rows,
        of_rows=space.n_rows(_HELD_OUT),
        degrees_of_freedom=found[0].degrees_of_freedom,
        means=np.array([one.means for one in found]),
        covariances=np.array([one.covariances for one in found]),
    )


class _Path:
    """The decisions at every price, and their gains and costs."""

    def __init__(self, space: Workspace, query: ValueSpending) -> None:
        study = space.study
        if study.budget is None:
            raise RefusedError(RefusalCode.NOT_IN_STUDY)
        self._against, self._study, self._prices = query.against, study, query.prices
        self._spent, self._n_actions = study.budget.spent(study), study.n_actions
        # An action without scores is given to nobody. For giving it to all, only the cost is
        # released.
        self._hidden, self._obeyed = space.scored.hidden, space.obeyed
        if self._hidden[query.against]:
            raise RefusedError(RefusalCode.UNSCORED_DECISIONS)
        priced = query.of_kind("linear") if len(self._prices) else ()
        self._priced = [LinearPolicy.from_numbers(one, study) for one in priced]
        self._decide = [] if len(self._prices) else deciders(space, policies_in(query))

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
        yield from self._along(contexts, self.costs(chunk, rows))
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

    def _along(self, contexts: FloatArray, costs: FloatArray) -> Iterator[IntArray]:
        """The decisions of each policy, with a price in the scores of those that have one."""
        for decide in self._decide:
            codes = decide(contexts)
            if self._hidden[codes].any():
                raise RefusedError(RefusalCode.UNSCORED_DECISIONS)
            yield codes
        for policy in self._priced:
            closed = self._hidden | self.forbidden(contexts)
            if closed.all(axis=1).any():
                raise RefusedError(RefusalCode.UNSCORED_DECISIONS)
            indices = np.where(closed, -np.inf, policy.linear(contexts))
            for price in self._prices:
                yield np.argmax(indices - price * costs, axis=1)
