"""A policy by fold: one policy for each fold of the rows, learned without it.

It is what is valued where values are cross-fitted, each row by the policy of its fold. It decides
for no new row, which has no fold.
"""

from collections.abc import Iterable

from fedopl.policies.policy import Policy


class ByFold(tuple[Policy, ...]):
    """The policies, in the order of folds."""

    __slots__ = ()

    @property
    def message_field(self) -> str:
        """The field of messages that carries them: they are of one kind."""
        return self[0].message_field


def versions_of(policies: Iterable[Policy | ByFold], n_versions: int) -> list[Policy]:
    """As many versions of each policy, side by side; they are all the same if it is not by fold."""
    found: list[Policy] = []
    for policy in policies:
        found += [policy] * n_versions if isinstance(policy, Policy) else policy
    return found
