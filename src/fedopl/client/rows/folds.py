"""Folds that do not depend on the order of the rows, on rewards, or on what actions are called.

Each row gets a key, a seeded hash of its contexts (of its group, where there are groups). Within an
action, rows are dealt to the folds in the order of their keys. So the same table in another order
gives every row the same fold, and nobody's reward can move a fold. Only rows that agree in contexts
and action are told apart by their position.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedopl.base.arrays import BoolArray, FloatArray, IntArray, ascends, frozen
from fedopl.base.errors import DataError
from fedopl.base.options import check_whole
from fedopl.base.seeds import generator_for
from fedopl.client.disk.disk_array import cached_array, slices
from fedopl.client.disk.external_sort import RECORDS_PER_BUCKET, Keys, Records
from fedopl.client.disk.prefetch import prefetched
from fedopl.client.rows.fold_turns import (
    CANDIDATE,
    HELD_OUT,
    by_stratum,
    first_turns,
    scramble,
    turns_on_disk,
)
from fedopl.client.table.logged_data import LoggedData, folder_of

FoldArray = NDArray[np.uint16]

ROWS_PER_BLOCK = 4096
MOST_FOLDS = 1000
# Of contexts, read from a file.
BYTES_PER_SLICE = 1 << 24


@dataclass(frozen=True, eq=False, kw_only=True)
class Folds:
    """The fold of each row, k_c : [n_c] → [K] in Algorithm 3.

    Rows set apart for evaluation have the number `n_folds`: nothing is ever learned from them.
    Of data on disk the folds are on disk, too, and only those of a `part` can be asked.
    """

    of_row: FoldArray  # (n_rows,)
    n_folds: int
    reason: str  # why there are this many
    any_held_out: bool | None = None  # where that is known already

    def part(self, rows: slice) -> "Folds":
        """The folds of these rows, in memory; there are as many parts as for all rows."""
        return self.with_rows(self.of_row[rows])

    def taken(self, order: IntArray) -> "Folds":
        """The folds of rows that come in this order."""
        return self.with_rows(self.of_row.take(order))

    def with_rows(self, of_row: FoldArray) -> "Folds":
        """The folds of some of the rows, given these."""
        return replace(self, of_row=of_row, any_held_out=self.n_parts > self.n_folds)

    @cached_property
    def ascend(self) -> bool:
        """Whether the rows come fold after fold."""
        return ascends(self.of_row)

    @cached_property
    def begins(self) -> list[int]:
        """Where each fold begins, where the rows set apart do, and the end; of folds that ascend.

        It belongs to the folds, so that it is found once, whatever is later known of their rows.
        """
        wanted = np.arange(self.n_folds + 2, dtype=self.of_row.dtype)
        begins: list[int] = np.searchsorted(self.of_row, wanted).tolist()
        return begins

    @property
    def held_out(self) -> BoolArray:  # (n_rows,)
        """The rows that nothing is learned from."""
        apart: BoolArray = self.of_row == self.n_folds
        return apart

    @property
    def n_parts(self) -> int:
        """The folds, and one more if rows are set apart."""
        if self.any_held_out is None:
            return self.n_folds + bool(self.held_out.any())
        return self.n_folds + self.any_held_out

    def learns_from(self, part: int) -> BoolArray:  # (n_rows,)
        """The rows from which the models for this part are learned."""
        rows: BoolArray = (self.of_row != part) & ~self.held_out
        return rows


def assign_folds(data: LoggedData, n_folds: int, seed: int) -> Folds:
    """Deal the rows, or the groups of rows, to folds that are alike in actions."""
    check_whole(n_folds, "folds", 2, MOST_FOLDS)
    (keys,), strata, units = _units(data, seed, ("folds",))
    used, reason = _number_of_folds(n_folds, strata, data.n_actions, units)
    return Folds(of_row=_spread(data, deal(keys, strata, used)), n_folds=used, reason=reason)


def assign_folds_and_hold_out(data: LoggedData, n_folds: int, share: float, seed: int) -> Folds:
    """Set a share of the rows apart for evaluation, and deal the others to just so many folds."""
    check_whole(n_folds, "folds", 2, MOST_FOLDS)
    if data.is_on_disk and data.groups is None:
        return _assign_on_disk(data, n_folds, share, seed)
    purposes = ("evaluation", "folds") if share or data.groups is not None else ("folds",)
    (*earlier, keys), strata, _ = _units(data, seed, purposes)
    quotas = _quotas(np.bincount(strata), share)
    if quotas.any():
        stays = ~_set_apart(earlier[0], strata, quotas)
        hands = np.full(len(keys), n_folds, np.uint16)
        hands[stays] = deal(keys[stays], strata[stays], n_folds)
    else:
        hands = deal(keys, strata, n_folds)
    return Folds(
        of_row=_spread(data, hands, f"folds {n_folds} {share!r} {seed}"),
        n_folds=n_folds,
        reason=f"{n_folds} folds as agreed",
        any_held_out=bool(quotas.any()),
    )


def _set_apart(keys: Keys, strata: IntArray, quotas: IntArray) -> BoolArray:
    """Of each stratum, so many with the smallest keys."""
    apart = np.zeros(len(keys), np.bool_)
    order = _told_apart(keys, strata)
    counts = np.bincount(strata)
    starts = np.cumsum(counts) - counts
    for start, quota in zip(starts, quotas, strict=True):
        apart[order[start : start + quota]] = True
    return apart


def _quotas(counts: IntArray, share: float) -> IntArray:  # (n_strata,)
    """How many of each stratum are set apart; one at least, of all, stays to learn from."""
    if not share:
        return np.zeros_like(counts)
    quotas: IntArray = np.rint(share * counts).astype(np.int64)
    if (quotas == counts).all():
        quotas[np.flatnonzero(counts)[-1]] -= 1
    return quotas


def _told_apart(keys: Keys, strata: IntArray) -> IntArray:
    """The order by stratum and key, with other keys for items with the key of an earlier one.

    Otherwise all rows that agree in contexts would be set apart together, or none of them.
    """
    order = by_stratum(keys, strata)
    ordered = keys[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        same &= strata[order[1:]] == strata[order[:-1]]
    if not same.any():
        return order
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    lengths = np.diff(np.append(first, len(keys)))
    again = np.arange(len(keys)) - np.repeat(first, lengths)
    told = keys.copy()
    repeated = order[again > 0]
    told[repeated] = scramble(keys[repeated] + again[again > 0].astype(np.uint64))
    return by_stratum(told, strata)


def deal(keys: Keys, strata: IntArray, n_hands: int) -> FoldArray:
    """Deal items to hands like cards, one stratum after the other, each in the order of its keys.

    Hands differ by at most one item, in each stratum and in all. The largest stratum goes first,
    so that names and codes of strata change nothing.
    """
    order = by_stratum(keys, strata)
    counts = np.bincount(strata)
    starts = np.cumsum(counts) - counts
    smallest = keys[order[np.minimum(starts, len(keys) - 1)]]
    turn = np.arange(len(keys)) + np.repeat(first_turns(counts, smallest) - starts, counts)
    hands = np.empty(len(keys), np.uint16)
    hands[order] = turn % n_hands
    return hands


def _units(
    data: LoggedData, seed: int, purposes: tuple[str, ...]
) -> tuple[Keys, IntArray, str]:  # keys (n_purposes, n_units)
    """What is dealt: rows by their action, or whole groups by the action they mostly took."""
    if data.groups is None:
        multipliers = _multipliers(data.n_features, seed, purposes)
        return _hashes(data.contexts, multipliers), data.actions, "rows"
    taken = _taken_by_group(data, data.groups)
    drawn = np.stack([_odd_numbers(seed, purpose, 2) for purpose in purposes])
    codes = np.arange(len(taken), dtype=np.uint64)
    keys = scramble(codes * drawn[:, :1] + drawn[:, 1:])
    # Groups that took two actions equally often count with the rarer one; that, too, must not
    # depend on codes, so actions that are equally rare are told apart by who took them.
    by_rarity = np.lexsort((keys[0] @ taken.astype(np.uint64), taken.sum(axis=0)))
    return keys, by_rarity[taken[:, by_rarity].argmax(axis=1)], "groups"


def _taken_by_group(data: LoggedData, groups: IntArray) -> IntArray:  # (n_groups, n_actions)
    """How often each group took each action; what is known of each group does fit in memory."""
    taken = np.zeros(data.n_groups * data.n_actions, np.int64)
    for rows in slices(data.n_rows):
        cells = groups[rows].astype(np.int64) * data.n_actions + data.actions[rows]
        np.add.at(taken, cells, 1)
    return taken.reshape(-1, data.n_actions)


def _spread(data: LoggedData, hands: FoldArray, name: str = "") -> FoldArray:
    groups = data.groups
    if groups is None:
        return hands
    if not data.is_on_disk:
        return hands[groups]
    spread = (hands[groups[rows]] for rows in slices(data.n_rows))
    of_row: FoldArray = _kept(data, name, np.uint16, spread)
    return of_row


def _number_of_folds(asked: int, strata: IntArray, n_actions: int, units: str) -> tuple[int, str]:
    if len(strata) < 2:
        raise DataError(
            f"cross-fitting needs at least 2 {units}, came {len(strata)}; "
            "use scores from a client with more data, or known nuisances"
        )
    counts = np.bincount(strata, minlength=n_actions)
    fewest = int(min(counts[counts >= 2], default=2))
    used = max(2, min(asked, fewest, len(strata)))
    if used == asked:
        return used, f"{used} folds as asked"
    return used, f"{used} folds instead of {asked}: an action has only {fewest} {units}"


def context_keys(data: LoggedData, seed: int, purpose: str) -> Keys:
    """A hash of each row's contexts."""
    keys: Keys = _hashes(data.contexts, _multipliers(data.n_features, seed, (purpose,)))[0]
    return keys


