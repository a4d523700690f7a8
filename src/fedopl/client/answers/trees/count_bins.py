"""Counts of training rows between fine cuts, from which thresholds are agreed."""

import numpy as np

from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.random_rounding import randomly_rounded
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.trees.bin_counts import BinCounts, CountBins


def answer(space: Workspace, query: CountBins) -> BinCounts:
    """The counts; every one is rounded, so that none discloses single rows."""
    if (np.diff(query.cuts) < 0).any():
        raise RefusedError(RefusalCode.MALFORMED)
    counts = np.zeros((len(query.cuts), query.cuts.shape[1] + 1))
    for chunk in space.unscored_chunks():
        contexts = chunk.data.contexts[chunk.training]
        cut = zip(space.study.cut_columns, query.cuts, strict=True)
        for place, (column, cuts) in enumerate(cut):
            bins = np.searchsorted(cuts, column.values(contexts))
            counts[place] += np.bincount(bins, minlength=counts.shape[1])
    minimum_cell = space.limits.minimum_cell
    if minimum_cell > 1:
        counts = randomly_rounded(counts, minimum_cell, space.rounding_draws(query.cuts))
    return BinCounts(counts=counts)
