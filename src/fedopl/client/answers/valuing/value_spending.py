"""What policies gain and spend on the client's rows, at prices or as they are."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import comb

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.answers.asked_policies import Decides, deciders, policies_in
from fedopl.client.answers.valuing.estimate_values import check_not_selected
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.rows.chunks import ScoredChunk
from fedopl.client.scoring.corrections.corrected_scores import variance_of_changes
from fedopl.client.scoring.net_scores import costs_in, net_rewards
from fedopl.client.scoring.values import JointEstimate, JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.price_curve import PriceCurve, ValueSpending, n_points
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.allowed.permissions import first_allowed
from fedopl.policies.linear import LinearPolicy
from fedopl.solvers.fold_variances import OF_DIFFERENCES, OF_VALUES


def answer(space: Workspace, query: ValueSpending) -> PriceCurve:
    """Means and covariances of gains and costs."""
    is_by_fold, split = query.is_by_fold, query.split
    if not is_by_fold:
        space.check_held_out()
    path = _Path(space, query)
    sums = [JointSums() for _ in range(n_points(space.study))]
    apart = np.zeros(len(sums))
    for chunk in space.scored.evaluated(space.unscored_chunks()) if is_by_fold else space.chunks():
        rows, known = chunk.rows(split), path.known(chunk)
        weights, groups = chunk.weights(rows), chunk.data.groups_of(rows)
        for place, (columns, n_apart) in enumerate(path.columns(chunk)):
            sums[place].add(np.where(known[:, None], columns, np.nan), weights, groups)
            apart[place] += n_apart
    found = [one for own in sums if (one := own.estimate())]
    if len(found) < len(sums):
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if space.scored.adds_variance:
        found = path.with_excess(found, space)
    check_not_selected(space, split, found[0].n_rows)
    n_pairs = comb(space.study.nuisances.folds, 2)
    return PriceCurve(
        n_rows=found[0].n_rows,
        of_rows=space.n_rows(split),
        degrees_of_freedom=found[0].degrees_of_freedom,
        means=np.array([one.means for one in found]),
        covariances=_widened(
            np.array([one.covariances for one in found]), apart / (n_pairs * space.n_rows(split))
        ),
    )


def _widened(covariances: FloatArray, apart: FloatArray) -> FloatArray:  # (n_points, 2, 2)
    """As large as they should be, given how often versions of each policy decide differently."""
    gains, costs = 1 + OF_DIFFERENCES * apart, 1 + OF_VALUES * apart
    sizes = np.sqrt(np.stack([gains, costs], axis=1))
    return covariances * sizes[:, :, None] * sizes[:, None, :]


class _Path:
    """The decisions of each policy at every price, and their gains and costs."""

    def __init__(self, space: Workspace, query: ValueSpending) -> None:
        study = space.study
        if study.budget is None:
            raise RefusedError(RefusalCode.NOT_IN_STUDY)
        self._split, self._prices = query.split, query.prices
        self._against, self._study = query.against, study
        self._spent, self._n_actions = study.budget.spent(study), study.n_actions
        # An action without scores is given to nobody. For giving it to all, only the cost is
        # released.
        self._hidden, self._obeyed = space.scored.hidden, space.obeyed
        if self._hidden[query.against]:
            raise RefusedError(RefusalCode.UNSCORED_DECISIONS)
        self._priced, self._decide = list[list[LinearPolicy]](), list[list[Decides]]()
        if len(self._prices):
            priced = [LinearPolicy.from_numbers(one, study) for one in query.of_kind("linear")]
            self._priced = query.of_candidates(priced)
        else:
            self._decide = query.of_candidates(deciders(space, policies_in(query)))

    def known(self, chunk: ScoredChunk) -> BoolArray:  # (n_rows,)
        """Rows with scores for every action, apart from actions that no row has a score for."""
        scores = chunk.scores[chunk.rows(self._split)]
        return np.asarray(np.isfinite(scores[:, ~self._hidden]).all(axis=1))

    def decided(self, chunk: ScoredChunk) -> Iterator[tuple[IntArray, int]]:
        """The decisions (n_rows,) at every price, of each action for everybody, and as logged.

        With each comes in how many pairs of a row and two versions these decide differently.
        """
        rows = chunk.rows(self._split)
        contexts = chunk.data.contexts[rows]
        costs = costs_in(contexts, self._spent)
        for versions in self._along(contexts, costs):
            n_apart = sum(int((a != b).sum()) for a, b in combinations(versions, 2))
            yield _of_own_folds(chunk, versions), n_apart
        for action in range(self._n_actions):
            yield self._alike(action, contexts), 0
        yield np.asarray(chunk.data.actions[rows]), 0

    def columns(self, chunk: ScoredChunk) -> Iterator[tuple[FloatArray, int]]:  # (n_rows, 2) each
        """The gain over one action for all, and the cost, of each set of decisions."""
        rows = chunk.rows(self._split)
        contexts, scores = chunk.data.contexts[rows], chunk.scores[rows]
        row, costs = np.arange(len(scores)), costs_in(contexts, self._spent)
        without = scores[row, self._alike(self._against, contexts)]
        rewards = net_rewards(chunk.data, rows, self._study)
        n_decided = n_points(self._study) - 1
        for place, (decided, n_apart) in enumerate(self.decided(chunk)):
            gains = np.where(self._hidden[decided], 0.0, scores[row, decided] - without)
            if place == n_decided:  # what was done is known and needs no score
                gains = rewards - without
            yield np.column_stack([gains, costs[row, decided]]), n_apart

    def with_excess(self, found: list[JointEstimate], space: Workspace) -> list[JointEstimate]:
        """With what gains vary by, and rows at hand do not show."""
        whole = space.whole
        rows = whole.rows(self._split)
        excess, changes = space.scored.excess[rows], space.scored.changes[rows]
        weight = space.data.weights_of(rows)
        row, wider = np.arange(len(excess)), []
        without = self._alike(self._against, whole.data.contexts[rows])
        for place, (one, (decided, _)) in enumerate(zip(found, self.decided(whole), strict=True)):
            own = np.where(decided == without, 0.0, excess[row, decided] + excess[row, without])
            covariances = np.array(one.covariances)
            covariances[0, 0] += max(float(weight**2 @ own), 0.0) / float(weight.sum()) ** 2
            if changes.any():
                # What was done, last, is known and needs no score.
                apart = changes[row, decided] * (place < len(found) - 1) - changes[row, without]
                covariances[0, 0] += variance_of_changes(apart, weight)
            wider.append(replace(one, covariances=covariances))
        return wider

    def _forbidden(self, contexts: FloatArray) -> BoolArray:  # (n_rows, n_actions)
        """The actions that each row may not get here."""
        found = self._obeyed.forbidden(contexts)
        return np.zeros((len(contexts), self._n_actions), np.bool_) if found is None else found

    def _alike(self, action: int, contexts: FloatArray) -> IntArray:  # (n_rows,)
        """One action for everybody who may get it, and for others the first allowed one."""
        return first_allowed(np.full(len(contexts), action), self._forbidden(contexts))

    def _along(self, contexts: FloatArray, costs: FloatArray) -> Iterator[list[IntArray]]:
        """The decisions of all versions of a policy, with prices in the scores of linear ones."""
        for versions in self._decide:
            found = [decide(contexts) for decide in versions]
            if any(self._hidden[codes].any() for codes in found):
                raise RefusedError(RefusalCode.UNSCORED_DECISIONS)
            yield found
        for policies in self._priced:
            closed = self._hidden | self._forbidden(contexts)
            if closed.all(axis=1).any():
                raise RefusedError(RefusalCode.UNSCORED_DECISIONS)
            indices = [np.where(closed, -np.inf, one.linear(contexts)) for one in policies]
            for price in self._prices:
                yield [np.argmax(own - price * costs, axis=1) for own in indices]


def _of_own_folds(chunk: ScoredChunk, versions: Sequence[IntArray]) -> IntArray:  # (n_rows,)
    """In each row, what the version for its fold decides, or the only one."""
    if len(versions) == 1:
        return versions[0]
    pairs = zip(versions, chunk.fold_slices, strict=True)
    return np.concatenate([decided[fold] for decided, fold in pairs])
