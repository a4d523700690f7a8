"""The rows of one client in a study with differential privacy, in chunks.

Who is held out, and who takes part in a step, follows from what rows hold and never from where
they lie. Rows in memory are one chunk, rows on disk are many. Of each row on disk, six bytes stay
in memory. Answers are the same to the last bit: rows are bounded and on a grid, where all sums are
exact, whatever the order of rows and the size of blocks.

A row is known by a keyed hash of all that it holds, a person by the sum of the hashes of its rows.
Equal ones are numbered: first copy, second copy, and so on. So the same rows in another order have
the same draws, and one row more or less changes the draw of no other. Without the key, nobody can
look for other rows with the same hashes or sums (Clarke et al. 2003, MSet-Add-Hash): two that
differ agree with a probability of 2⁻¹²⁸.
"""

import hashlib
import hmac
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.errors import DataError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.disk.disk_array import slices
from fedopl.client.disk.external_sort import (
    LARGEST,
    RECORDS_PER_BUCKET,
    RecordOrder,
    Records,
    Sorter,
    SortKeys,
    sorted_records,
    sorting_folder,
)
from fedopl.client.disk.prefetch import prefetched
from fedopl.client.rows.chunks import ROWS_PER_CHUNK
from fedopl.client.rows.fold_turns import numbered, records_of
from fedopl.client.table.logged_data import ROW_ARRAYS, LoggedData, folder_of
from fedopl.messages.message import RowSplit
from fedopl.privacy.exact_noise import FINE, GRID, KeyedBits
from fedopl.study.private.private_setting import Bounds, PrivateSetting
from fedopl.study.private.private_units import Scales, middles_and_units
from fedopl.study.study import Study

_FARTHEST = 1e9  # units from the middle of a range; so far out, a row counts for nothing
# The number of values that a draw can have. A share of them is rounded down.
_DRAWS = 2**32
WORDS = ("first", "second")  # the two halves of a hash
UNIT = np.dtype([("first", "<u8"), ("second", "<u8"), ("unit", "<u8")])
ROW_OF_PERSON = np.dtype([("person", "<u8"), *UNIT.descr[:2], ("row", "<u8")])


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


@dataclass(frozen=True, eq=False, kw_only=True)
class UnitDraws:
    """What is drawn for each unit, a row or a person."""

    fingerprint: str  # a hash of all units, in no order
    is_held_out: BoolArray  # (n_units,)
    rank: IntArray  # (n_units,), by hash: the order in which further draws are given out
    is_used: BoolArray  # (n_rows,), all rows, or a few of each person


