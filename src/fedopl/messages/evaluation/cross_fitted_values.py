"""What a way of learning is worth: every fold valued by policies that were learned without it."""

from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies, most_in_query
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES, Values, fault_in_values
from fedopl.messages.message import Asked, RowSplit, message
from fedopl.study.study import Study


@message
class ValueAcrossFolds(
    AsksAboutPolicies[Values],
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

    def fault_in(self, answer: Values, study: Study, n_rows: int) -> str | None:
        """One mean for each candidate, and covariances to go with them, of rows that are there."""
        n_asked = self.n_policies // study.nuisances.folds
        return fault_in_values(answer, n_asked + N_OWN_CANDIDATES, RowSplit.TRAINING, study, n_rows)
