"""What a way of learning is worth: every fold valued by policies that were learned without it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Self

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies, most_in_query
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES, Values, fault_in_values
from fedopl.messages.message import Array, Asked, Axis, RowSplit, message
from fedopl.study.study import Study


@message
class ValuesAcrossFolds(Values, code=133):
    """The same of candidates that differ by fold, and by what factor variances are larger for it.

    On the diagonal for the value of each candidate, elsewhere for the difference of two.
    """

    wider: Annotated[Array, (Axis.CANDIDATES, Axis.CANDIDATES), PerClient]

    def picked(self, places: Sequence[int]) -> Self:
        """The values of the candidates at these places."""
        return replace(super().picked(places), wider=self.wider[np.ix_(places, places)])

    def variance(self, contrast: FloatArray) -> float:
        """The variance of a contrast; of several candidates, with the largest factor of two."""
        own = np.flatnonzero(contrast)
        wider = self.wider[np.ix_(own, own)].max(initial=1.0)
        return float(wider) * super().variance(contrast)


@message
class ValueAcrossFolds(
    AsksAboutPolicies[ValuesAcrossFolds],
    code=21,
    asked=Asked.EACH,
    permission="values",
):
    """Ask what candidates are worth on all rows, of which each fold has its own version of them.

    A candidate comes as one policy for each fold, in the order of folds, side by side.
    """

    title = "What the way of learning is worth"
    content = "means of values over all rows, and how precise they are"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where no rows are held out, and values are claimed all the same."""
        return study.evaluation.is_cross_fitted

    def is_plausible(self, study: Study) -> bool:
        """Whole candidates, and no more than the study can need."""
        folds = study.nuisances.folds
        few = self.n_policies <= folds * most_in_query(study)
        return few and self.n_policies % folds == 0

    def fault_in(self, answer: ValuesAcrossFolds, study: Study, n_rows: int) -> str | None:
        """One mean for each candidate, and covariances to go with them, of rows that are there."""
        n_asked = self.n_policies // study.nuisances.folds
        if answer.wider.shape != answer.covariances.shape or (answer.wider < 1).any():
            return "folds that decide differently make no variance smaller"
        return fault_in_values(answer, n_asked + N_OWN_CANDIDATES, RowSplit.TRAINING, study, n_rows)