class PrivateRows:
    """One client's rows in a study with differential privacy."""

    def __init__(self, data: LoggedData, study: Study, draws: PrivateDraws) -> None:
        self.given, self.study, self._draws = data, study, draws
        setting = PrivateSetting(study)
        self.plan, self.scales = setting.plan, setting.scales
        self.plan.check_rows(draws.client, data.n_rows)
        if self.plan.unit == "person" and data.groups is None:
            raise DataError(
                f'{draws.client}: unit = "person", but no column names the person of each row; '
                "name it as group under [rows]"
            )

    @property
    def fingerprint(self) -> str:
        """A hash of the rows in any order: it changes whenever one of them does.

        It does not depend on where they are kept. Noise follows from it, and the same sums with
        other noise would disclose more than either.
        """
        return self._drawn.fingerprint

    # --- whose rows are used for what -----------------------------------------------------------

    @cached_property
    def _drawn(self) -> UnitDraws:
        """What is drawn for each row, or person, by the client's secret and by what it holds."""
        most = None if self.plan.unit == "row" else self.plan.most_rows_per_person
        about = b"units %s" % self.study.agreed_digest
        share = self.study.evaluation.share
        key = hmac.digest(self._draws.key, about, "sha256")
        return drawn_by_content(self.given, key, share, most, ROWS_PER_CHUNK)

    def _whose(self, rows: slice) -> IntArray:  # (n_rows,)
        """The unit of each of these rows: the row itself, or its person."""
        groups = None if self.plan.unit == "row" else self.given.groups
        if groups is None:
            return np.arange(*rows.indices(self.given.n_rows))
        return np.asarray(groups[rows], np.int64)

    @cached_property
    def is_held_out(self) -> BoolArray:  # (n_rows,)
        """The rows that nothing is learned from."""
        held_out, parts = self._drawn.is_held_out, self.given.slices(ROWS_PER_CHUNK)
        if self.plan.unit == "row":
            return held_out
        return np.concatenate([held_out[self._whose(rows)] for rows in parts])

    @cached_property
    def _is_used(self) -> BoolArray:  # (n_rows,)
        """The rows that are used: all, or a few of each person."""
        return self._drawn.is_used

    def n_rows(self, split: RowSplit) -> int:
        """How many rows are used in a split: each has a draw of its own, whatever it holds."""
        return sum(int(self._in(split, rows).sum()) for rows in self.given.slices(ROWS_PER_CHUNK))

    def _in(self, split: RowSplit, rows: slice) -> BoolArray:  # (n_rows,)
        """Which of these rows are used in a split."""
        is_wanted = split is RowSplit.EVALUATION
        return np.asarray(self._is_used[rows] & (self.is_held_out[rows] == is_wanted))

    def sampled(self, asked: bytes) -> BoolArray:  # (n_units,)
        """The units whose rows take part in the answer to this question.

        Each row, or person, has a draw of its own. The client's secret decides it, never the seed:
        the less anybody knows who took part, the less an answer discloses. Another question has
        other draws. Otherwise a server with two questions would ask about the same rows twice.
        """
        rank = self._drawn.rank
        if self.plan.sampled == 1:
            return np.ones(len(rank), bool)
        about = self.study.digest + f"sampled {self.fingerprint}\x1f".encode() + asked
        bits = KeyedBits(self._draws.key, hashlib.sha256(about).digest())
        below = math.floor(self.plan.sampled * _DRAWS)
        taken = np.empty(len(rank), bool)
        for units in slices(len(rank), ROWS_PER_CHUNK):
            taken[units] = bits.many_below(_DRAWS, units.stop - units.start) < below
        return np.asarray(taken[rank])

    # --- the rows themselves --------------------------------------------------------------------

    def chunks(self, split: RowSplit) -> Iterator[PrivateChunk]:
        """The used rows of a split, in their order."""
        self._in(split, slice(0, 0))  # computed once, before several threads need it
        return prefetched(partial(self._chunk, split), self.given.slices(ROWS_PER_CHUNK))

    def _chunk(self, split: RowSplit, rows: slice) -> PrivateChunk:
        own = self._in(split, rows)
        part = self.given.part(rows)
        actions, half = part.actions[own], self.scales.half_range
        chances = None if part.propensities is None else part.propensities[own]
        if chances is not None and chances.ndim > 1:
            chances = chances[np.arange(len(chances)), actions]
        # Nothing computed from contexts may overflow: a refusal would disclose something of them.
        middle, unit = middles_and_units(self.study.features, self.plan.ranges)
        farthest = _FARTHEST * unit
        return PrivateChunk(
            study=self.study,
            scales=self.scales,
            contexts=np.clip(part.contexts[own], middle - farthest, middle + farthest),
            outcomes=np.clip(part.rewards[own] - self.scales.outcome_centre, -half, half),
            actions=actions,
            known_chances=chances,
            whose=self._whose(rows)[own],
        )

    def by_unit(
        self, parts: Iterable[tuple[IntArray, FloatArray]]
    ) -> Iterator[FloatArray]:  # (n_units, n_columns) each
        """Numbers of held-out rows, added up for each person; `parts` say whose each row is.

        If the unit is a row, the numbers are returned as they are. A person's rows may lie
        anywhere, so the totals of all persons are in memory.
        """
        if self.plan.unit == "row":
            yield from (numbers for _, numbers in parts)
            return
        persons = np.flatnonzero(self._drawn.is_held_out)
        totals = np.zeros((0, 0))
        for whose, numbers in parts:
            if not totals.size:
                totals = np.zeros((len(persons), numbers.shape[1]))
            # On a grid, towards zero: sums are exact in any order, and nothing gets larger.
            on_grid = np.trunc(numbers * FINE) / FINE
            np.add.at(totals, np.searchsorted(persons, whose), on_grid)
        yield from (totals[some] for some in slices(len(totals), ROWS_PER_CHUNK))


# --- draws for rows or persons, from what they hold and not from where they are ------------------


