"""Rule *splits*: how many folds a client uses, whether it holds rows out, what it corrects.

In a fold with 1 to 4 rows of an action, sums by fold and action are nearly those rows. So a client
uses as many folds, at most the study's, as have `minimum_cell` rows of every action that it
corrects, and answers zeros for the others. Its held-out rows have as many, or it only learns.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disclosure.held_values import NOTHING_HELD, HeldValues
from fedopl.client.disk.store import Arrays
from fedopl.client.rows.chunks import ROWS_PER_CHUNK
from fedopl.client.rows.folds import Folds, as_agreed, assign_folds_and_hold_out, quotas_of
from fedopl.client.table.logged_data import LoggedData

FEWEST_USED = 2


@dataclass(frozen=True, eq=False, kw_only=True)
class Split:
    """The folds of a client's rows, and what follows from how many rows took each action."""

    folds: Folds
    n_used: int  # folds with rows; the study's others are empty
    share: float  # of rows held out here; 0 where the client only learns
    corrected: BoolArray  # (n_actions,)  whose scores are corrected by own rows

    @property
    def arrays(self) -> Arrays:
        """The split as arrays, to be stored."""
        said = np.array([self.n_used, self.share])
        return {"folds": self.folds.of_row, "split": said, "corrected": self.corrected}

    @classmethod
    def from_arrays(cls, arrays: Arrays, n_folds: int) -> Self:
        """The split in these arrays."""
        used, share = arrays["split"].tolist()
        folds = as_agreed(arrays["folds"], n_folds)
        return cls(folds=folds, n_used=int(used), share=share, corrected=arrays["corrected"])


def split_by_rule(
    data: LoggedData,
    n_folds: int,
    share: float,
    seed: int,
    cell: int,
    held: HeldValues = NOTHING_HELD,
) -> Split:
    """The split of these rows; with groups, which stay together, as many folds as are enough."""
    counts = data.rows_per_action
    # Which groups are held out is not known yet.
    about = np.rint(share * counts).astype(np.int64)
    held_out = quotas_of(counts, share) if data.groups is None else about
    corrected = _enough(counts - held_out, held_out, share, cell)
    if share and not corrected.any():
        return split_by_rule(data, n_folds, 0.0, seed, cell, held)
    training = (counts - held_out)[corrected]
    used = n_folds
    if cell > 1:
        used = min(n_folds, max(FEWEST_USED, int(min(training // cell, default=FEWEST_USED))))
    while True:
        folds = assign_folds_and_hold_out(data, n_folds, share, seed, used=used, held=held)
        if cell < 2 or data.groups is None:
            break
        found = by_fold_action(data, folds)
        lacking = corrected & (found[:used] < cell).any(axis=0)
        lacking |= corrected & bool(share) & (found[-1] < cell)
        if not lacking.any():
            break
        if used > FEWEST_USED:
            used -= 1
            continue
        corrected = corrected & ~lacking
        if share and not corrected.any():
            return split_by_rule(data, n_folds, 0.0, seed, cell, held)
    return Split(folds=folds, n_used=used, share=share, corrected=corrected)


def _enough(training: IntArray, held_out: IntArray, share: float, cell: int) -> BoolArray:
    """The actions with enough rows for two folds, and held out."""
    enough: BoolArray = training >= max(FEWEST_USED * cell if cell > 1 else 1, 1)
    if share and cell > 1:
        enough &= held_out >= cell
    return enough


def by_fold_action(
    data: LoggedData, folds: Folds, weights: FloatArray | None = None
) -> FloatArray:  # (n_folds + 1, n_actions)
    """The number of rows, or their weight, by fold and action; no context is read."""
    found = np.zeros((folds.n_folds + 1) * data.n_actions)
    for rows in data.slices(ROWS_PER_CHUNK):
        places = folds.of_row[rows].astype(np.int64) * data.n_actions + data.actions[rows]
        found += np.bincount(places, None if weights is None else weights[rows], len(found))
    return found.reshape(-1, data.n_actions)
