"""Models of propensities: boosted trees, and logistic models of many rows in one Newton step.

Boosted trees are for logging policies that no logistic model fits. The number of rounds is chosen
on rows kept back from those that a fold learns from, or from some of them if they are many. The
model of the fold then has that number of rounds, fitted to all of these rows. With no rounds it is
the share of each action.

Logistic models are fitted to some of many rows, then moved by one Newton step on all. One step from
a start that is close to the solution is as good as the solution itself: what is left is the square
of how far off the start was (Le Cam 1956). The step needs the gradient of all rows, which is one
pass, and second derivatives, for which some rows are enough. Two starts are fitted, each to rows of
about half of the folds. A fold's model starts from the one that has seen no row of it, and its step
adds up the gradients of all other folds. So it is a model of all other folds.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.one_thread import ONE_OPENMP_THREAD
from fedopl.base.seeds import generator_for
from fedopl.client.disk.disk_array import slices
from fedopl.client.rows.chunks import Chunk
from fedopl.client.rows.folds import assign_folds_and_hold_out
from fedopl.client.scoring.sklearn_models import (
    ROUNDS,
    STILL_IMPROVING,
    TREE_OPTIONS,
    Fit,
    fitted,
    step_for,
)
from fedopl.client.table.logged_data import LoggedData

KEPT_ONE_IN = 5  # rows, or groups of them, are kept back
# Rounds are chosen on no more rows than this. A model of c times as many has c to this power times
# as many rounds, about as many as were best for logging policies of several shapes.
MOST_CHOSEN_ON, ROUNDS_GROW = 50_000, 1 / 3


class Booster:
    """Boosted models of the actions, each fitted to some of these rows."""

    def __init__(self, chunk: Chunk, seed: int) -> None:
        self._data = chunk.data
        self._kept = _kept_back(chunk, seed)
        self._models: dict[bytes, Any] = {}

    def fitted(self, rows: BoolArray, _part: int) -> Any:
        """A model of these rows with `classes_` and `predict_proba`, fitted once."""
        which = rows.tobytes()
        if which not in self._models:
            self._models[which] = self._fitted_anew(rows)
        return self._models[which]

    def _fitted_anew(self, rows: BoolArray) -> Any:
        data = self._data
        with ONE_OPENMP_THREAD:
            some = _thinned(rows)
            rounds = _best_rounds(data, some, self._kept)
            if not rounds:
                return _Shares(data, rows)
            rounds = round(rounds * (rows.sum() / some.sum()) ** ROUNDS_GROW)
            return _classifier(rows, max_iter=rounds).fit(*_given(data, rows))


def _kept_back(chunk: Chunk, seed: int) -> BoolArray:  # (n_rows,)
    """One in five training rows: balanced by action, in whole groups, whatever the row order."""
    # These keys differ from those of the folds, so that every fold has some of these rows.
    own = int(generator_for(seed, purpose="rows kept back").integers(2**63))
    training = np.flatnonzero(~chunk.folds.held_out)
    dealt = assign_folds_and_hold_out(chunk.data.taken(training), KEPT_ONE_IN, 0.0, own)
    kept = np.zeros(chunk.data.n_rows, np.bool_)
    kept[training] = dealt.of_row == 0
    return kept


def _thinned(rows: BoolArray) -> BoolArray:  # (n_rows,)
    """These rows, or as few of them as rounds are chosen on, evenly spread."""
    step = -(-int(rows.sum()) // MOST_CHOSEN_ON)
    if step <= 1:
        return rows
    some = np.zeros_like(rows)
    some[np.flatnonzero(rows)[::step]] = True
    return some


def _best_rounds(data: LoggedData, rows: BoolArray, kept_back: BoolArray) -> int:
    """The number of rounds that predicts the rows kept back best; 0 if no round helps."""
    fitting, kept = rows & ~kept_back, rows & kept_back
    if len(np.unique(data.actions[fitting])) < 2 or not kept.any():
        return 0
    contexts, actions = data.contexts[kept], data.actions[kept]
    weights, shares = data.weights_of(kept), _Shares(data, fitting)
    model = _classifier(rows, warm_start=True)
    best = (_loss(shares.predict_proba(contexts), shares.classes_, actions, weights), 0)
    tried = 0
    for most in ROUNDS:
        model.set_params(max_iter=most).fit(*_given(data, fitting))
        later = islice(model.staged_predict_proba(contexts), tried, None)
        for n_rounds, chances in enumerate(later, tried + 1):
            best = min(best, (_loss(chances, model.classes_, actions, weights), n_rounds))
        if best[1] <= STILL_IMPROVING * most:
            break
        tried = most
    return best[1]


def _loss(chances: FloatArray, classes: IntArray, actions: IntArray, weights: FloatArray) -> float:
    """The mean of −log ê(X; A) over the rows whose action the model has seen."""
    places = np.minimum(np.searchsorted(classes, actions), len(classes) - 1)
    seen = classes[places] == actions
    if not seen.any():
        return 0.0
    logged = chances[seen, places[seen]]
    return float(np.average(-np.log(np.maximum(logged, 1e-300)), weights=weights[seen]))


class _Shares:
    """The prediction without any round of boosting: the share of each action."""

    def __init__(self, data: LoggedData, rows: BoolArray) -> None:
        weight = np.bincount(data.actions[rows], data.weights_of(rows), data.n_actions)
        self.classes_: IntArray = np.unique(data.actions[rows])
        self._shares = weight[self.classes_] / weight.sum()

    def predict_proba(self, contexts: FloatArray) -> FloatArray:  # (n_rows, n_classes)
        return np.tile(self._shares, (len(contexts), 1))


def _given(data: LoggedData, rows: BoolArray) -> tuple[Any, ...]:
    """The arguments of a fit: contexts, actions and weights."""
    weights = None if data.weights is None else data.weights[rows]
    return data.contexts[rows], data.actions[rows], weights


def _classifier(rows: BoolArray, **options: object) -> Any:
    """A classifier to fit to these rows, or to those of them that are not kept back."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    step = step_for(int(rows.sum()))
    return HistGradientBoostingClassifier(learning_rate=step, **TREE_OPTIONS, **options)