def drawn_by_content(
    data: LoggedData, key: bytes, share: float, most: int | None, at_once: int
) -> UnitDraws:
    """Draws by this key for each row, or for each person if only its `most` rows are used.

    A share of them is held out. Rows on disk are read `at_once`, and sorted in files.
    """
    n_units = data.n_rows if most is None else data.n_groups
    is_used, is_held_out = np.ones(data.n_rows, bool), np.zeros(n_units, bool)
    units = _rows(data, key, at_once)
    if most is not None:
        units = _persons(data, units, n_units, most, at_once, is_used)
    rank = np.zeros(n_units, np.min_scalar_type(n_units))
    fingerprint, n_so_far = hashlib.sha256(), 0
    for records, copies in numbered(_ascending(data, units, UNIT, WORDS), WORDS):
        hashes, own = _words(records), records["unit"]
        fingerprint.update(hashes.tobytes())
        draws = _hashed(np.column_stack([hashes, copies.astype(np.uint64)]), key, b"held out")
        is_held_out[own] = draws[:, 0] < np.uint64(share * 2**64)
        rank[own] = np.arange(n_so_far, n_so_far := n_so_far + len(own))
    return UnitDraws(
        fingerprint=fingerprint.hexdigest(), is_held_out=is_held_out, rank=rank, is_used=is_used
    )


def _rows(data: LoggedData, key: bytes, at_once: int) -> Iterator[Records]:
    """The hash of each row, with its place."""
    for rows in slices(data.n_rows, at_once):
        part = data.part(rows)
        # Not groups: their codes depend on which rows there are.
        columns = [getattr(part, name) for name in ROW_ARRAYS if name != "groups"]
        numbers = np.column_stack([own for own in columns if own is not None]).astype(np.float64)
        places = np.arange(*rows.indices(rows.stop))
        yield _records(UNIT, _hashed(numbers, key, b"row"), unit=places)


def _persons(
    data: LoggedData,
    hashed: Iterable[Records],
    n_persons: int,
    most: int,
    at_once: int,
    is_used: BoolArray,
) -> Iterator[Records]:
    """The sum of the hashes of each person's rows; those with the smallest hashes are used."""
    groups: Any = data.groups

    def rows() -> Iterator[Records]:
        for records, part in zip(hashed, slices(data.n_rows, at_once), strict=True):
            yield _records(ROW_OF_PERSON, _words(records), person=groups[part], row=records["unit"])

    sums = np.zeros((n_persons, 2), np.uint64)
    by_person = _ascending(data, rows(), ROW_OF_PERSON, ("person", *WORDS), n_persons - 1)
    for records, places in numbered(by_person, ("person",)):
        is_used[records["row"]] = places < most
        np.add.at(sums, records["person"], _words(records))  # each half modulo 2⁶⁴
    for some in slices(n_persons, at_once):
        persons = some.start + np.flatnonzero(sums[some].any(axis=1))  # those with rows
        yield _records(UNIT, sums[persons], unit=persons)


def _records(dtype: np.dtype[Any], hashes: SortKeys, **fields: NDArray[Any]) -> Records:
    return records_of(dtype, **dict(zip(WORDS, hashes.T, strict=True)), **fields)


def _words(records: Records) -> SortKeys:  # (n_records, 2)
    return np.column_stack([records[name] for name in WORDS])


def _hashed(numbers: NDArray[Any], key: bytes, purpose: bytes) -> SortKeys:  # (n_rows, 2)
    """A keyed hash of each row of numbers."""
    keyed = hashlib.blake2b(digest_size=16, key=key, person=purpose)

    def digest(row: Any) -> bytes:
        own = keyed.copy()
        own.update(row)
        return own.digest()

    content = np.ascontiguousarray(numbers)
    rows = content.view(np.dtype((np.void, content.itemsize * content.shape[1]))).ravel().tolist()
    return np.frombuffer(b"".join(map(digest, rows)), "<u8").reshape(-1, 2)


def _ascending(
    data: LoggedData,
    parts: Iterable[Records],
    dtype: np.dtype[Any],
    by: tuple[str, ...],
    most: int = LARGEST,
) -> Iterator[Records]:
    """All records in this order; in files beside the rows if those are on disk.

    `most` is the largest possible value of the first key.
    """
    if not data.is_on_disk:
        yield sorted_records(np.concatenate(list(parts)), by)
        return
    n_bytes = 2 * data.n_rows * dtype.itemsize
    with sorting_folder(folder_of(data), n_bytes, "sorting rows") as own:
        order = RecordOrder(dtype, by, RECORDS_PER_BUCKET)
        sorter = Sorter(own / "records", order, data.n_rows, between=(0, most))
        for records in parts:
            sorter.add(records)
        yield from sorter.ascending()
