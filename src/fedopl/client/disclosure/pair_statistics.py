"""Which of the statistics that screen terms may be released.

A product of two features that varies in only a few rows discloses something about them. A statistic
is |Σv| / √Σv² over rows. It is at most √m if m rows have all of it. So a statistic below the root
of `minimum_cell` may be that of a few rows, and is left out. The others are rounded to whole
numbers. Anyone who knows everybody's features could solve many statistics for outcomes. So the
statistics, together with the fitted numbers, are never more than the rows' `parameter_share`.
"""

import math

import numpy as np

from fedopl.base.arrays import FloatArray


def releasable_statistics(
    statistics: FloatArray, rests_on: FloatArray, minimum_cell: int
) -> FloatArray:  # shaped as statistics
    """Whole numbers; 0 where fewer than `minimum_cell` rows may be behind a statistic."""
    few = (np.abs(statistics) < math.sqrt(minimum_cell)) | (rests_on < minimum_cell)
    # Plus zero, because −0 would disclose something about a number that is left out.
    return np.where(few, 0.0, np.round(statistics)) + 0.0


def strongest(statistics: FloatArray, most: float) -> FloatArray:  # (n_pairs,)
    """The strongest statistics, at most this many; the others are 0."""
    if np.count_nonzero(statistics) <= most:
        return statistics
    kept = np.argsort(-np.abs(statistics), kind="stable")[: max(math.floor(most), 0)]
    found = np.zeros_like(statistics)
    found[kept] = statistics[kept]
    return found
