"""What a study that diagnoses found: where clients differ, and what joining is worth."""

from dataclasses import dataclass

from fedopl.base.estimates import Estimate
from fedopl.results.coalitions import Coalitions
from fedopl.results.mixture_search import SkewPath
from fedopl.results.shifts_between_clients import Classifier, ModelShift
from fedopl.theory.discrepancy import Discrepancy


@dataclass(frozen=True, eq=False, kw_only=True)
class MeasuredDiscrepancy:
    """How far a client's values lie from the mixture's, at two policies learned to show it.

    Learned on training rows and valued on held-out ones, so each number estimates what is true of
    one policy without bias; a supremum over the class is at least that.
    """

    client: str
    above: Estimate  # Q_c − Q_λ at a policy learned for that; < 0 where any policy is worth less
    below: Estimate  # Q_λ − Q_c at another
    gap: Estimate  # the sum of both, paired

    @property
    def shown(self) -> Discrepancy:
        """What the held-out rows show, and no more.

        Either side may be negative, where rewards are higher or lower whatever is done. Their sum
        never is, so it counts as nothing if it is estimated below 0.
        """
        above = self.above.value
        return Discrepancy(above=above, below=max(self.below.value, -above))

    @property
    def regret_gap(self) -> float:
        """A lower bound, but for noise, of how much R_c may exceed R_λ by shift."""
        return max(self.gap.value, 0.0)

    @property
    def largest(self) -> float:
        """A lower bound, but for noise, of sup_π |Q_c(π) − Q_λ(π)|."""
        return max(self.above.value, self.below.value, 0.0)

    @property
    def is_sure(self) -> bool:
        """Whether the 95 % interval of the gap leaves out 0."""
        return self.gap.interval()[0] > 0


@dataclass(frozen=True, kw_only=True)
class SecondMoments:
    """Mean squares of one client's scores on training rows, None where it told none.

    The envelope E[max_a Γ̂(a)²] is at least E[Γ̂(π(X))²] of any policy, and so at least V_c.
    """

    envelope: Estimate | None
    by_action: tuple[Estimate | None, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Diagnosis:
    """What clients told beyond a run. Everything is by client, and of those who told."""

    clients: tuple[str, ...]  # who told values of held-out rows
    discrepancies: dict[str, MeasuredDiscrepancy]  # from the mixture
    from_rows: dict[str, MeasuredDiscrepancy]  # from n̄, where every path begins
    paths: dict[str, SkewPath]  # from n̄ toward each client
    coalitions: Coalitions | None
    models: ModelShift | None
    classifiers: dict[str, Classifier]
    moments: dict[str, SecondMoments]
    unknown: dict[str, str]  # part → why it is not known
