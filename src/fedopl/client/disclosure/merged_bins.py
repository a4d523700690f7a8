"""Rule *cell* for bins: those with fewer rows than `minimum_cell` are merged with a neighbour.

It is decided once for each column, from the counts of all rows there. Sums over pairs of merged
bins leave whole.
"""

import numpy as np

from fedopl.base.arrays import IntArray


def merged_bins(counts: IntArray, minimum: int) -> IntArray:  # (n_bins,)
    """For each bin, the bin that its rows count for; each of these has enough rows, or none.

    Bins are joined from the first on until they have enough rows; the last ones, if too few, join
    those before. The rows of all count for the bin among them that has most.
    """
    places = np.arange(len(counts))
    if minimum < 2 or not ((counts > 0) & (counts < minimum)).any():
        return places
    runs, begun, total = [], 0, 0
    for place, count in enumerate(counts.tolist()):
        total += count
        if total >= minimum:
            runs.append((begun, place + 1))
            begun, total = place + 1, 0
    if total and runs:
        runs[-1] = (runs[-1][0], len(counts))
    elif total:
        runs.append((0, len(counts)))
    onto = places.copy()
    for start, stop in runs:
        onto[start:stop] = start + int(np.argmax(counts[start:stop]))
    return onto
