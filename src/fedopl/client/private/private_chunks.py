"""Some rows as a study with differential privacy uses them: bounded, and on a grid.

On the grid all sums are exact, whatever the order of rows and the size of blocks. So one row
changes a sum by its own part, and rounding adds nothing.
"""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.privacy.sum_grid import GRID
from fedopl.study.private.private_setting import Bounds
from fedopl.study.private.private_units import Scales
from fedopl.study.study import Study


def truncated(numbers: FloatArray) -> FloatArray:  # shaped as numbers
    """Whole steps of the grid, rounded towards zero, so that nothing gets larger."""
    return np.trunc(numbers * GRID)


@dataclass(frozen=True, eq=False, kw_only=True)
class GridRows:
    """Rows of one split, with numbers in whole steps of the grid."""

    features: FloatArray  # (n_rows, n_terms + 1), an intercept last, each row times its weight
    outcomes: FloatArray  # (n_rows,), times the same weight
    actions: IntArray  # (n_rows,)
    lengths: FloatArray  # (n_rows,), of features, in the study's units
    chances: FloatArray  # (n_rows,), of the logged action, where asked for
    whose: IntArray  # (n_rows,), each row's own number, or its person's

    def bounded(self, numbers: FloatArray, largest: float) -> FloatArray:  # (n_rows,), grid steps
        """Numbers by row, cut so that features times the number are no longer than `largest`."""
        most = largest / np.maximum(self.lengths, 1e-12)
        return truncated(np.clip(numbers, -most, most))


@dataclass(frozen=True, eq=False, kw_only=True)
class PrivateChunk:
    """Some of the used rows of one split; all of them if rows are in memory."""

    study: Study
    scales: Scales
    contexts: FloatArray  # (n_rows, n_features)
    outcomes: FloatArray  # (n_rows,), measured from the middle of their range, and within it
    actions: IntArray  # (n_rows,)
    known_chances: FloatArray | None  # (n_rows,), of the logged action, where known
    whose: IntArray  # (n_rows,), each row's own number, or its person's

    def units(self, n_terms: int) -> FloatArray:  # (n_rows, n_terms)
        """The first `n_terms` terms, in units of the study."""
        terms = self.study.terms
        return self.scales.units(
            self.contexts if terms is None else terms.of(self.contexts, n_terms)
        )

    def on_grid(self, n_terms: int, chances: FloatArray | None = None) -> GridRows:
        """The rows with the first `n_terms` terms, bounded and on the grid."""
        scaled = self.units(n_terms)
        squares = (scaled**2).sum(axis=1)
        # Rows far out count for less, but are not moved. So what is linear stays linear.
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
