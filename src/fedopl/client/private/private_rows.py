"""Rows as a study with differential privacy sees them: bounded, and on a grid.

On the grid all sums are exact, whatever the order of rows, so one row moves them by its own part
and by no rounding. Where a row lies, and who holds it out, depends on nothing in other rows.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.errors import DataError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.table.logged_data import LoggedData, fingerprint
from fedopl.messages.message import RowSplit
from fedopl.privacy.keyed_bits import KeyedBits
from fedopl.privacy.sum_grid import GRID
from fedopl.study.private_setting import Bounds, PrivateSetting, middles_and_units
from fedopl.study.study import Study

_FARTHEST = 1e9  # units from the middle of a range; so far out a row counts for nothing
# Sums of whole numbers up to here are exact in floating point.
LARGEST_EXACT = 2.0**53
# Draws have so many values; of these, a share is rounded down.
_DRAWS = 2**32


def truncated(numbers: FloatArray) -> FloatArray:  # shaped as numbers
    """Whole steps of the grid, towards zero: nothing gets larger."""
    return np.trunc(numbers * GRID)


@dataclass(frozen=True, eq=False, kw_only=True)
class GridRows:
    """Rows of one split; numbers are whole steps of the grid."""

    features: FloatArray  # (n_rows, n_terms + 1), an intercept last, each row times its weight
    outcomes: FloatArray  # (n_rows,), times the same weight
    actions: IntArray  # (n_rows,)
    chances: FloatArray  # (n_rows,), of what was done
    lengths: FloatArray  # (n_rows,), of features, in units

    def bounded(self, numbers: FloatArray, largest: float) -> FloatArray:  # (n_rows,), grid steps
        """Numbers by row, such that a row's features times its number are no longer than this."""
        most = largest / np.maximum(self.lengths, 1e-12)
        return truncated(np.clip(numbers, -most, most))


