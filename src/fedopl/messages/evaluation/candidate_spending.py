"""What candidates gain and spend, on held-out rows."""

from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.evaluation.price_curve import AsksForCurve, PriceCurve
from fedopl.messages.message import Asked, message
from fedopl.study.study import Study


@message
class ValueSpending(
    AsksAboutPolicies[PriceCurve],
    AsksForCurve,
    code=59,
    asked=Asked.EACH,
    permission="values",
):
    """Ask what each candidate gains over one action for all, and spends."""

    title = "What candidates gain and spend"
    content = "means of gains and of costs of candidates, and how precise they are"

    against: int  # the action that gains are over

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where candidates have a budget."""
        return study.budget is not None and study.policy.compares_candidates

    def is_plausible(self, study: Study) -> bool:
        """All candidates of the study and no others, and an action that there is."""
        are_all = self.n_policies == len(study.candidates)
        return are_all and 0 <= self.against < study.n_actions and super().is_plausible(study)
