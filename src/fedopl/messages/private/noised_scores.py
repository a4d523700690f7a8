"""The scores of candidates on training rows, to choose one of them with differential privacy."""

from typing import Annotated

from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.message import Array, Asked, Axis, Message, message
from fedopl.messages.sensitivity import Moves, beyond_rows
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study


def _scores_move(study: Study) -> float:
    setting = PrivateSetting(study)
    return setting.bounds.contrast * setting.scores_move


@message
class NoisedScores(Message, code=99):
    """Σ Γ̂(π(x)) of each candidate less their mean, bounded row by row, in units, with noise."""

    sums: Annotated[Array, (Axis.CANDIDATES,), Moves(_scores_move, "scores"), PerClient]


@message
class SumCandidates(AsksAboutPolicies[NoisedScores], code=35, asked=Asked.EACH):
    """Ask for the sums of all candidates' scores on training rows, with these outcome models."""

    title = "What candidates score, with noise"
    content = "sums of scores of what each candidate decides, held against their mean"
    models: Annotated[Array, (Axis.ACTIONS, Axis.TERMS)]

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether one of several candidates is chosen with differential privacy."""
        return study.privacy is not None and study.policy.compares_candidates

    def arrays(self) -> list[Array]:
        """Policies as well: whether numbers overflow must not depend on rows."""
        return [held for _, held in self.named_arrays()]

    def is_plausible(self, study: Study) -> bool:
        """Check the number of candidates, for which the noise is set."""
        is_whole = self.n_policies == PrivateSetting(study).n_candidates
        return is_whole and super().is_plausible(study)

    def shapes(self, _study: Study) -> dict[str, tuple[int, ...]]:
        """One number for each candidate."""
        return {"sums": (self.n_policies,)}

    def fault_in(self, answer: NoisedScores, study: Study, n_rows: int) -> str | None:
        """Check for one sum per candidate, none larger than its rows and noise allow."""
        if len(answer.sums) != self.n_policies:
            return f"scored {len(answer.sums)} candidates of {self.n_policies}"
        return beyond_rows(answer, study, n_rows)
