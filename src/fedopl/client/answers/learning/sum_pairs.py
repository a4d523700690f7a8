"""Sums for every pair of actions, rows weighted by what the choice is worth."""

from fedopl.client.local.score_means import pair_means
from fedopl.client.workspace import Workspace
from fedopl.messages.learning.pair_sums import PairSums, SumPairs


def answer(space: Workspace, _query: SumPairs) -> PairSums:
    """The means over training rows."""
    space.check_rows_for_sums()
    grams, products = pair_means(space.data, space.scores, space.training)
    return PairSums(grams=grams, products=products)
