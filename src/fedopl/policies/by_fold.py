"""A policy by fold: one policy for each fold of the rows, learned or chosen without it.

It is what is valued where values are cross-fitted, each row by the policy of its fold. It decides
for no new row, which has no fold.
"""

from collections.abc import Iterable, Mapping, Sequence

from fedopl.policies.policy import Policy

# A candidate goes by its name, as it may be a rule that only clients can apply.
Version = Policy | str


class ByFold(tuple[Version, ...]):
    """The policies, in the order of folds."""

    __slots__ = ()

    @property
    def policies(self) -> list[Policy]:
        """Those that are not known by a name only."""
        return [one for one in self if isinstance(one, Policy)]


def versions_of(
    each: Iterable[Version | ByFold], n_versions: int, known: Mapping[str, Policy]
) -> list[Sequence[Version]]:
    """As many versions of each policy; all the same if it is not by fold. Some names are known."""
    versions = [one if isinstance(one, ByFold) else [one] * n_versions for one in each]
    return [
        [known.get(one, one) if isinstance(one, str) else one for one in own] for own in versions
    ]
