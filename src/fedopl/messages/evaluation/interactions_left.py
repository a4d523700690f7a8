"""Which features act together in what both models miss.

A value is wrong where outcome models and propensities miss the same. A product of two or three
features may be missed by both while every feature, alone, is balanced.
"""

from functools import lru_cache
from itertools import combinations
from typing import Annotated

import numpy as np

from fedopl.base.arrays import FloatArray, largest_size
from fedopl.messages.combining import PerClient
from fedopl.messages.evaluation.model_fit import TellFit
from fedopl.messages.message import Array, Asked, Axis, Message, Query, message
from fedopl.messages.plausibility import largest_statistic
from fedopl.study.study import Study

# Products of two are looked at with up to so many features, and products of three.
MOST_IN_PAIRS, MOST_IN_TRIPLES = 40, 12
MOST_PRODUCTS_TOLD = 8  # of an action
# The places of two or three features, −1 where there is no third; the two statistics; and what the
# value of giving everybody the action would be too high by.
INTERACTION_NUMBERS = ("first", "second", "third", "weights", "residuals", "too_high")
NO_THIRD = -1.0


@message
class InteractionsLeft(Message, code=124):
    """For each action, products of features that models leave most of, the strongest first.

    Lines of zeros fill up what is not told.
    """

    strongest: Annotated[
        Array, (Axis.ACTIONS, Axis.PRODUCTS_TOLD, Axis.INTERACTION_NUMBERS), PerClient
    ]


@message
class TellInteractions(Query[InteractionsLeft], code=58, asked=Asked.EACH):
    """Ask which features act together in what outcome models and propensities both leave."""

    title = "Which features act together in what models miss"
    content = "for each action, the strongest products of two or three features, and how strong"

    @classmethod
    def needed(cls, study: Study) -> bool:
        """Where clients tell how models fit, and products are few enough."""
        return TellFit.needed(study) and bool(feature_products(study.n_features))

    def fault_in(self, answer: InteractionsLeft, study: Study, n_rows: int) -> str | None:
        """|Σv| is at most √n·√Σv², and every line is about other features."""
        places = set(feature_products(study.n_features))
        for lines in answer.strongest:
            told = lines[lines[:, :2].any(axis=1)]
            if lines[len(told) :].any():
                return "what is told of no features is not zero"
            if (told[:, :3] % 1).any():
                return "the place of a feature is not a whole number"
            if largest_size(told[:, 3:5]) > largest_statistic(n_rows):
                return "a statistic is larger than its rows allow"
            found = [product_in(line) for line in told]
            if len(set(found)) < len(found) or not places.issuperset(found):
                return "a product is told of twice, or is none"
            if (np.sign(told[:, 5]) * np.sign(told[:, 3] * told[:, 4]) < 0).any():
                return "a value is too high where statistics say too low"
        return None


# The sizes of messages follow from it, and the same few numbers of features are asked about.
@lru_cache(16)
def feature_products(n_features: int) -> tuple[tuple[int, ...], ...]:
    """Places of every two features, and of every three where there are few; none of too many."""
    if n_features > MOST_IN_PAIRS:
        return ()
    pairs = tuple(combinations(range(n_features), 2))
    return pairs + tuple(combinations(range(n_features * (n_features <= MOST_IN_TRIPLES)), 3))


def product_in(line: FloatArray) -> tuple[int, ...]:
    """The places of the features that a line is about."""
    return tuple(int(place) for place in line[:3] if place != NO_THIRD)
