"""The findings of a study that diagnoses: where clients differ, and what joining is worth."""

from dataclasses import dataclass, field

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.estimates import Estimate
from fedopl.base.tables import html_fields
from fedopl.results.coalitions import Coalitions
from fedopl.results.mixture_search import SkewPath

# One number for every two clients, None if it was not reported.
PairTable = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class MeasuredDiscrepancy:
    """How far a client's values lie from the mixture's, at two policies learned to show it.

    The policies are valued on rows that they were not learned from. So each number is an unbiased
    estimate for one policy, or for one by fold; a supremum over the class is at least that.
    """

    client: str
    above: Estimate  # Q_c − Q_λ at a policy learned for that; < 0 where any policy is worth less
    below: Estimate  # Q_λ − Q_c at another
    gap: Estimate  # the sum of both, paired

    @property
    def regret_gap(self) -> float:
        """A lower bound, up to noise, of how much R_c may exceed R_λ because of shift.

        Either side may be negative, if rewards are higher or lower for all actions. Their sum never
        is, so an estimate below 0 counts as 0.
        """
        return max(self.gap.value, 0.0)

    @property
    def is_sure(self) -> bool:
        """Whether the 95 % interval of the gap excludes 0."""
        return self.gap.interval()[0] > 0


@dataclass(frozen=True, kw_only=True)
class SecondMoments:
    """Mean squares of one client's scores on training rows, None if not reported.

    The envelope E[max_a Γ̂(a)²] is at least E[Γ̂(π(X))²] of any policy, and so at least V_c.
    """

    envelope: Estimate | None
    by_action: tuple[Estimate | None, ...]


@dataclass(frozen=True, kw_only=True)
class Shift:
    """One part of Theorem 3 for every two clients: the first, at its contexts, from the second.

    Estimates are roughly unbiased, so those of small shifts may be negative. The shift of a client
    from itself is 0.
    """

    names: tuple[str, ...]
    estimates: PairTable
    standard_errors: PairTable

    def divergences(self, client: str) -> FloatArray:  # (n_clients,)
        """Divergences of one client from each, as bounds use them: at least 0, NaN if unknown."""
        found = np.array(self.estimates[self.names.index(client)], np.float64)
        return np.maximum(found, 0.0)


@dataclass(frozen=True, kw_only=True)
class ModelShift:
    """How clients' propensity and outcome models differ."""

    names: tuple[str, ...]
    propensity_kl: Shift
    propensity_tv: Shift
    outcome_kl: Shift  # over the actions that both clients have models of


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """Separates the target's contexts from the others'; the intercept is the last parameter."""

    parameters: tuple[float, ...]
    n_steps: int
    converged: bool
    total_variation: float | None  # at least; 2·accuracy − 1 on rows not fitted to, if reported
    standard_error: float | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Diagnosis:
    """Further answers of clients in a diagnosis; each part holds the clients that answered."""

    clients: tuple[str, ...]  # who reported values
    discrepancies: dict[str, MeasuredDiscrepancy] = field(default_factory=dict)  # from the mixture
    # From n̄, the start of every path.
    from_rows: dict[str, MeasuredDiscrepancy] = field(default_factory=dict)
    paths: dict[str, SkewPath] = field(default_factory=dict)  # from n̄ toward each client
    coalitions: Coalitions | None = None
    models: ModelShift | None = None
    classifiers: dict[str, Classifier] = field(default_factory=dict)
    moments: dict[str, SecondMoments] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)  # part → why it is not known

    def _repr_html_(self) -> str:
        return html_fields(vars(self))
