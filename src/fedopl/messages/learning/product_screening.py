"""Screening: which two of many features act together, asked before terms are agreed.

With 40 features there are 780 products of two, too many for sums of their squares. So clients first
report for each product, in one number, whether it predicts outcomes. A study whose `screened_pairs`
is not zero begins with this question. It continues as the study that also has the pairs that were
found.
"""

from itertools import combinations
from typing import Annotated

from fedopl.base.arrays import largest_size
from fedopl.messages.combining import PerClient
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import largest_statistic
from fedopl.policies.basis import NamedPair
from fedopl.study.study import Study


@message
class ProductStatistics(Message, code=134):
    """By action and two features, a t-statistic of their product; 0 if it rests on few rows.

    If values are cross-fitted, they are of the rows without each fold and, last, of all rows.
    """

    statistics: Annotated[Array, (Axis.VERSIONS, Axis.ACTIONS, Axis.FEATURE_PAIRS), PerClient]


@message
class ScreenProducts(Query[ProductStatistics], code=31, asked=Asked.EACH):
    """Ask which products of two features predict outcomes, besides the features themselves."""

    title = "Which features act together"
    content = "for each action and two features, a t-statistic of their product"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Whether pairs are to be found, and are not known yet."""
        basis = study.basis
        return basis is not None and not basis.is_screened and basis.screened_pairs > 0

    def fault_in(self, answer: ProductStatistics, _study: Study, n_rows: int) -> str | None:
        """Check for numbers that the rows allow."""
        if largest_size(answer.statistics) > largest_statistic(n_rows):
            return "a statistic is larger than its rows allow"
        return None


def feature_pairs(study: Study) -> list[NamedPair]:
    """Every two features, in the order of the statistics."""
    return list(combinations(study.features, 2))
