"""What a run keeps besides clients' score sums, so that clients may join it later, or leave it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Self, TypeVar

from fedopl.base.arrays import FloatArray
from fedopl.messages.learning.outcome_sums import OutcomeSums
from fedopl.messages.learning.score_sums import ScoreSumsByFold, SumScores

Solve = Callable[[OutcomeSums], SumScores]
Own = TypeVar("Own")


def with_more(first: Mapping[str, Own], more: Mapping[str, Own]) -> dict[str, Own]:
    """What both say by client, sorted by name; where both say something, what the second does."""
    return dict(sorted({**first, **more}.items()))


def all_but(told: Mapping[str, Own], names: Collection[str]) -> dict[str, Own]:
    """What all clients but these said."""
    return {name: own for name, own in told.items() if name not in names}


@dataclass(frozen=True, eq=False, kw_only=True)
class ForNewcomers:
    """What is needed to score a newcomer's rows, to choose terms of a basis, and to value by fold.

    Outcome models were made from one total over the clients of the run. The total less the sums of
    those who stay is a leaving client's own sums. So once a client that is in the total leaves, the
    total is dropped, and only the models that were made from it are kept. They score whoever comes
    later.
    """

    counted: tuple[str, ...] = ()  # whose rows are in the total and the models, sorted
    total: OutcomeSums | None = None  # None where every client has models of its own, or one left
    joined: Mapping[str, OutcomeSums] = field(default_factory=dict)  # those who came since
    models: SumScores | None = None  # of the run, once one of its clients left
    by_fold: Mapping[str, ScoreSumsByFold] = field(default_factory=dict)
    # Sums over a tree's grid without each fold, (n_folds, n_cells, n_numbers), of the same clients.
    cells: Mapping[str, FloatArray] = field(default_factory=dict)

    def outcome_sums(self) -> dict[str, OutcomeSums]:
        """All sums that outcome models can be made from, in parts that are added up."""
        # No client can have this name: the total comes first, whatever the clients' names are.
        return {**({"": self.total} if self.total else {}), **self.joined}

    def adding(
        self,
        sums: Mapping[str, OutcomeSums],
        by_fold: Mapping[str, ScoreSumsByFold],
        cells: Mapping[str, FloatArray],
    ) -> Self:
        """The data with newcomers added; clients of the original run are in its total already."""
        return replace(
            self,
            joined=with_more(self.joined, {} if self.models else all_but(sums, self.counted)),
            by_fold=with_more(self.by_fold, by_fold),
            cells=with_more(self.cells, cells),
        )

    def without(self, names: Collection[str], solve: Solve) -> Self:
        """The data without leaving clients.

        `solve` makes models of a total. They stand in for it if one of these clients is in it.
        """
        fewer = replace(
            self,
            joined=all_but(self.joined, names),
            by_fold=all_but(self.by_fold, names),
            cells=all_but(self.cells, names),
        )
        if self.total is None or not set(names) & set(self.counted):
            return fewer
        # Those who came since were scored by other models, which are not made any more.
        return replace(fewer, total=None, joined={}, models=solve(self.total))