_ROWS_AT_ONCE = 4096  # their propensities stay in a core's cache
# With fewer rows of an action for each number that is fitted, or more numbers, no step is taken.
ROWS_PER_NUMBER, MOST_NUMBERS = 20, 600


@dataclass(frozen=True, eq=False, kw_only=True)
class SoftmaxModel:
    """The probabilities of actions, which are proportional to exp(xᵀβ_a + β_a0)."""

    slopes: FloatArray  # (n_actions, n_features)
    intercepts: FloatArray  # (n_actions,)

    @property
    def classes_(self) -> IntArray:  # (n_actions,)
        """All actions."""
        return np.arange(len(self.intercepts))

    def predict_proba(self, contexts: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        """The probability of each action."""
        found = np.empty((len(contexts), len(self.intercepts)))
        for rows in slices(len(contexts), _ROWS_AT_ONCE):
            found[rows] = self.transposed(contexts[rows]).T
        return found

    def transposed(self, contexts: FloatArray) -> FloatArray:  # (n_actions, n_rows)
        """The same, with the rows of each action together."""
        chances = self.slopes @ contexts.T
        chances += self.intercepts[:, None]
        chances -= chances.max(axis=0)
        np.exp(chances, out=chances)
        chances /= chances.sum(axis=0)
        return chances


def one_step_models(sample: Chunk, whole: Chunk, classifier: Any) -> list[SoftmaxModel] | None:
    """The model of each part, folds and then held-out rows; None if the sample is too small.

    The whole is sorted by fold. The classifier standardises features, and penalises the squares of
    their slopes by one half.
    """
    data, n_folds, n_parts = sample.data, whole.folds.n_folds, whole.folds.n_parts
    # Folds before the middle, and folds after it.
    is_late = sample.folds.of_row >= n_folds // 2
    sides = [~is_late, is_late & ~sample.folds.held_out]
    width = data.n_features + 1
    fewest = min(np.bincount(data.actions[own], minlength=data.n_actions).min() for own in sides)
    if fewest < ROWS_PER_NUMBER * width or width * data.n_actions > MOST_NUMBERS:
        return None
    weight, models = whole.weight_by_fold_action[:-1].sum(axis=1), dict[int, SoftmaxModel]()
    for side, own in enumerate(sides):
        which = Fit(f"propensity model, start {side + 1}", [0, side])
        start = _Start.of(fitted(classifier, data, own, data.actions, which))
        weights = data.weights_of(own)
        curvature = start.curvature(data.contexts[own], weights) / weights.sum()
        gradients = start.gradients(whole)
        unseen = range(n_folds // 2, n_parts) if side == 0 else range(n_folds // 2)
        for part in unseen:
            others = np.arange(n_folds) != part
            total = gradients[others].sum(axis=0)
            models[part] = start.moved(total, curvature * weight[others].sum())
    return [models[part] for part in range(n_parts)]


@dataclass(frozen=True, eq=False, kw_only=True)
class _Start:
    """A fitted model, in numbers of standardised features."""

    middle: FloatArray  # (n_features,)
    scale: FloatArray  # (n_features,)
    numbers: FloatArray  # (n_actions, n_features + 1)  slopes, then the intercept

    @classmethod
    def of(cls, pipeline: Any) -> "_Start":
        scaler, regression = pipeline[0], pipeline[-1]
        numbers = np.column_stack([regression.coef_, regression.intercept_])
        if len(numbers) == 1:  # of two actions, only the second has numbers
            numbers = np.vstack([np.zeros_like(numbers), numbers])
        return cls(middle=scaler.mean_, scale=scaler.scale_, numbers=numbers)

    @property
    def model(self) -> SoftmaxModel:
        """The same for features as they are."""
        slopes = self.numbers[:, :-1] / self.scale
        return SoftmaxModel(slopes=slopes, intercepts=self.numbers[:, -1] - slopes @ self.middle)

    def gradients(self, whole: Chunk) -> FloatArray:  # (n_folds, n_actions, n_features + 1)
        """Sums of w·(ê − 1{A})·(z, 1) over the rows of each fold."""
        model, data = self.model, whole.data
        found = np.zeros((whole.folds.n_folds, *self.numbers.shape))
        for own, fold in zip(found, whole.fold_slices, strict=True):
            for start in range(fold.start, fold.stop, _ROWS_AT_ONCE):
                rows = slice(start, min(start + _ROWS_AT_ONCE, fold.stop))
                contexts, actions = data.contexts[rows], data.actions[rows]
                off = model.transposed(contexts)
                off[actions, np.arange(len(actions))] -= 1
                if data.weights is not None:
                    off *= data.weights[rows]
                own[:, :-1] += off @ contexts
                own[:, -1] += off.sum(axis=1)
        found[..., :-1] -= found[..., -1:] * self.middle
        found[..., :-1] /= self.scale
        return found

    def curvature(self, contexts: FloatArray, weights: FloatArray) -> FloatArray:
        """Second derivatives, (n_actions, n_features + 1) twice, without those of the penalty."""
        n_actions, width = self.numbers.shape
        found = np.zeros((n_actions, width, n_actions, width))
        model, last = self.model, n_actions - 1
        for rows in slices(len(contexts), _ROWS_AT_ONCE):
            chances = model.transposed(contexts[rows])
            columns = np.ones((chances.shape[1], width))
            columns[:, :-1] = (contexts[rows] - self.middle) / self.scale
            for a in range(last):
                for b in range(a + 1):
                    both = weights[rows] * chances[a] * ((a == b) - chances[b])
                    found[a, :, b] += (columns * both[:, None]).T @ columns
        for a in range(last):
            for b in range(a):
                found[b, :, a] = found[a, :, b]
        # Probabilities add up to one, so derivatives add up to zero.
        found[last] = -found[:last].sum(axis=0)
        found[:, :, last] = -found[:, :, :last].sum(axis=2)
        return found

    def moved(self, gradient: FloatArray, curvature: FloatArray) -> SoftmaxModel:
        """The model after one Newton step."""
        n_actions, width = self.numbers.shape
        free = slice(1 if n_actions == 2 else 0, None)  # the actions whose numbers are fitted
        numbers, slope = self.numbers[free], np.append(np.ones(width - 1), 0.0)
        pull = gradient[free] + numbers * slope
        bend = curvature[free, :, free].reshape(pull.size, pull.size)
        bend = bend + np.diag(np.tile(slope, len(numbers)))
        # Of more than two actions, adding one number to all intercepts changes nothing.
        step = np.linalg.lstsq(bend, pull.ravel(), rcond=1e-12)[0].reshape(pull.shape)
        moved = self.numbers.copy()
        moved[free] -= step
        return _Start(middle=self.middle, scale=self.scale, numbers=moved).model
