"""Cross-fitting: both nuisances of every row, from models that never saw the row's fold."""

from dataclasses import dataclass

from fedopl.base.arrays import BoolArray, FloatArray, frozen
from fedopl.base.errors import OptionError, refuse_to_leave
from fedopl.client.rows.folds import FoldArray, Folds, assign_folds
from fedopl.client.scoring.outcome import fit_outcomes
from fedopl.client.scoring.propensity import Propensities, fit_propensities
from fedopl.client.table.logged_data import LoggedData

PRESETS: dict[str, tuple[str, str]] = {
    # "we decided to estimate the μ with linear regression and e with logistic regression"
    "paper": ("ols", "logistic"),
}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Nuisances:
    """Outcome means μ̂ and propensities ê, out of fold, and how they came about.

    An action that nobody took in the rows a fold learns from gets no invented outcome there: its
    means are NaN in that fold, `supported` says so, and so does `notes`.
    """

    outcome_means: FloatArray  # (n_rows, n_actions), NaN where not supported
    propensities: FloatArray  # (n_rows, n_actions), NaN where only the logged action's is known
    folds: FoldArray  # (n_rows,)
    supported: BoolArray  # (n_folds, n_actions)
    outcome: str  # which outcome model was used
    propensity: str  # which propensity model was used
    notes: tuple[str, ...]  # what was chosen and why, in sentences

    __reduce_ex__ = refuse_to_leave

    @property
    def n_folds(self) -> int:
        """How many folds there are, K in the paper."""
        return len(self.supported)

    def __repr__(self) -> str:
        n_rows, n_actions = self.outcome_means.shape
        return (
            f"Nuisances({n_rows:,} rows, {n_actions:,} actions, {self.n_folds} folds, "
            f"outcome {self.outcome}, propensity {self.propensity})"
        )


def cross_fit(
    data: LoggedData,
    *,
    outcome: object = "ridge",
    propensity: object = "auto",
    folds: int = 5,
    seed: int = 0,
    preset: str | None = None,
) -> Nuisances:
    """Fit both nuisances in every fold on the rest of the rows (lines 1 to 5 of Algorithm 3).

    Args:
        data: one client's logged decisions.
        outcome: "ridge" (per action, penalty by generalised cross-validation), "ols",
            "shared-ridge" (one model over the blocks φ(x, a) = x_a), or a scikit-learn regressor,
            fitted for each action.
        propensity: "auto" (known if the data have them, else marginal or logistic, whichever has
            the lower cross-validated log loss), "known", "marginal", "logistic", or a scikit-learn
            classifier.
        folds: how many; fewer are used where an action has fewer rows than that.
        seed: the same seed gives each row the same fold, whatever the order of the rows.
        preset: "paper" stands for the paper's pair, outcome="ols" and propensity="logistic".

    """
    if not isinstance(data, LoggedData):
        raise OptionError(f"data: expected fedopl.LoggedData, came {type(data).__name__}")
    if preset is not None:
        outcome, propensity = _preset(preset, outcome, propensity)
    return fit_nuisances(data, assign_folds(data, folds, seed), outcome, propensity, seed)


def fit_nuisances(
    data: LoggedData, split: Folds, outcome: object, propensity: object, seed: int
) -> Nuisances:
    """Fit both nuisances, given the folds; propensities that are fitted already are used."""
    outcomes = fit_outcomes(data, split, outcome, seed)
    propensities = (
        propensity
        if isinstance(propensity, Propensities)
        else fit_propensities(data, split, propensity, seed)
    )
    notes = (
        split.reason,
        f"outcome: {outcomes.reason}",
        f"propensity: {propensities.reason}",
        *_support_notes(outcomes.supported, data.action_names),
    )
    return Nuisances(
        outcome_means=frozen(outcomes.means),
        propensities=frozen(propensities.values),
        folds=frozen(split.of_row),
        supported=frozen(outcomes.supported),
        outcome=outcomes.chosen,
        propensity=propensities.chosen,
        notes=notes,
    )


def _preset(name: str, outcome: object, propensity: object) -> tuple[object, object]:
    if name not in PRESETS:
        raise OptionError(f"preset: expected one of {', '.join(PRESETS)}, came '{name}'")
    if (outcome, propensity) != ("ridge", "auto"):
        raise OptionError("preset: it chooses outcome and propensity; give it or them, not both")
    return PRESETS[name]


def _support_notes(supported: BoolArray, names: tuple[str, ...]) -> list[str]:
    notes = []
    for action, missing in enumerate((~supported).sum(axis=0)):
        if missing == len(supported):
            notes.append(f"action '{names[action]}' was never taken: it has no outcome model")
        elif missing:
            notes.append(
                f"action '{names[action]}' has no outcome model in {missing} of {len(supported)} "
                "folds: too few rows took it"
            )
    return notes
