"""The findings of a study that diagnoses: where clients differ, who would learn with whom."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.estimates import Estimate
from fedopl.base.tables import html_fields
from fedopl.results.mixture_search import SkewPath
from fedopl.study.mixture import Weights

Members = frozenset[str]
Stability = Literal["surely", "surely not", "cannot tell"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Coalition:
    """Clients that learn together, and each member's gain over its local policy."""

    members: tuple[str, ...]
    weights: Weights  # n̄ among the members
    gains: dict[str, Estimate]  # by member, on its own rows that are valued
    level: float = 0.95  # of intervals, such that those of all coalitions hold together

    @property
    def leavers(self) -> tuple[str, ...]:
        """The members that are surely better off alone: their whole interval lies below 0."""
        return tuple(name for name in self.members if self._interval(name)[1] < 0)

    @property
    def stability(self) -> Stability:
        """Whether no member prefers to leave, as far as its rows can show.

        Surely, if each member's whole interval lies above 0, or its policies decide alike; surely
        not, if some member's lies below.
        """
        if self.leavers:
            return "surely not"
        return "surely" if all(self._gains(name) for name in self.members) else "cannot tell"

    def _gains(self, name: str) -> bool:
        low, high = self._interval(name)
        return low > 0 or low == high == 0

    def _interval(self, name: str) -> tuple[float, float]:
        return self.gains[name].interval(self.level)


@dataclass(frozen=True, eq=False, kw_only=True)
class Coalitions:
    """All coalitions of two clients or more; with many, only all together and all but one."""

    clients: tuple[str, ...]
    compared: tuple[Coalition, ...]  # the largest first
    worth_of_data: dict[str, Estimate]  # by client: what the grand coalition loses without it

    @cached_property
    def found(self) -> dict[Members, Coalition]:
        """The coalitions by their members."""
        return {frozenset(one.members): one for one in self.compared}

    @property
    def grand(self) -> Coalition:
        """The coalition of all clients."""
        return self.found[frozenset(self.clients)]

    @cached_property
    def stable(self) -> tuple[Coalition, ...]:
        """The coalitions that surely no member prefers to leave, the largest first."""
        return tuple(one for one in self.compared if one.stability == "surely")


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
