"""Missing values: how many rows they cost, and which actions lost outcomes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fedopl.base.arrays import BoolArray, IntArray, shortlist
from fedopl.base.errors import FedoplWarning

# Missing outcomes are called uneven if chance makes them so uneven in one of this many tables.
ONE_IN = 1000


@dataclass(frozen=True, kw_only=True)
class Attrition:
    """By action, how often it was taken and how often its outcome is missing."""

    taken: dict[str, int]
    lost: dict[str, int]

    @classmethod
    def of(cls, actions: IntArray, missing: BoolArray, names: Sequence[str]) -> Self:
        """Count the rows whose action is known."""
        known = actions >= 0
        taken = np.bincount(actions[known], minlength=len(names)).tolist()
        lost = np.bincount(actions[known & missing], minlength=len(names)).tolist()
        return cls(
            taken=dict(zip(names, taken, strict=True)), lost=dict(zip(names, lost, strict=True))
        )

    def __add__(self, more: "Attrition") -> "Attrition":
        return Attrition(taken=_added(self.taken, more.taken), lost=_added(self.lost, more.lost))

    @property
    def is_uneven(self) -> bool:
        """Whether some actions lost more of their outcomes than chance explains (χ² test)."""
        from scipy.special import chdtrc

        taken = np.array([n for n in self.taken.values() if n], float)
        lost = np.array([self.lost[action] for action, n in self.taken.items() if n], float)
        share = lost.sum() / max(taken.sum(), 1.0)
        if len(taken) < 2 or not 0 < share < 1:
            return False
        statistic = float(((lost - taken * share) ** 2 / (taken * share * (1 - share))).sum())
        return bool(chdtrc(len(taken) - 1, statistic) < 1 / ONE_IN)

    def in_words(self) -> str:
        """The counts as the end of a sentence; empty if no outcome is missing."""
        if not any(self.lost.values()):
            return ""
        counts = [
            f"'{action}' {lost:,} of {self.taken[action]:,} ({lost / self.taken[action]:.0%})"
            for action, lost in self.lost.items()
            if self.taken[action]
        ]
        uneven = (
            "; that is more uneven than chance, so the rows that remain may differ from "
            "those left out, and values may be wrong"
            if self.is_uneven
            else ""
        )
        return f". Outcomes are missing by action: {shortlist(counts)}{uneven}"


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """How many rows cannot be used because a value is missing."""

    n_rows: int  # all rows
    n_missing: int
    n_refused: int  # rows with a missing value in a column whose rows are not dropped
    by_column: dict[str, int]  # of each column that must not have gaps
    attrition: Attrition

    def __add__(self, more: "Gaps") -> "Gaps":
        return Gaps(
            n_rows=self.n_rows + more.n_rows,
            n_missing=self.n_missing + more.n_missing,
            n_refused=self.n_refused + more.n_refused,
            by_column=_added(self.by_column, more.by_column),
            attrition=self.attrition + more.attrition,
        )

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """The object that `dataclasses.asdict` converted to this dictionary."""
        return cls(**{**content, "attrition": Attrition(**content["attrition"])})


class RowsDroppedWarning(FedoplWarning):
    """Warns that rows were left out because a value is missing."""

    def __init__(self, message: str, gaps: Gaps) -> None:
        super().__init__(message)
        self.gaps = gaps


def _added(these: Mapping[str, int], those: Mapping[str, int]) -> dict[str, int]:
    return {name: count + those[name] for name, count in these.items()}
