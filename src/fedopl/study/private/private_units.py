"""The units of a private study's features, terms and outcomes, and its tables, by public ranges.

Numbers are measured from the middle of their range, in quarters of its width, and flags in halves,
so that most are about one in size. Outcomes are measured from the middle of theirs, in sixths.
Terms of a basis are measured so that they would be about uncorrelated and of variance one if
features varied independently within their ranges. Ranges are public: no row's value decides them.
"""

import math
from collections.abc import Mapping
from functools import cached_property
from itertools import combinations
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.decompositions import cholesky, inv
from fedopl.base.seeds import generator_for
from fedopl.policies.tree_columns import NumberColumn
from fedopl.policies.trees.grid import Grid, agreed_grid
from fedopl.policies.trees.nodes import Branch, Node
from fedopl.policies.trees.second_look import BINS_TO_A_SIDE, SecondLook, look_close
from fedopl.privacy.exact_noise import row_by_row
from fedopl.study.private.privacy_plan import OF_FLAGS, PrivacyPlan, Range

if TYPE_CHECKING:
    from fedopl.study.study import Study

# The number of made-up contexts for scaling the terms of a basis, and the share that is added to
# variances first.
_N_MADE_UP, _ROUND_BEYOND = 4096, 0.02
_LEAST_VARIANCE = 0.01  # of a term; those of a basis are about one in size


class Scales:
    """The origins and units of features, or terms, and outcomes."""

    def __init__(self, centre: FloatArray, turned: FloatArray, outcome: Range) -> None:
        self.centre = centre  # (n_terms,)
        # Factors on centred terms; those of a simpler family use only its own terms.
        self.turned = turned  # (n_terms, n_terms), zero below the diagonal
        self.low, self.high = outcome
        self.outcome_centre = (self.low + self.high) / 2
        self.outcome_unit = (self.high - self.low) / 6

    @property
    def half_range(self) -> float:
        """The largest distance of outcomes from the middle of their range."""
        return (self.high - self.low) / 2

    def units(self, terms: FloatArray) -> FloatArray:  # (n_rows, n_terms), the first ones
        """Terms, all or only the first ones, in units of the study."""
        n_terms = terms.shape[1]
        return row_by_row(terms - self.centre[:n_terms], self.turned[:n_terms, :n_terms])

    @cached_property
    def to_units(self) -> FloatArray:  # (n_terms + 1, n_terms + 1)
        """The matrix that turns raw terms and an intercept into units of the study."""
        found = np.eye(len(self.centre) + 1)
        found[:-1, :-1] = self.turned.T
        found[:-1, -1] = -self.centre @ self.turned
        return found

    def parameters(self, in_units: FloatArray) -> FloatArray:  # shaped as in_units
        """Coefficients in units of the study, converted to raw terms and raw outcomes."""
        found: FloatArray = self.outcome_unit * (in_units @ self.to_units)
        found[:, -1] += self.outcome_centre
        return found


def scales_of(study: "Study", plan: PrivacyPlan) -> Scales:
    """The units of a study's terms; a flag without a range is 0 or 1.

    If less of an outcome is better, outcomes are negated on reading, and so is their range.
    """
    low, high = plan.outcome
    outcome = (low, high) if study.reward_sign > 0 else (-high, -low)
    centre, unit = middles_and_units(study.features, plan.ranges)
    if study.terms is None:
        return Scales(centre, np.diag(1 / unit), outcome)
    # Noisy sums can be solved well only if no term is nearly a combination of others.
    rng = generator_for(0, purpose="made-up contexts in public ranges")
    drawn = rng.normal(size=(_N_MADE_UP, study.n_features))
    is_number = are_numbers(study.features, plan.ranges)
    made_up = centre + unit * np.where(is_number, np.clip(drawn, -2, 2), np.sign(drawn))
    terms = study.terms.of(made_up)
    spread = np.cov(terms, rowvar=False)
    variances = np.diag(spread).copy()
    # A term that hardly varies within the ranges would become huge for rows beyond them.
    variances[study.n_features :] = np.maximum(variances[study.n_features :], _LEAST_VARIANCE)
    spread += np.diag((1 + _ROUND_BEYOND) * variances - np.diag(spread))
    return Scales(terms.mean(axis=0), inv(cholesky(spread)).T, outcome)


def middles_and_units(
    features: tuple[str, ...], ranges: Mapping[str, Range]
) -> tuple[FloatArray, FloatArray]:  # (n_features,) each
    """The middle of each feature's range, and its unit."""
    low, high = np.array([ranges.get(name, OF_FLAGS) for name in features]).T
    # A flag lies at the ends of its range; most numbers lie well within theirs.
    return (low + high) / 2, (high - low) / np.where(are_numbers(features, ranges), 4.0, 2.0)


