"""Whether models fit one client's rows; shown to the client alone, nothing is released."""

import math
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.one_thread import ONE_OPENMP_THREAD
from fedopl.base.tables import text_table
from fedopl.client.scoring.cross_fit import Nuisances
from fedopl.client.scoring.fit_numbers import FitNumbers, FittedRows, fit_numbers, richer_rest
from fedopl.client.table.logged_data import LoggedData
from fedopl.policies.basis import Basis

MOST_CHECKED = 20_000  # rows
N_BINS = 10  # bins of propensities, each with as many rows
# How many standard errors something must be off to count: there are many numbers to look at.
SURELY_OFF = 4.5
LARGE_SHARE, LARGE_PULL = 0.06, 0.5
MUCH_LEFT = 0.05  # as a share of the loss: what hinges and products leave to a flexible model
WHAT_TO_DO = (
    "add the features that the logged decisions were based on (also their squares, steps or "
    "products), or state known propensities"
)

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


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The bin of propensities that differs most from how often the action was taken."""

    said: float
    was: float
    is_off: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class FitCheck:
    """The findings by action; print `table()`."""

    action_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    numbers: FitNumbers
    calibration: tuple[Calibration | None, ...]  # by action, None where propensities are not known
    losses: dict[str, Losses]
    basis: Basis | None = None  # the study's

    def table(self) -> str:
        """A table of the numbers, followed by the losses."""
        headers = [
            "action",
            "richer models move its value by",
            "worst imbalance",
            "of",
            "propensity said / was",
            "largest weight",
            "trimming moves it by",
        ]
        known = [a for a, rows in enumerate(self.numbers.of("effective_rows")) if rows > 0]
        lines = [text_table(headers, [self._cells(action) for action in known])]
        lines += [
            f"{name} models, out-of-fold loss: {loss.used:.4g}; a flexible one fitted for "
            f"comparison: {loss.flexible:.4g}"
            for name, loss in self.losses.items()
            if name != BASIS  # no scores use these
        ]
        return "\n".join(lines)

    def _cells(self, action: int) -> list[str]:
        imbalance, feature = self._worst(action)
        found = self.calibration[action]
        return [
            self.action_names[action],
            self._shift(action, "moved"),
            f"{imbalance:.2f}",
            feature,
            f"{found.said:.2f} / {found.was:.2f}" if found else "–",
            f"{self.numbers.of('largest_weights')[action]:.1%}",
            self._shift(action, "trimmed"),
        ]

    def _shift(self, action: int, name: str) -> str:
        value = self.numbers.of(name)[action]
        error = np.sqrt(self.numbers.of(f"{name}_variances")[action])
        if not error > 0:
            return f"{value:.3g}"
        digits = max(0, 1 - math.floor(math.log10(error)))  # two digits of the error
        return f"{value:.{digits}f} ± {error:.{digits}f}"

    def _worst(self, action: int) -> tuple[float, str]:
        """The largest imbalance of the rows that took an action, and of which feature."""
        apart = self.numbers.imbalance[:, action]
        row, column = np.unravel_index(int(np.abs(apart).argmax()), apart.shape)
        name = (*self.feature_names, "number of rows")[column]
        return float(apart[row, column]), name + (" squared" if row else "")

    @property
    def cautions(self) -> tuple[str, ...]:
        """What to worry about, as sentences; empty if there is nothing."""
        found = []
        for action, name in enumerate(self.action_names):
            if self.numbers.of("effective_rows")[action] > 0:
                found += self._cautions_about(action, name)
        beaten = [name for name in ("outcome", "propensity") if self._beaten(name)]
        # If one of the two is right, values are right.
        if beaten == ["outcome", "propensity"]:
            found.append(
                "a flexible model is surely better than the outcome models, and another is "
                "surely better than the propensity models: values rest on models that are "
                f"too simple; {WHAT_TO_DO}"
            )
        if self._beaten(BASIS) and self.losses[BASIS].left_over > MUCH_LEFT:
            found.append(
                "a flexible model of outcomes is surely better than hinges and products of two: "
                "effects change at thresholds, or depend on three features at once. "
                f"{_what_may_follow(self.basis)}"
            )
        return tuple(found)

    def _beaten(self, name: str) -> bool:
        """Whether the flexible model is clearly better."""
        loss = self.losses.get(name)
        return bool(loss and loss.used - loss.flexible > SURELY_BETTER * loss.difference_error)

    def _cautions_about(self, action: int, name: str) -> list[str]:
        found, numbers = [], self.numbers
        moved = numbers.of("moved")[action]
        if abs(moved) > SURELY_OFF * np.sqrt(numbers.of("moved_variances")[action]):
            found.append(
                f"richer outcome models move what '{name}' is worth by "
                f"{self._shift(action, 'moved')}, which is more than chance: the models are too "
                f"simple, and values are wrong by about as much; {WHAT_TO_DO}"
            )
        worst, feature = self._worst(action)
        if abs(worst) * np.sqrt(numbers.of("effective_rows")[action]) > SURELY_OFF:
            found.append(
                f"those who got '{name}', weighted by 1/propensity, differ from everybody in "
                f"{feature} by {abs(worst):.2f} standard deviations: propensities do not balance"
            )
        calibration = self.calibration[action]
        if calibration and calibration.is_off:
            found.append(
                f"where '{name}' had a propensity of {calibration.said:.2f} on average, it was "
                f"taken in {calibration.was:.2f} of rows: propensities are not calibrated"
            )
        if (share := numbers.of("largest_weights")[action]) > LARGE_SHARE:
            found.append(
                f"one row has {share:.0%} of all weight behind '{name}'; trimming weights moves "
                f"its value by {self._shift(action, 'trimmed')}"
            )
        if (pull := numbers.of("largest_influences")[action]) > LARGE_PULL:
            found.append(
                f"without a single row, what '{name}' is worth moves by {pull:.2f} of its "
                "standard error"
            )
        return found


def _what_may_follow(basis: Basis | None) -> str:
    """What may describe effects that hinges and products of two do not; what of it there is."""
    usual = {"screened_thresholds": 6, "waves": 200}
    has = [name for name in usual if basis and getattr(basis, name)]
    lacks = [f"{name} = {many}" for name, many in usual.items() if name not in has]
    tried = [f"{' or '.join(lacks)} in [basis]"] if lacks else []
    advice = " or ".join([*tried, 'a policy of kind = "tree" or "neural"'])
    if not has:
        return f"What may describe them: {advice}"
    own = " and ".join(has)
    return (
        f"The study's {own} may describe them, but the comparison leaves these out. What may, "
        f"besides: {advice}"
    )


def check_fit(data: LoggedData, nuisances: Nuisances, basis: Basis | None = None) -> FitCheck:
    """Check the fit on these rows, all of which models were cross-fitted on."""
    rows = FittedRows.of(data, nuisances, slice(None))
    return FitCheck(
        action_names=data.action_names,
        feature_names=data.feature_names,
        numbers=fit_numbers(rows.spread(MOST_CHECKED)),
        calibration=tuple(_calibration(rows, action) for action in range(data.n_actions)),
        losses=flexible_losses(rows),
        basis=basis,
    )


def _calibration(rows: FittedRows, action: int) -> Calibration | None:
    """The bin of propensities of the action that is most wrong."""
    said, took = rows.propensities[:, action], rows.actions == action
    if not np.isfinite(said).all() or not took.any():
        return None
    # Rows with the same propensity are in one bin, because they may be sorted by their actions.
    places = np.arange(1, N_BINS) * len(said) // N_BINS
    bins = np.searchsorted(np.sort(said)[places], said, side="right")
    found = []
    for part in (np.flatnonzero(bins == place) for place in np.unique(bins)):
        expected, was = float(said[part].mean()), float(took[part].mean())
        error = np.sqrt(max(expected * (1 - expected), 1e-4) / len(part))
        found.append((abs(was - expected) / error, expected, was))
    off, expected, was = max(found, key=itemgetter(0))
    return Calibration(said=expected, was=was, is_off=bool(off > SURELY_OFF))


# --- losses ---------------------------------------------------------------------------------------


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
