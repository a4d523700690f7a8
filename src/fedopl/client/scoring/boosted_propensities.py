"""Propensities by boosted trees, for logging policies that no logistic model fits.

The number of rounds is chosen on rows kept back from those that a fold learns from, or from some of
them if they are many. The model of the fold then has that number of rounds, fitted to all of these
rows. With no rounds it is the share of each action.
"""

from itertools import islice
from typing import Any

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.one_thread import ONE_OPENMP_THREAD
from fedopl.base.seeds import generator_for
from fedopl.client.rows.chunks import Chunk
from fedopl.client.rows.folds import assign_folds_and_hold_out
from fedopl.client.scoring.sklearn_models import ROUNDS, STILL_IMPROVING, TREE_OPTIONS, step_for
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
