"""What may be released of statistics that screening is made from.

A product of two features that few rows vary in says something of these few. A statistic is
|Σv| / √Σv² over rows, and no more than √m if m rows have all of it: so what is below the root of
`minimum_cell` may be a few rows' and is left out, and the rest is rounded to whole numbers. Whoever
knows everybody's features could solve many statistics for outcomes: there are never more of them,
with the numbers that were fitted, than the rows' `parameter_share`.
"""

import math

import numpy as np

from fedopl.base.arrays import FloatArray


def releasable_statistics(
    statistics: FloatArray, rests_on: FloatArray, minimum_cell: int
) -> FloatArray:  # shaped as statistics
    """Whole numbers; 0 where fewer than `minimum_cell` rows may be behind one."""
    few = (np.abs(statistics) < math.sqrt(minimum_cell)) | (rests_on < minimum_cell)
    # Plus zero, as −0 would tell of what is left out.
    return np.where(few, 0.0, np.round(statistics)) + 0.0


def strongest(statistics: FloatArray, most: float) -> FloatArray:  # (n_pairs,)
    """The strongest, at most this number; the others are 0."""
    if np.count_nonzero(statistics) <= most:
        return statistics
    kept = np.argsort(-np.abs(statistics), kind="stable")[: max(math.floor(most), 0)]
    found = np.zeros_like(statistics)
    found[kept] = statistics[kept]
    return found