class PrivateRows:
    """One client's rows in a study with differential privacy."""

    def __init__(self, data: LoggedData, study: Study, draws: PrivateDraws) -> None:
        self._data, self.study, self._draws = data, study, draws
        setting = PrivateSetting(study)
        self.plan, self.scales = setting.plan, setting.scales
        self.plan.check_rows(draws.client, data.n_rows)
        if self.plan.unit == "person" and data.groups is None:
            raise DataError(
                f'{draws.client}: unit = "person", but no column says whose a row is; name it as '
                "group under [rows]"
            )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the rows: it changes whenever one of them does."""
        return fingerprint(self._data)

    @cached_property
    def _units(self) -> IntArray:  # (n_rows,)
        """Whose each row is: its own, or a person's."""
        groups = None if self.plan.unit == "row" else self._data.groups
        return np.arange(self._data.n_rows) if groups is None else np.asarray(groups[:], np.int64)

    @cached_property
    def _is_held_out(self) -> BoolArray:  # (n_rows,)
        """By a keyed draw for each unit, so that no other row has a say."""
        share = self.study.evaluation.share
        rng = self._draws.generator(f"held out {self.study.digest.hex()}")
        drawn = rng.random(int(self._units.max(initial=-1)) + 1) < share
        return np.asarray(drawn[self._units])

    @cached_property
    def _is_used(self) -> BoolArray:  # (n_rows,)
        """All rows, or the first few of each person."""
        if self.plan.unit == "row":
            return np.ones(self._data.n_rows, bool)
        order = np.argsort(self._units, kind="stable")
        sorted_units = self._units[order]
        starts = np.searchsorted(sorted_units, sorted_units)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order)) - starts
        return np.asarray(place < self.plan.most_rows_per_person)

    def n_rows(self, split: RowSplit) -> int:
        """How many are used in a split: a number that no row's content moves."""
        return int((self._in(split) & self._is_used).sum())

    def _in(self, split: RowSplit) -> BoolArray:
        return self._is_held_out if split is RowSplit.EVALUATION else ~self._is_held_out

    def sampled(self, split: RowSplit, asked: bytes) -> BoolArray:  # (n_rows,)
        """The used rows of a split that take part in the answer to this question.

        Each row, or person, by a draw of its own that the client's secret decides, and never the
        seed: the less anybody knows who took part, the less an answer tells. Another question has
        other draws, or a server that asks two would ask of the same rows twice.
        """
        used = self._in(split) & self._is_used
        if self.plan.sampled == 1:
            return np.ones(int(used.sum()), bool)
        about = self.study.digest + f"sampled {self.fingerprint}\x1f".encode() + asked
        bits = KeyedBits(self._draws.key, hashlib.sha256(about).digest())
        drawn = bits.many_below(_DRAWS, int(self._units.max(initial=-1)) + 1)
        taken = drawn < math.floor(self.plan.sampled * _DRAWS)
        return np.asarray(taken[self._units][used])

    def contexts(self, split: RowSplit) -> FloatArray:  # (n_rows, n_features)
        """The contexts of used rows of a split, as they are but for what no number can be.

        Nothing that is computed from them may overflow: a refusal would tell of the row.
        """
        own = np.asarray(self._data.contexts[:])[self._in(split) & self._is_used]
        middle, unit = middles_and_units(self.study.features, self.plan.ranges)
        return np.clip(own, middle - _FARTHEST * unit, middle + _FARTHEST * unit)

    def units(self, split: RowSplit, n_terms: int) -> FloatArray:  # (n_rows, n_terms)
        """The first so many terms of the same rows, in units of the study."""
        contexts, terms = self.contexts(split), self.study.terms
        return self.scales.units(contexts if terms is None else terms.of(contexts, n_terms))

    def outcomes(self, split: RowSplit) -> FloatArray:  # (n_rows,)
        """Outcomes from the middle of their range, within it."""
        found = np.asarray(self._data.rewards[:])[self._in(split) & self._is_used]
        half = self.scales.half_range
        return np.clip(found - self.scales.outcome_centre, -half, half)

    def actions(self, split: RowSplit) -> IntArray:  # (n_rows,)
        """What was done."""
        return np.asarray(self._data.actions[:])[self._in(split) & self._is_used]

    def by_unit(self, numbers: FloatArray, split: RowSplit) -> FloatArray:  # (n_units, n_columns)
        """Numbers by row added up for each person; as they are where rows stand for themselves."""
        if self.plan.unit == "row":
            return numbers
        whose = self._units[self._in(split) & self._is_used]
        codes, place = np.unique(whose, return_inverse=True)
        found = np.zeros((len(codes), numbers.shape[1]))
        np.add.at(found, place, numbers)
        return found

    def known_chances(self, split: RowSplit) -> FloatArray | None:  # (n_rows,)
        """How likely what was done was, where that is known."""
        given = self._data.propensities
        if given is None:
            return None
        own = np.asarray(given[:])[self._in(split) & self._is_used]
        if own.ndim > 1:
            own = own[np.arange(len(own)), self.actions(split)]
        return own

    def on_grid(self, split: RowSplit, chances: FloatArray, n_terms: int) -> GridRows:
        """The rows of a split with the first so many terms, bounded."""
        scaled = self.units(split, n_terms)
        squares = (scaled**2).sum(axis=1)
        # Rows far out count for less, and are not moved: so what is linear stays linear.
        radius = Bounds(n_terms, self.study.n_actions).radius
        weights = np.minimum(1.0, radius / np.sqrt(np.maximum(squares, 1e-12)))
        features = truncated(np.column_stack([scaled, np.ones(len(scaled))]) * weights[:, None])
        outcomes = truncated(weights * self.outcomes(split) / self.scales.outcome_unit)
        return GridRows(
            features=features,
            outcomes=outcomes,
            actions=self.actions(split),
            chances=chances,
            lengths=np.sqrt((features**2).sum(axis=1)) / GRID,
        )
