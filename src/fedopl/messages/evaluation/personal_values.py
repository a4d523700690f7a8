"""What policies are worth on a client's held-out rows, its own personal policy among them."""

from typing import Annotated

import numpy as np

from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES, Values, fault_in_values
from fedopl.messages.message import Array, Asked, Axis, RowSplit, message
from fedopl.policies.trees.nodes import from_array, leaves_of
from fedopl.study.study import Study

# Different ones that a study may ask: a run, and others after clients came or left.
MOST_PERSONAL = 3


@message
class AsksPersonal(AsksAboutPolicies[Values]):
    """Solve for your personal policy at home, and tell what it and these are worth.

    The value of the client's policy comes behind those asked about.
    """

    content = "means of values, and how precise they are; never the personal policy itself"
    for_kind = ""  # of policy that the study wants

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where clients have policies of their own, of this kind."""
        return study.personalises and study.policy.kind == cls.for_kind

    def is_plausible(self, study: Study) -> bool:
        """Numbers, and none that is too large."""
        return all(np.isfinite(one).all() for one in self.arrays()) and super().is_plausible(study)

    @classmethod
    def most(cls, _study: Study) -> int:
        """A few: what all others learned is another policy where one of them is lacking."""
        return MOST_PERSONAL

    def fault_in(self, answer: Values, study: Study, n_rows: int) -> str | None:
        """One mean for each candidate, and covariances to go with them, of rows that are there."""
        n_candidates = self.n_policies + 1 + N_OWN_CANDIDATES
        return fault_in_values(answer, n_candidates, RowSplit.EVALUATION, study, n_rows)


@message
class ValuePersonal(
    AsksPersonal,
    code=51,
    asked=Asked.EACH,
    permission="values",
):
    """Move what all others learned toward your rows, and tell what that and these are worth.

    Each client is sent what all others learned, how terms are standardised, and how likely each
    strength is by the others' rows.
    """

    title = "What policies, and the client's personal one, are worth"
    for_kind = "linear"

    others: Annotated[Array, (Axis.ACTIONS, Axis.LINEAR_NUMBERS)]  # θ₋c; with caution, doubts
    centre: Annotated[Array, (Axis.TERMS,)]
    scale: Annotated[Array, (Axis.TERMS,)]  # zero for terms that nobody uses
    likelihoods: Annotated[Array, (Axis.STRENGTHS,)]  # the mean of the others' logarithms

    def is_plausible(self, study: Study) -> bool:
        """Terms that can be standardised, and the intercept as it is."""
        if not super().is_plausible(study) or self.scale.min() < 0:
            return False
        unused, others = self.scale == 0, self.others[:, : len(self.scale)]
        ends = self.centre[-1] == 0 and self.scale[-1] == 1 and not others[:, unused].any()
        return bool(ends)


@message
class ValuePersonalTree(
    AsksPersonal,
    code=62,
    asked=Asked.EACH,
    permission="values",
):
    """Choose the action of every leaf of this tree for your rows, and tell what that is worth.

    Each client is sent the shared tree, what actions are worth in its leaves to all others, and how
    likely each strength is by the others' rows.
    """

    title = "What policies, and the shared tree with the client's own actions, are worth"
    for_kind = "tree"

    tree: Annotated[Array, (Axis.TREE_NODES, Axis.NODE_NUMBERS)]
    others: Annotated[Array, (Axis.ACTIONS, Axis.LEAVES)]
    likelihoods: Annotated[Array, (Axis.STRENGTHS,)]

    def is_plausible(self, study: Study) -> bool:
        """A tree of the study, and numbers for each of its leaves."""
        if not super().is_plausible(study):
            return False
        try:
            root = from_array(self.tree, study.columns, range(study.n_actions))
        except ValueError:
            return False
        return bool(self.others.shape[1] == len(leaves_of(root)))


@message
class ValuePersonalChoice(
    AsksPersonal,
    code=63,
    asked=Asked.EACH,
    permission="values",
):
    """Choose among these candidates for your rows, and tell what they and your choice are worth.

    Each client is sent what the candidates are worth to all others on the rows they are chosen by,
    and how likely each strength is by the others' rows.
    """

    title = "What candidates, and the client's own choice among them, are worth"
    for_kind = "finite"

    others: Annotated[Array, (Axis.CHOICES,)]
    likelihoods: Annotated[Array, (Axis.STRENGTHS,)]

    def is_plausible(self, study: Study) -> bool:
        """A number for each candidate."""
        return len(self.others) == self.n_policies > 0 and super().is_plausible(study)