@cache
def _multipliers(n_features: int, seed: int, purposes: tuple[str, ...]) -> Keys:
    return frozen(np.stack([_odd_numbers(seed, purpose, n_features) for purpose in purposes]))


def _hashes(contexts: FloatArray, multipliers: Keys) -> Keys:  # (n_hashes, n_rows)
    """Multiply, add, scramble; with other multipliers, of shape (n_hashes, n_features), another."""
    keys = np.empty((len(multipliers), len(contexts)), np.uint64)
    half = np.uint64(32)
    for rows in slices(len(contexts), ROWS_PER_BLOCK):
        # The shift brings a float's sign, exponent and leading digits, all that small whole
        # numbers have, down to where a product can spread them upwards.
        bits = contexts[rows].view(np.uint64)
        mixed = bits >> half
        mixed ^= bits
        for own, factors in zip(keys, multipliers, strict=True):
            np.einsum("ij,j->i", mixed, factors, out=own[rows])
    return scramble(keys)


@cache
def _odd_numbers(seed: int, purpose: str, how_many: int) -> Keys:
    rng = generator_for(seed, purpose=purpose)
    return frozen(rng.integers(0, 2**64, how_many, dtype=np.uint64) | np.uint64(1))


# --- on disk ---------------------------------------------------------------------------------


