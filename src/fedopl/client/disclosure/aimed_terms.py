"""Protects a few rows from terms aimed at them: knots that a study's author puts around them.

Hinges at neighbouring knots combine to a function that is zero outside these knots. Products of two
numbers combine to a function that is zero outside a corner. If a cell has few rows where such a
function is not zero, sums with it disclose those rows. So two changes are made before terms are
summed. A number between knots where the cell has few rows is moved to a knot beside many rows. A
product that varies only because of a few rows of the cell is made constant there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disclosure.rare_values import ContextParts, RareValues, cells_to_mask
from fedopl.policies.terms import Stretch, Terms

# --- numbers between knots ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class MovedNumbers:
    """Where numbers of one feature between its knots are moved to, in each cell.

    Places are counted from below: 0 is beneath the first knot, 1 at it, 2 between it and the
    second.
    """

    feature: int
    knots: FloatArray  # (n_knots,)
    onto: FloatArray  # (n_cells, 2 · n_knots + 1), NaN where numbers stay

    def __call__(self, numbers: FloatArray, cells: IntArray) -> FloatArray:  # (n_rows,)
        """The numbers after the move."""
        onto: FloatArray = self.onto[cells, _places(self.knots, numbers)]
        return np.where(np.isnan(onto), numbers, onto)


def moved_numbers(
    parts: ContextParts, knots: Mapping[int, FloatArray], n_cells: int, minimum: int
) -> tuple[MovedNumbers, ...]:
    """The numbers to move, found in one pass; the first columns of contexts are features."""
    counts = {
        feature: np.zeros((n_cells, 2 * len(own) + 1), np.int64) for feature, own in knots.items()
    }
    for contexts, cells in parts():
        for feature, found in counts.items():
            n_places = found.shape[1]
            at = cells * n_places + _places(knots[feature], contexts[:, feature])
            found += np.bincount(at, minlength=found.size).reshape(found.shape)
    moved = (
        MovedNumbers(feature=feature, knots=own, onto=_onto(counts[feature], own, minimum))
        for feature, own in knots.items()
    )
    return tuple(one for one in moved if not np.isnan(one.onto).all())


def _places(knots: FloatArray, numbers: FloatArray) -> IntArray:  # (n_rows,)
    """The place of each number: even between knots, odd at a knot."""
    below: IntArray = np.searchsorted(knots, numbers, side="left")
    return below + np.searchsorted(knots, numbers, side="right")


def _onto(counts: IntArray, knots: FloatArray, minimum: int) -> FloatArray:  # shaped as counts
    """The nearest knot with enough rows beside or at it, else the middle one; NaN for no move."""
    moved = np.zeros(counts.shape, bool)
    for place in range(0, counts.shape[1], 2):
        moved[:, place] = cells_to_mask(counts[:, place], minimum)
    stays = (counts > 0) & ~moved
    for place in range(1, counts.shape[1], 2):
        lonely = ~stays[:, place - 1] & ~stays[:, place + 1]
        moved[:, place] = cells_to_mask(np.where(lonely, counts[:, place], 0), minimum)
    # Numbers are moved to knots where a function that is not zero is not zero for many rows.
    many = (counts[:, 1::2] >= minimum) & ~moved[:, 1::2]
    beside = many | stays[:, :-1:2] | stays[:, 2::2]
    onto = np.full(counts.shape, np.nan)
    for cell, place in np.argwhere(moved):
        near = np.flatnonzero(beside[cell])
        nearest = near[np.argmin(np.abs(2 * near + 1 - place))] if len(near) else len(knots) // 2
        onto[cell, place] = knots[nearest]
    return onto


# --- products -------------------------------------------------------------------------------------


def rare_products(
    parts: ContextParts, terms: Terms, n_cells: int, minimum: int
) -> tuple[RareValues, ...]:
    """Products that vary only because of a few rows of a cell, found in two or three passes.

    Sums can subtract from each factor its value at one of its ends. The product of these
    differences is zero wherever either factor is at that end.
    """
    stretches = {stretch for pair in terms.varying.values() for stretch in pair}
    if not stretches:
        return ()
    ends, in_cell, at_ends = _at_ends(parts, stretches, n_cells)
    n_most = {stretch: counts.max(axis=0) for stretch, counts in at_ends.items()}
    suspects = {
        term: (first, second)
        for term, (first, second) in terms.varying.items()
        if ((in_cell > 0) & (in_cell - n_most[first] - n_most[second] < minimum)).any()
    }
    varying = {term: np.zeros((4, n_cells), np.int64) for term in suspects}
    for contexts, cells in parts() if suspects else ():
        for term, pair in suspects.items():
            sides = [_apart(contexts[:, stretch.feature], ends[stretch]) for stretch in pair]
            for corner, (first, second) in enumerate(product(*sides)):
                varying[term][corner] += np.bincount(cells[first & second], minlength=n_cells)
    return tuple(
        RareValues(feature=term, common=np.zeros(n_cells), masked=masked)
        for term, corners in varying.items()
        if (masked := np.any([cells_to_mask(one, minimum) for one in corners], axis=0)).any()
    )


_Ends = tuple[float, float]


def _at_ends(
    parts: ContextParts, stretches: set[Stretch], n_cells: int
) -> tuple[dict[Stretch, _Ends], IntArray, dict[Stretch, IntArray]]:
    """Each factor's ends among these rows, the rows of each cell, and those at either end."""
    features = sorted({stretch.feature for stretch in stretches})
    lowest, highest = dict.fromkeys(features, np.inf), dict.fromkeys(features, -np.inf)
    for contexts, _ in parts():
        for feature in features if len(contexts) else ():
            lowest[feature] = min(lowest[feature], float(contexts[:, feature].min()))
            highest[feature] = max(highest[feature], float(contexts[:, feature].max()))
    ends = {
        stretch: (
            max(stretch.low, lowest[stretch.feature]),
            min(stretch.high, highest[stretch.feature]),
        )
        for stretch in stretches
    }
    in_cell = np.zeros(n_cells, np.int64)
    counts = {stretch: np.zeros((2, n_cells), np.int64) for stretch in stretches}
    for contexts, cells in parts():
        in_cell += np.bincount(cells, minlength=n_cells)
        for stretch, found in counts.items():
            for side, apart in enumerate(_apart(contexts[:, stretch.feature], ends[stretch])):
                found[side] += np.bincount(cells[~apart], minlength=n_cells)
    return ends, in_cell, counts


def _apart(numbers: FloatArray, ends: _Ends) -> tuple[BoolArray, BoolArray]:
    """Rows whose factor is not at its lower end, and not at its upper one."""
    return numbers > ends[0], numbers < ends[1]
