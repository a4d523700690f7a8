"""What policies are worth on a client's held-out rows, its own personal policy among them."""

from typing import Annotated

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies, most_in_query
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES, Values, fault_in_values
from fedopl.messages.message import Array, Asked, Axis, RowSplit, message
from fedopl.study.study import Study

# Different ones that a study may ask: a run, and others after clients came or left.
MOST_PERSONAL = 3


@message
class ValuePersonal(
    AsksAboutPolicies[Values],
    code=51,
    asked=Asked.EACH,
    budget="value_queries",
    lifetime="value_policies",
    permission="values",
):
    """Solve for your personal policy at home, and tell what it and these are worth.

    Each client is sent what all others learned, how terms are standardised, and how likely each
    strength is by the others' rows. The value of its policy comes behind those asked about.
    """

    title = "What policies, and the client's personal one, are worth"
    content = "means of values, and how precise they are; never the personal policy itself"

    others: Annotated[Array, (Axis.ACTIONS, Axis.TERMS)]  # θ₋c
    centre: Annotated[Array, (Axis.TERMS,)]
    scale: Annotated[Array, (Axis.TERMS,)]  # zero for terms that nobody uses
    likelihoods: Annotated[Array, (Axis.STRENGTHS,)]  # the mean of the others' logarithms

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where clients have policies of their own."""
        return study.personalises

    @classmethod
    def most(cls, _study: Study) -> int:
        """A few: what all others learned is another policy where one of them is lacking."""
        return MOST_PERSONAL

    @property
    def amount(self) -> int:
        """A policy each, and the personal one."""
        return self.n_policies + 1

    @classmethod
    def most_amount(cls, study: Study) -> float:
        """What a few queries may ask about, each with a personal policy."""
        return MOST_PERSONAL * (most_in_query(study) + 1)

    def is_plausible(self, study: Study) -> bool:
        """Terms that can be standardised, and the intercept as it is."""
        numbers: list[FloatArray] = [self.others, self.centre, self.scale, self.likelihoods]
        if not all(np.isfinite(one).all() for one in numbers) or self.scale.min() < 0:
            return False
        unused = self.scale == 0
        ends = self.centre[-1] == 0 and self.scale[-1] == 1 and not self.others[:, unused].any()
        return bool(ends) and super().is_plausible(study)

    def fault_in(self, answer: Values, study: Study, n_rows: int) -> str | None:
        """One mean for each candidate, and covariances to go with them, of rows that are there."""
        n_candidates = self.n_policies + 1 + N_OWN_CANDIDATES
        return fault_in_values(answer, n_candidates, RowSplit.EVALUATION, study, n_rows)