def _assign_on_disk(data: LoggedData, n_folds: int, share: float, seed: int) -> Folds:
    """The same folds, with no more than a bucket of rows in memory; they stay beside the rows."""
    quotas = _quotas(data.rows_per_action, share)
    # Whatever the number of folds, rows take the same turns.
    turns = _kept(data, f"turns {share!r} {seed}", np.int64, _turns(data, quotas, seed))
    hands = (_hands(turns[rows], n_folds) for rows in slices(data.n_rows))
    return Folds(
        of_row=_kept(data, f"folds {n_folds} {share!r} {seed}", np.uint16, hands),
        n_folds=n_folds,
        reason=f"{n_folds} folds as agreed",
        any_held_out=bool(quotas.any()),
    )


def _kept(data: LoggedData, what: str, stored: DTypeLike, made: Iterator[NDArray[Any]]) -> Any:
    """An array beside the rows, made once for these rows; Any, as it stands for one in memory."""
    arrays: list[Any] = [data.contexts, data.actions, data.groups]
    rows = [f"{array.path} {array.digest}" for array in arrays if array is not None]
    name = hashlib.sha256(" ".join([what, *rows]).encode()).hexdigest()[:32]
    path = folder_of(data) / f"{what.split()[0]}-{name}"
    return cached_array(path, data.n_rows, stored, made)


def _turns(data: LoggedData, quotas: IntArray, seed: int) -> Iterator[IntArray]:
    return turns_on_disk(
        _records(data, seed), data.rows_per_action, quotas, folder_of(data), RECORDS_PER_BUCKET
    )


def _records(data: LoggedData, seed: int) -> Iterator[Records]:
    multipliers = _multipliers(data.n_features, seed, ("evaluation", "folds"))

    def made(rows: slice) -> Records:
        records = np.empty(rows.stop - rows.start, CANDIDATE)
        records["key"], records["fold_key"] = _hashes(data.contexts[rows], multipliers)
        records["row"] = np.arange(rows.start, rows.stop)
        records["stratum"] = data.actions[rows]
        return records

    n_at_once = max(1, BYTES_PER_SLICE // (8 * data.n_features))
    return prefetched(made, slices(data.n_rows, n_at_once))


def _hands(turns: IntArray, n_hands: int) -> FoldArray:
    return np.where(turns == HELD_OUT, n_hands, turns % n_hands).astype(np.uint16)
