"""Some rows as a study with differential privacy uses them: bounded, and on a grid.

On the grid all sums are exact, whatever the order of rows and however many are looked at together,
so one row moves them by its own part and by no rounding.
"""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.privacy.sum_grid import GRID
from fedopl.study.private.private_setting import Bounds, Scales
from fedopl.study.study import Study


def truncated(numbers: FloatArray) -> FloatArray:  # shaped as numbers
    """Whole steps of the grid, towards zero: nothing gets larger."""
    return np.trunc(numbers * GRID)


@dataclass(frozen=True, eq=False, kw_only=True)
class GridRows:
    """Rows of one split; numbers are whole steps of the grid."""

    features: FloatArray  # (n_rows, n_terms + 1), an intercept last, each row times its weight
    outcomes: FloatArray  # (n_rows,), times the same weight
    actions: IntArray  # (n_rows,)
    lengths: FloatArray  # (n_rows,), of features, in units
    chances: FloatArray  # (n_rows,), of what was done, where that is asked for
    whose: IntArray  # (n_rows,), each row's own number, or its person's

    def bounded(self, numbers: FloatArray, largest: float) -> FloatArray:  # (n_rows,), grid steps
        """Numbers by row, such that a row's features times its number are no longer than this."""
        most = largest / np.maximum(self.lengths, 1e-12)
        return truncated(np.clip(numbers, -most, most))


@dataclass(frozen=True, eq=False, kw_only=True)
class PrivateChunk:
    """Some used rows of one split; where rows are in memory, all of them."""

    study: Study
    scales: Scales
    contexts: FloatArray  # (n_rows, n_features)
    outcomes: FloatArray  # (n_rows,), from the middle of their range, within it
    actions: IntArray  # (n_rows,)
    known_chances: FloatArray | None  # (n_rows,), of what was done, where they are known
    whose: IntArray  # (n_rows,), each row's own number, or its person's

    def units(self, n_terms: int) -> FloatArray:  # (n_rows, n_terms)
        """A number of first terms, in units of the study."""
        terms = self.study.terms
        return self.scales.units(
            self.contexts if terms is None else terms.of(self.contexts, n_terms)
        )

    def on_grid(self, n_terms: int, chances: FloatArray | None = None) -> GridRows:
        """The rows with a number of first terms, bounded."""
        scaled = self.units(n_terms)
        squares = (scaled**2).sum(axis=1)
        # Rows far out count for less, and are not moved: so what is linear stays linear.
        radius = Bounds(n_terms, self.study.n_actions).radius
        weights = np.minimum(1.0, radius / np.sqrt(np.maximum(squares, 1e-12)))
        features = truncated(np.column_stack([scaled, np.ones(len(scaled))]) * weights[:, None])
        return GridRows(
            features=features,
            outcomes=truncated(weights * self.outcomes / self.scales.outcome_unit),
            actions=self.actions,
            lengths=np.sqrt((features**2).sum(axis=1)) / GRID,
            chances=np.empty(0) if chances is None else chances,
            whose=self.whose,
        )