def are_numbers(features: tuple[str, ...], ranges: Mapping[str, Range]) -> BoolArray:
    """Which features are not flags; a feature from 0 to 1, such as a share, counts as a flag."""
    return np.array([ranges.get(name, OF_FLAGS) != OF_FLAGS for name in features])


def likely_values(features: tuple[str, ...], ranges: Mapping[str, Range]) -> dict[str, FloatArray]:
    """For each feature, typical values according to its public range."""
    middles, units = middles_and_units(features, ranges)
    normal = np.array([NormalDist().inv_cdf(share) for share in np.linspace(0.01, 0.99, 99)])
    is_number = are_numbers(features, ranges)
    values = middles + units * np.where(is_number, normal[:, None], np.sign(normal)[:, None])
    return dict(zip(features, values.T, strict=True))


# The number of bins of a number, about equally full. With more, noise would dominate the tables.
COARSE_BINS = 4
# The two bins beside a threshold reach half a unit to either side, about half a deviation.
_NEAR = 0.5


class TreeTables:
    """The tables released for a tree, and the position of rows in them.

    A coarse table of every two columns shows which questions are worth asking. Then narrow bins
    near each threshold show where the threshold is best. Bins are computed from public ranges.
    """

    def __init__(self, study: "Study", ranges: Mapping[str, Range]) -> None:
        self._study = study
        _, self._units = middles_and_units(study.features, ranges)
        self._likely = likely_values(study.features, ranges)  # from the least on

    @cached_property
    def grid(self) -> Grid:
        """The coarse grid; thresholds that the study agreed on are kept."""
        plan = self._study.tree
        n_bins = min(COARSE_BINS, plan.bins)
        shares = np.arange(1, n_bins) / n_bins
        proposed = {
            column.name: _cuts(self._likely[column.name], shares)
            for column in plan.uncut(self._study.columns)
        }
        return agreed_grid(plan, self._study.columns, proposed)

    @cached_property
    def released(self) -> list[tuple[int, int]]:
        """The released tables: of every two columns, or of each one for a tree of one question."""
        asked = [column for column, n_bins in enumerate(self.grid.n_bins) if n_bins > 1]
        if self._study.tree.depth == 1 or len(asked) < 2:
            return [(column, column) for column in asked or [0]]
        return list(combinations(asked, 2))

    @cached_property
    def places(self) -> IntArray:  # (n_released,)
        """The positions of released cells among all cells of the grid."""
        tables = self.grid.tables
        return np.concatenate([np.arange(tables[t].start, tables[t].stop) for t in self.released])

    @property
    def cells_move(self) -> float:
        """How far a row moves all tables, if it moves one by 1: it is in one cell of each."""
        return math.sqrt(len(self.released))

    @property
    def gains_move(self) -> float:
        """How far a row moves the bins near thresholds: it meets one question per level."""
        return math.sqrt(self._study.tree.depth)

    @property
    def may_refine(self) -> bool:
        """Whether any threshold may move."""
        return any(self._moves(column) for column in range(len(self._study.columns)))

    def _moves(self, column: int) -> bool:
        columns = self._study.columns
        own = columns[column]
        # For a flag, all thresholds between its two values are equivalent.
        return own in self._study.tree.refined(columns) and not _is_flag(self._likely[own.name])

    def look(self, root: Node) -> SecondLook:
        """A second look at a tree, with thresholds near those of each question that may move."""

        def beside(branch: Branch) -> list[float]:
            column = self._study.columns[branch.column]
            if not isinstance(column, NumberColumn) or not self._moves(branch.column):
                return []
            steps = np.arange(1 - BINS_TO_A_SIDE, BINS_TO_A_SIDE)
            width = self.reach(branch) / BINS_TO_A_SIDE
            return [branch.cut + float(step) * width for step in steps]

        return look_close(root, self.grid, beside)

    def reach(self, branch: Branch) -> float:
        """How far from a question's threshold rows still count for it."""
        column = self._study.columns[branch.column]
        if not isinstance(column, NumberColumn):
            return 0.0
        return _NEAR * float(self._units[column.feature])


def _cuts(likely: FloatArray, shares: FloatArray) -> list[float]:
    """Thresholds with about equally many of these values between them."""
    if _is_flag(likely):
        return [float(likely[0] + likely[-1]) / 2]
    return [float(cut) for cut in np.quantile(likely, shares)]


def _is_flag(likely: FloatArray) -> bool:
    """Whether the values are only the two ends of a range, and its middle."""
    return len(np.unique(likely)) <= 3
