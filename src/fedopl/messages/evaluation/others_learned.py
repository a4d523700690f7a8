"""What all others learned, from which a client makes its personal policy, valued beside others."""

from dataclasses import field
from typing import Annotated, Any

import numpy as np

from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.message import AnswerType, Array, Axis, Query, message
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.trees.nodes import NODE_NUMBERS, Node, from_array, leaves_of
from fedopl.study.study import Study

# Different ones that a study may send: a run's, and others after clients came or left.
MOST_PERSONAL = 3


@message
class CarriesOthers(Query[AnswerType]):
    """For a client with a personal policy, what all others learned; nothing for other clients.

    Of a linear policy, θ₋c and, with caution, doubts, and how terms are standardised; of a tree,
    the tree itself, and what actions are worth in its leaves; of candidates, what these are worth.
    And how likely each strength is by the others' rows. All of this comes in versions: if values
    are cross-fitted, without each fold, and at last of all rows.
    """

    others: Annotated[Array, (Axis.OTHERS_VERSIONS, Axis.OTHERS, Axis.OTHERS_NUMBERS)] = field(
        default_factory=lambda: np.empty((0, 0, 0))
    )
    centre: Annotated[Array, (Axis.OTHERS_VERSIONS, Axis.OTHERS_TERMS)] = field(
        default_factory=lambda: np.empty((0, 0))
    )
    # Zero for terms that nobody uses.
    scale: Annotated[Array, (Axis.OTHERS_VERSIONS, Axis.OTHERS_TERMS)] = field(
        default_factory=lambda: np.empty((0, 0))
    )
    # Trees, whose leaves are in the order of the others' numbers; fewer leaves leave zeros behind.
    shared: Annotated[Array, (Axis.OTHERS_VERSIONS, Axis.OTHERS_NODES, Axis.NODE_NUMBERS)] = field(
        default_factory=lambda: np.empty((0, 0, NODE_NUMBERS))
    )
    # The mean of the others' logarithms.
    likelihoods: Annotated[Array, (Axis.OTHERS_VERSIONS, Axis.STRENGTHS)] = field(
        default_factory=lambda: np.empty((0, 0))
    )

    @property
    def is_personal(self) -> bool:
        """Whether the client is to make its personal policy."""
        return len(self.likelihoods) > 0

    def fits(self, study: Study, asked: AsksAboutPolicies[Any]) -> bool:
        """Whether what comes along, if anything, is of the kind of policy that the study wants."""
        if not self.is_personal:
            return not any(own.size for own in (self.others, self.centre, self.scale, self.shared))
        n_versions = len(study.left_out)
        if not study.personalises or len(self.others) != n_versions:
            return False
        if study.policy.kind == "linear":
            shape = (n_versions, *LinearPolicy.numbers_shape(study))
            return self.others.shape == shape and self._can_be_standardised(study.n_terms + 1)
        if study.policy.kind == "finite":
            return self.others.shape == (n_versions, 1, asked.n_policies)
        try:
            n_leaves = [len(leaves_of(root)) for root in self.roots(study)]
        except (ValueError, IndexError):
            return False
        shape = (n_versions, study.n_actions, max(n_leaves, default=0))
        return self.others.shape == shape and len(n_leaves) == n_versions

    def roots(self, study: Study) -> list[Node]:
        """The shared tree of each version; an error if there is one that is none."""
        return [from_array(one, study.columns, range(study.n_actions)) for one in self.shared]

    def _can_be_standardised(self, n_terms: int) -> bool:
        """Whether each term can be, and the intercept stays as it is."""
        shape = (len(self.others), n_terms)
        if self.centre.shape != shape or self.scale.shape != shape or self.scale.min() < 0:
            return False
        others = self.others[..., : self.scale.shape[1]]
        fixed = not self.centre[:, -1].any() and (self.scale[:, -1] == 1).all()
        return bool(
            fixed and not others[np.broadcast_to(self.scale[:, None] == 0, others.shape)].any()
        )
