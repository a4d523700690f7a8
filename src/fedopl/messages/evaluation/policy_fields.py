"""The policies that a query asks about: a field for each kind, named by the kind itself."""

from typing import Annotated

from fedopl.messages.message import AnswerType, Array, Axis, Query, RowSplit, message
from fedopl.policies.kinds import KINDS, POLICY_FIELDS, RULES


@message
class AsksAboutPolicies(Query[AnswerType]):
    """Policies as arrays in the order of the table of kinds, then positions of rules."""

    # Written by the kinds, so that a new kind of policy has its field without a line here.
    __annotations__ = {
        kind.message_field: Annotated[Array, tuple(Axis(axis) for axis in kind.message_axes)]
        for kind in KINDS.values()
    } | {RULES: Annotated[Array, (Axis.RULES,)]}  # positions among the candidates of the study

    @property
    def n_policies(self) -> int:
        """How many policies it asks about."""
        return sum(len(getattr(self, field)) for field in POLICY_FIELDS)


@message
class AsksAboutSplit(Query[AnswerType]):
    """The rows that an answer is about; as the last base of a query, its field is sent first."""

    split: RowSplit
