"""Cross-fitting: both nuisances of each row, from models that never saw the row's fold.

`cross_fit` is for rows that are one chunk. A study fits `NuisanceModels` to the sums over all its
chunks, perhaps to those of all clients. It then predicts chunk after chunk with them.
"""

from dataclasses import dataclass, replace

from fedopl.base.arrays import BoolArray, FloatArray, frozen
from fedopl.base.errors import OptionError, refuse_to_leave
from fedopl.client.rows.chunks import Chunk
from fedopl.client.rows.folds import FoldArray, assign_folds
from fedopl.client.scoring.outcome import Outcomes, fit_outcomes
from fedopl.client.scoring.propensity import Propensities, fit_propensities
from fedopl.client.table.logged_data import LoggedData

PRESETS: dict[str, tuple[str, str]] = {
    # "we decided to estimate the μ with linear regression and e with logistic regression"
    "paper": ("ols", "logistic")
}


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Nuisances:
    """Outcome means μ̂ and propensities ê, out of fold, and how they were fitted.

    If no row that a fold learns from took an action, the action has no outcome model there: its
    means are NaN in that fold, and `supported` and `notes` say so.
    """

    outcome_means: FloatArray  # (n_rows, n_actions), NaN where not supported
    propensities: FloatArray  # (n_rows, n_actions), NaN where only the logged action's is known
    folds: FoldArray  # (n_rows,)
    supported: BoolArray  # (n_folds, n_actions)
    outcome: str  # which outcome model was used
    propensity: str  # which propensity model was used
    notes: tuple[str, ...]  # what was chosen and why, as sentences

    __reduce_ex__ = refuse_to_leave

    @property
    def n_folds(self) -> int:
        """The number of folds, K in the paper."""
        return len(self.supported)

    def __repr__(self) -> str:
        n_rows, n_actions = self.outcome_means.shape
        return (
            f"Nuisances({n_rows:,} rows, {n_actions:,} actions, {self.n_folds} folds, "
            f"outcome {self.outcome}, propensity {self.propensity})"
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class NuisanceModels:
    """Both fitted nuisances, which predict any chunk of the client's rows out of fold."""

    outcomes: Outcomes
    propensities: Propensities

    def of(self, chunk: Chunk) -> Nuisances:
        """Both nuisances of these rows, from models that never saw their fold; without notes."""
        outcomes, propensities = self.outcomes, self.propensities
        return Nuisances(
            outcome_means=frozen(outcomes.of(chunk)),
            propensities=frozen(propensities.of(chunk)),
            folds=frozen(chunk.folds.of_row),
            supported=frozen(outcomes.supported),
            outcome=outcomes.chosen,
            propensity=propensities.chosen,
            notes=(),
        )

    def notes(self, chunk: Chunk) -> tuple[str, ...]:
        """What was chosen for these rows and why, as sentences."""
        return (
            chunk.folds.reason,
            f"outcome: {self.outcomes.reason}",
            f"propensity: {self.propensities.reason}",
            *_support_notes(self.outcomes.supported, chunk.data.action_names),
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
        outcome: "ridge" (per action, penalty by generalised cross-validation), "ols", "boosting"
            (boosted trees, combined with ridge by how they predict other folds), "block-ridge" and
            "block-ols" (the same on each action's own block φ(x, a) = x_a), "shared-ridge" (one
            model over these blocks), or a scikit-learn regressor, fitted for each action.
        propensity: "auto" (known if the data have them, else marginal, logistic or, if it is
            better by more than a standard error, boosting, by cross-validated log loss), "known",
            "marginal", "logistic", "boosting", or a scikit-learn classifier.
        folds: the number of folds; fewer are used if an action has fewer rows than that.
        seed: the same seed gives each row the same fold, whatever the order of the rows.
        preset: "paper" means the paper's pair, outcome="ols" and propensity="logistic".

    """
    if not isinstance(data, LoggedData):
        raise OptionError(f"data: expected fedopl.LoggedData, came {type(data).__name__}")
    if preset is not None:
        outcome, propensity = _preset(preset, outcome, propensity)
    chunk = Chunk(data=data, folds=assign_folds(data, folds, seed))
    return fit_nuisances(chunk, outcome, propensity, seed)


def fit_nuisances(chunk: Chunk, outcome: object, propensity: object, seed: int) -> Nuisances:
    """Cross-fit both nuisances on rows that are one chunk, and predict these rows."""
    models = NuisanceModels(
        outcomes=fit_outcomes(chunk, outcome, seed),
        propensities=fit_propensities(chunk, propensity, seed),
    )
    return replace(models.of(chunk), notes=models.notes(chunk))


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
