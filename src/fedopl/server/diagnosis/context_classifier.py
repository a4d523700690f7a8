"""How clients' contexts differ: classifiers of one client's against all others' (Theorem 3).

Every target client has a logistic classifier of its own contexts against the mixture of the
others', with half the weight each. All classifiers are fitted at the same time: one query asks a
client about all of them, and no client learns which one is its own. The accuracy of a classifier on
rows that it was not fitted to bounds the total variation of contexts from below. These are held-out
rows or, if there are none, the first fold.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import OptionError
from fedopl.messages.about_differences import (
    MOST_ROUNDS,
    ClassifierSums,
    ClassifyContexts,
    fitted_split,
    judged_split,
)
from fedopl.messages.combining import weighted_sum
from fedopl.results.diagnosis import Classifier
from fedopl.server.exchange.conversation import Conversation
from fedopl.study.mixture import Weights, renormalised

# A step of this length lowers the loss by half its square, which is too little to matter.
_SMALLEST_STEP = 1e-4
# Keeps parameters finite if contexts can be separated perfectly.
RIDGE = 1e-3


def fit_classifiers(
    conversation: Conversation, targets: Sequence[str], weights: Mapping[str, float]
) -> dict[str, Classifier]:
    """A classifier for each target, by Newton's method: one step for each round of sums.

    A client that gives no sums in the first round is left out. A search ends when steps are small,
    or when a client gives no more sums. Other rows show how good the classifier is.
    """
    split = fitted_split(conversation.study)
    width = conversation.study.n_features + 1
    searches = {name: _Search(name, _half_each(name, weights), width) for name in targets}
    for _ in range(MOST_ROUNDS):
        going = [search for search in searches.values() if search.goes_on]
        if not going:
            break
        parameters = np.stack([search.following for search in going])
        query = ClassifyContexts(split=split, parameters=parameters)
        answers = conversation.each(query, _asked(going))
        for place, search in enumerate(going):
            told = answers.items()
            search.step({name: (own.pulls[place], own.hessian[place]) for name, own in told})
    bounds = _bounds(conversation, searches)
    return {
        name: Classifier(
            parameters=tuple(search.parameters.tolist()),
            n_steps=search.n_steps,
            converged=search.size < _SMALLEST_STEP,
            total_variation=bounds[name][0],
            standard_error=bounds[name][1],
        )
        for name, search in searches.items()
    }


# What one client reported for one target: (n_features + 1,), (n_features + 1, n_features + 1).
_Sums = tuple[FloatArray, FloatArray]  # pulls, Hessian


class _Search:
    """Newton's method for one target."""

    def __init__(self, target: str, shares: Weights, width: int) -> None:
        self.target, self.shares = target, shares
        self.parameters = self.following = np.zeros(width)
        self.n_steps, self.size = 0, math.inf
        self.goes_on = True
        self._rounds = 0

    def step(self, sums: Mapping[str, _Sums]) -> None:
        """Accept the parameters that these sums belong to, and compute the next ones."""
        sums = {name: sums[name] for name in self.shares if name in sums}
        if self._rounds == 0:
            self._begin(sums)
        elif len(sums) < len(self.shares):
            self.goes_on = False
        if not self.goes_on:
            return
        self.parameters, self.n_steps = self.following, self._rounds
        gradient, hessian = self._mixed(sums)
        step, self.size = _newton_step(
            gradient + self._penalty * self.parameters, hessian + np.diag(self._penalty)
        )
        self.goes_on = self.size >= _SMALLEST_STEP
        # Damped: if the step is longer than one, the quadratic approximates the loss badly.
        self.following = self.parameters + step / max(1.0, self.size)
        self._rounds += 1

    def _begin(self, sums: Mapping[str, _Sums]) -> None:
        """Take the target's mean from the first sums; leave out clients without sums.

        At θ = 0 a client's pulls are half its mean context.
        """
        if self.target not in sums or len(sums) < 2:
            self.goes_on, self.shares = False, {}
            return
        self.shares = _half_each(self.target, {name: self.shares[name] for name in sums})
        self._target_mean = 2 * sums[self.target][0]
        self._penalty = _penalty(self._mixed(sums)[1])

    def _mixed(self, sums: Mapping[str, _Sums]) -> tuple[FloatArray, FloatArray]:
        """Gradient and Hessian of the loss; the label is 1 for the target's rows, otherwise 0."""
        pulls, hessian = (
            weighted_sum(self.shares, {name: own[part] for name, own in sums.items()})
            for part in (0, 1)
        )
        return pulls - self.shares[self.target] * self._target_mean, hessian


def _half_each(target: str, weights: Mapping[str, float]) -> Weights:
    """Weights: half for the target; the others share the rest as in the mixture."""
    others = [name for name in sorted(weights) if name != target and weights[name] > 0]
    if target not in weights or not others:
        raise OptionError(f"target: expected '{target}' and another client with weight")
    rest = renormalised(dict(weights), others)
    return {target: 0.5, **{name: 0.5 * rest[name] for name in others}}


def _asked(searches: Iterable[_Search]) -> set[str]:
    """All clients that take part in any of these searches."""
    return set().union(*(search.shares for search in searches))


def _penalty(hessian: FloatArray) -> FloatArray:  # (n_features + 1,)
    """A ridge penalty on slopes, in units of each feature's variance; none on the intercept."""
    weight = max(float(hessian[-1, -1]), np.finfo(float).tiny)
    variances = np.diagonal(hessian) / weight - (hessian[-1] / weight) ** 2
    penalty: FloatArray = RIDGE * weight * np.maximum(variances, 0.0)
    penalty[-1] = 0.0
    return penalty


def _newton_step(gradient: FloatArray, hessian: FloatArray) -> tuple[FloatArray, float]:
    """The Newton step to the minimum of the quadratic, and its length in units of the loss."""
    diagonal = np.diagonal(hessian)
    scales = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    slope = gradient / scales
    step = -np.linalg.lstsq(hessian / np.outer(scales, scales), slope, rcond=1e-12)[0]
    return step / scales, math.sqrt(max(0.0, float(-slope @ step)))


# --- other rows ----------------------------------------------------------------------------------


def _bounds(
    conversation: Conversation, searches: Mapping[str, _Search]
) -> dict[str, tuple[float | None, float | None]]:
    """The bound on total variation from each classifier, on other rows, with one query."""
    found: dict[str, tuple[float | None, float | None]] = dict.fromkeys(searches, (None, None))
    begun = [search for search in searches.values() if search.shares]
    if begun:
        parameters = np.stack([search.parameters for search in begun])
        query = ClassifyContexts(split=judged_split(conversation.study), parameters=parameters)
        answers = conversation.each(query, _asked(begun))
        for place, search in enumerate(begun):
            found[search.target] = _bound(search, answers, place)
    return found


def _bound(
    search: _Search, answers: Mapping[str, ClassifierSums], place: int
) -> tuple[float | None, float | None]:
    """2·accuracy − 1 ≤ TV, and its error; both None if it is not known.

    This is P_target(classified as the target) − P_others(classified as the target).
    """
    there = {name: share for name, share in search.shares.items() if name in answers}
    if search.target not in there or len(there) < 2:
        return None, None
    signed = {
        name: 2 * share * (1 if name == search.target else -1)
        for name, share in _half_each(search.target, there).items()
    }
    bound = sum(signed[name] * answers[name].target_share[place] for name in sorted(signed))
    variance = sum(
        signed[name] ** 2 * answers[name].target_share_variance[place] for name in sorted(signed)
    )
    return float(bound), math.sqrt(variance)
