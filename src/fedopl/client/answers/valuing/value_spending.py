"""What policies gain and spend on the client's rows, at prices or as they are."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from math import comb

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.answers.asked_policies import Decides, deciders, policies_in
from fedopl.client.answers.valuing.estimate_values import by_part, told_of, valued_chunks
from fedopl.client.answers.valuing.versions import of_own_folds
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.scoring.corrected_scores import variance_of_changes
from fedopl.client.scoring.net_scores import costs_in, net_rewards
from fedopl.client.scoring.values import JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.policy_values import Value, ValuesByPart, n_points
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.allowed.permissions import first_allowed
from fedopl.policies.linear import LinearPolicy
from fedopl.solvers.fold_variances import OF_DIFFERENCES, OF_VALUES


def spending_by_query(space: Workspace, query: Value) -> ValuesByPart:
    """Means and covariances of gains and costs, of each policy alone."""
    path, split = _Path(space, query), query.split
    sums = [JointSums() for _ in range(n_points(space.study))]
    apart = np.zeros(len(sums))
    for chunk in valued_chunks(space, split):
        rows = chunk.rows(split)
        weights, groups = chunk.weights(rows), chunk.data.groups_of(rows)
        for place, (columns, n_apart) in enumerate(path.columns(chunk)):
            sums[place].add(columns, weights, groups)
            apart[place] += n_apart
    each = [one for own in sums if (one := own.estimate())]
    of_rows = told_of(space, split, each[0] if each else None)["of_rows"]
    squares = np.array([one.covariances for one in each])
    if space.scored.adds_variance:
        squares[:, 0, 0] += path.excess(space)
    # As large as they should be, given how often versions of each policy decide differently.
    apart = apart[:, None] / (comb(space.study.nuisances.folds, 2) * space.n_rows(split))
    sizes = np.sqrt(1 + np.array([OF_DIFFERENCES, OF_VALUES]) * apart)
    squares = squares * sizes[:, :, None] * sizes[:, None, :]
    pairs = zip(each, squares, strict=True)
    return by_part([[replace(one, covariances=own) for one, own in pairs]], of_rows=of_rows)


class _Path:
    """The decisions of each policy at every price, and their gains and costs."""

    def __init__(self, space: Workspace, query: Value) -> None:
        study = space.study
        assert study.budget is not None  # noqa: S101  (or the query is not plausible)
        self._query, self._study, self._spent = query, study, study.budget.spent(study)
        # An action without scores is given to nobody. For giving it to all, only the cost is
        # released.
        self._hidden, self._obeyed = space.scored.hidden, space.obeyed
        if self._hidden[query.against]:
            raise RefusedError(RefusalCode.UNSCORED_DECISIONS)
        self._priced, self._decide = list[list[LinearPolicy]](), list[list[Decides]]()
        if len(query.prices):
            priced = [LinearPolicy.from_numbers(one, study) for one in query.of_kind("linear")]
            self._priced = query.of_candidates(priced)
        else:
            self._decide = query.of_candidates(deciders(space, policies_in(query)))

    def columns(self, chunk: ScoredChunk) -> Iterator[tuple[FloatArray, int]]:  # (n_rows, 2) each
        """The gain over one action for all, and the cost, at every price, of actions, and as done.

        Only of rows with scores for every action, apart from actions that no row has a score for.
        With each comes in how many pairs of a row and two versions these decide differently.
        """
        rows = chunk.rows(self._query.split)
        contexts, scores = chunk.data.contexts[rows], chunk.scores[rows]
        row, costs = np.arange(len(scores)), costs_in(contexts, self._spent)
        without = scores[row, self._alike(self._query.against, contexts)]
        gains = np.where(self._hidden, 0.0, scores - without[:, None])
        gains[~np.isfinite(gains).all(axis=1)] = np.nan
        for decided, n_apart in self._decided(chunk, rows):
            yield np.column_stack([gains[row, decided], costs[row, decided]]), n_apart
        # What was done is known and needs no score.
        done = net_rewards(chunk.data, rows, self._study) - without + 0 * gains[:, 0]
        yield np.column_stack([done, costs[row, chunk.data.actions[rows]]]), 0

    def excess(self, space: Workspace) -> FloatArray:  # (n_points,)
        """What gains vary by, and rows at hand do not show."""
        whole, scored = space.whole, space.scored
        rows = whole.rows(self._query.split)
        excess, changes = scored.excess[rows], scored.changes[rows]
        weight, row = space.data.weights_of(rows), np.arange(len(excess))
        without = self._alike(self._query.against, whole.data.contexts[rows])
        each = [decided for decided, _ in self._decided(whole, rows)]
        found = []
        for place, decided in enumerate([*each, np.asarray(whole.data.actions[rows])]):
            own = np.where(decided == without, 0.0, excess[row, decided] + excess[row, without])
            added = max(float(weight**2 @ own), 0.0) / float(weight.sum()) ** 2
            if changes.any():
                moved = changes[row, decided] * (place < len(each))
                added += variance_of_changes(moved - changes[row, without], weight)
            found.append(added)
        return np.array(found)

    def _decided(self, chunk: ScoredChunk, rows: slice) -> Iterator[tuple[IntArray, int]]:
        """The decisions (n_rows,) at every price, and of each action for everybody."""
        contexts = chunk.data.contexts[rows]
        for versions in self._along(contexts):
            n_apart = sum(int((a != b).sum()) for a, b in combinations(versions, 2))
            yield of_own_folds(chunk, versions), n_apart
        for action in range(self._study.n_actions):
            yield self._alike(action, contexts), 0

    def _along(self, contexts: FloatArray) -> Iterator[list[IntArray]]:
        """The decisions of all versions of a policy, with prices in the scores of linear ones."""
        for versions in self._decide:
            found = [decide(contexts) for decide in versions]
            if any(self._hidden[codes].any() for codes in found):
                raise RefusedError(RefusalCode.UNSCORED_DECISIONS)
            yield found
        closed, costs = self._hidden | self._forbidden(contexts), costs_in(contexts, self._spent)
        if self._priced and closed.all(axis=1).any():
            raise RefusedError(RefusalCode.UNSCORED_DECISIONS)
        for policies in self._priced:
            indices = [np.where(closed, -np.inf, one.linear(contexts)) for one in policies]
            for price in self._query.prices:
                yield [np.argmax(own - price * costs, axis=1) for own in indices]

    def _forbidden(self, contexts: FloatArray) -> BoolArray:  # (n_rows, n_actions)
        """The actions that each row may not get here."""
        found = self._obeyed.forbidden(contexts)
        return (
            np.zeros((len(contexts), self._study.n_actions), np.bool_) if found is None else found
        )

    def _alike(self, action: int, contexts: FloatArray) -> IntArray:  # (n_rows,)
        """One action for everybody who may get it, and for others the first allowed one."""
        return first_allowed(np.full(len(contexts), action), self._forbidden(contexts))
