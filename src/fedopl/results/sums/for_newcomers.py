"""What a run keeps besides clients' score sums, so that clients may join it later, or leave it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from fedopl.messages.learning.outcome_sums import OutcomeSums
from fedopl.messages.learning.score_sums_by_fold import ScoreSumsByFold


@dataclass(frozen=True, eq=False, kw_only=True)
class ForNewcomers:
    """What is needed to score a newcomer's rows, and to choose terms of a basis.

    Outcome models were made from one total over the clients of the run. The total does not show the
    part of a single client, so a client that was in the run stays in these models, even after
    leaving.
    """

    counted: tuple[str, ...] = ()  # whose rows are in the total, sorted
    total: OutcomeSums | None = None  # None where every client has models of its own
    joined: Mapping[str, OutcomeSums] = field(default_factory=dict)  # those who came since
    by_fold: Mapping[str, ScoreSumsByFold] = field(default_factory=dict)

    def outcome_sums(self) -> dict[str, OutcomeSums]:
        """All sums that outcome models can be made from, in parts that are added up."""
        # No client can have this name: the total comes first, whatever the clients' names are.
        return {**({"": self.total} if self.total else {}), **self.joined}

    def adding(
        self, sums: Mapping[str, OutcomeSums], by_fold: Mapping[str, ScoreSumsByFold]
    ) -> Self:
        """The data with newcomers added; clients of the original run are in its total already."""
        new = {name: own for name, own in sums.items() if name not in self.counted}
        joined = dict(sorted({**self.joined, **new}.items()))
        return replace(
            self, joined=joined, by_fold=dict(sorted({**self.by_fold, **by_fold}.items()))
        )

    def without(self, names: Collection[str]) -> Self:
        """The data without leaving clients, except for their part in the total."""
        return replace(
            self,
            joined={name: own for name, own in self.joined.items() if name not in names},
            by_fold={name: own for name, own in self.by_fold.items() if name not in names},
        )
