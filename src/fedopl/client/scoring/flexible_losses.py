"""Losses of the models behind scores, compared with flexible models fitted at the client."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.one_thread import ONE_OPENMP_THREAD
from fedopl.client.scoring.fit_numbers import FittedRows, richer_rest

# With fewer rows, trees show nothing. More rows cost time and show the same.
FEWEST_ROWS, MOST_ROWS = 300, 4_000
MOST_CLASSES = 10  # in each step a flexible classifier fits one tree per action
BASIS = "richer outcome"  # with hinges and products of two
SURELY_BETTER = 3.0  # standard errors of the difference, on the same rows
LEAST_CHANCE = 1e-3  # otherwise a few rows that are sure and wrong would dominate the log loss
OPTIONS = {
    "max_iter": 30,
    "learning_rate": 0.2,
    "max_leaf_nodes": 8,
    "l2_regularization": 1.0,
    "early_stopping": False,
    "random_state": 0,
}


@dataclass(frozen=True, kw_only=True)
class Losses:
    """Mean losses out of fold, on the same rows."""

    used: float  # of the models behind scores
    flexible: float
    difference_error: float  # standard error of used − flexible

    @property
    def left_over(self) -> float:
        """The share of the loss that the flexible model avoids."""
        return 1 - self.flexible / self.used if self.used else 0.0

    @property
    def is_beaten(self) -> bool:
        """Whether the flexible model is clearly better."""
        return self.used - self.flexible > SURELY_BETTER * self.difference_error


def flexible_losses(rows: FittedRows) -> dict[str, Losses]:
    """Squared losses of outcomes, and log losses of actions, where they can be computed."""
    rows = rows.spread(MOST_ROWS)
    if len(rows.actions) < FEWEST_ROWS:
        return {}
    found = dict(zip(("outcome", BASIS), _outcome(rows), strict=True))
    taken = rows.propensities[np.arange(len(rows.actions)), rows.actions]
    has_chances = bool(np.isfinite(rows.propensities).all() and (taken > 0).all())
    if has_chances and rows.propensities.shape[1] <= MOST_CLASSES:
        found["propensity"] = _propensity(rows, taken)
    return {name: losses for name, losses in found.items() if losses is not None}


def _outcome(rows: FittedRows) -> tuple[Losses | None, Losses | None]:
    """Losses of the models behind scores, and of these with hinges and products of two added."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    own = np.arange(len(rows.actions)), rows.actions
    taken = rows.means[own]
    known = np.isfinite(taken)
    features = np.column_stack([rows.contexts, rows.actions])
    model = HistGradientBoostingRegressor(**OPTIONS)
    predicted = _out_of_fold(model, features, rows.rewards, rows)
    bent = taken + richer_rest(rows)[own]
    used, richer, flexible = ((rows.rewards - one) ** 2 for one in (taken, bent, predicted))
    return (
        _losses(used[known], flexible[known], rows.weights[known]),
        _losses(richer[known], flexible[known], rows.weights[known]),
    )


def _propensity(rows: FittedRows, taken: FloatArray) -> Losses | None:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(**OPTIONS)
    predicted = _out_of_fold(model, rows.contexts, rows.actions, rows)
    used, flexible = (-np.log(np.maximum(one, LEAST_CHANCE)) for one in (taken, predicted))
    return _losses(used, flexible, rows.weights)


def _out_of_fold(
    model: Any, features: FloatArray, target: FloatArray | IntArray, rows: FittedRows
) -> FloatArray:  # (n_rows,)
    """Each row's outcome as predicted by models of other folds, or the propensity of its action."""
    from sklearn.base import clone

    said = np.zeros(len(features))
    for half in (0, 1):  # half of all folds each: two fits are enough
        own = rows.folds % 2 == half
        if len(np.unique(target[~own])) < 2:
            said[own] = target[~own][0] if target.dtype.kind == "f" else 1.0
            continue
        # For such small fits, threads wait for each other longer than the fit takes.
        with ONE_OPENMP_THREAD:
            fitted = clone(model).fit(features[~own], target[~own], rows.weights[~own])
        if not hasattr(fitted, "classes_"):
            said[own] = fitted.predict(features[own])
            continue
        chances = np.zeros((int(own.sum()), rows.propensities.shape[1]))
        chances[:, fitted.classes_.astype(int)] = fitted.predict_proba(features[own])
        said[own] = chances[np.arange(len(chances)), rows.actions[own]]
    return said


def _losses(used: FloatArray, flexible: FloatArray, weights: FloatArray) -> Losses | None:
    if not len(used):
        return None
    apart = used - flexible
    mean = float(np.average(apart, weights=weights))
    shares = weights / weights.sum()
    return Losses(
        used=float(np.average(used, weights=weights)),
        flexible=float(np.average(flexible, weights=weights)),
        difference_error=float(np.sqrt((shares**2 * (apart - mean) ** 2).sum())),
    )
