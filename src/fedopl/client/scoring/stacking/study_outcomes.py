"""A study's outcome models at one client: those of its rows alone, and those with everybody's."""

import numpy as np

from fedopl.base.arrays import BoolArray
from fedopl.base.computed_once import computed_once
from fedopl.client.rows.study_rows import StudyRows
from fedopl.client.scoring.outcome import (
    GivenModels,
    Outcomes,
    federated_outcomes,
    linear_outcomes,
    own_stacked_outcomes,
    pooled_parameters,
)
from fedopl.client.scoring.stacking.joined_regressors import JoinedRegressors, joined_fit
from fedopl.client.scoring.stacking.stacked_outcomes import StackedOutcomes
from fedopl.messages.message import RowSplit
from fedopl.study.study import Study


class StudyOutcomes:
    """Outcome models as the study defines them, for the rows of one client."""

    def __init__(self, rows: StudyRows, study: Study, regressor: object = None) -> None:
        self._rows, self._study, self._regressor = rows, study, regressor

    def by(self, given: GivenModels) -> Outcomes:
        """The federation's outcome models, and own models of actions that it has none for.

        Sums of an action that few rows took at every client are not released anywhere. A model that
        never leaves may rest on fewer rows.
        """
        stacked = None
        if self._study.stacked_sizes:
            sums = self._rows.fold_sums()
            stacked = self._stack.stacked(sums, self._enough, given.parameters)
            given = GivenModels(stacked.parameters)
        if given.lacking.any() and (lacking := given.lacking & self._enough).any():
            plan = self._study.nuisances
            sums, terms = self._rows.fold_sums(), self._rows.terms
            own = pooled_parameters(sums, plan.outcome_model, terms)
            lacking &= np.isfinite(own).all(axis=(0, 2))  # in all folds or in none
            given = GivenModels(np.where(lacking[:, None], own, given.parameters))
        found = federated_outcomes(given.linear, self._rows)
        return self._stack.with_regressors(found, stacked) if stacked else found

    @computed_once
    def own(self) -> Outcomes:
        """Outcome models of these rows alone."""
        sums = self._rows.fold_sums()
        if self._study.stacked_sizes:
            stacked = self._stack.stacked(sums, self._enough)
            found = own_stacked_outcomes(stacked.parameters, self._rows)
            return self._stack.with_regressors(found, stacked)
        held_out = self._rows.n_rows(RowSplit.EVALUATION) > 0
        plan = self._study.nuisances
        return linear_outcomes(sums, plan.outcome_model, self._rows, held_out=held_out)

    @property
    def _enough(self) -> BoolArray:  # (n_actions,)
        """The actions that enough training rows took for own models to be used."""
        return self._rows.split.corrected

    @computed_once
    def _stack(self) -> StackedOutcomes:
        """Own models, to be weighted alone or together with everybody's."""
        regressors, plan = None, self._study.nuisances
        if fit := joined_fit(plan.outcome, self._regressor, self._study.seed):
            regressors = JoinedRegressors(self._rows.whole, fit)
        return StackedOutcomes(self._study.stacked_sizes, self._rows, regressors)
