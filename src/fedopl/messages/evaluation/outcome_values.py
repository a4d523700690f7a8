"""What policies are worth by a further outcome, which a guardrail is about."""

from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES, Values, fault_in_values
from fedopl.messages.message import Asked, RowSplit, message
from fedopl.study.guardrail import guarded_columns
from fedopl.study.study import Study


@message
class ValueOutcome(
    AsksAboutPolicies[Values],
    code=41,
    asked=Asked.EACH,
    permission="values",
):
    """Ask what these policies are worth on held-out rows, by one of the guardrails' columns."""

    title = "What policies do to a guardrail's outcome"
    content = "means of a further outcome by policy, and how precise they are"

    outcome: int  # which of the columns that guardrails are about

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where there are guardrails."""
        return bool(study.guardrails)

    @classmethod
    def most(cls, study: Study) -> int:
        """One for each column."""
        return len(guarded_columns(study))

    def is_plausible(self, study: Study) -> bool:
        """One of the columns there are, and no more policies than the study can need."""
        return 0 <= self.outcome < len(guarded_columns(study)) and super().is_plausible(study)

    def fault_in(self, answer: Values, study: Study, n_rows: int) -> str | None:
        """One mean for each candidate, and covariances to go with them, of rows that are there."""
        of_no_range = study.model_copy(update={"declared": type(study.declared)()})
        n_candidates = self.n_policies + N_OWN_CANDIDATES
        return fault_in_values(answer, n_candidates, RowSplit.EVALUATION, of_no_range, n_rows)
