"""Folds that do not depend on the order of the rows, on rewards, or on the names of actions.

Each row gets a key, a seeded hash of its contexts (of its group, if there are groups). Within an
action, rows are assigned to folds in the order of their keys. So the same table in another order
gives every row the same fold, and nobody's reward can change a fold. Rows that agree in contexts
and action are distinguished by the rest of their content, and on disk by their position.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fedopl.base.arrays import BoolArray, IntArray, ascends, check_whole
from fedopl.base.computed_once import computed_once
from fedopl.base.errors import DataError
from fedopl.client.disclosure.held_values import NOTHING_HELD, HeldValues
from fedopl.client.disk.disk_array import slices
from fedopl.client.disk.external_sort import SortKeys
from fedopl.client.rows.fold_turns import (
    by_stratum,
    cached_beside,
    first_turns,
    folds_on_disk,
    places_in_runs,
)
from fedopl.client.rows.row_keys import content_order, group_keys, row_keys, scramble
from fedopl.client.table.logged_data import LoggedData

FoldArray = NDArray[np.uint16]

MOST_FOLDS = 1000
# The fewest groups that are held out, and that stay: one group shows no spread.
FEWEST_GROUPS = 2
NOBODY = np.zeros(1, np.int64)  # is held out, of any stratum


@dataclass(frozen=True, eq=False, kw_only=True)
class Folds:
    """The fold of each row, k_c : [n_c] → [K] in Algorithm 3.

    Held-out rows have the number `n_folds`: nothing is ever learned from them. For data on disk the
    folds are on disk, too, and only those of a `part` can be read.
    """

    of_row: FoldArray  # (n_rows,)
    n_folds: int
    reason: str  # why there are this many
    any_held_out: bool | None = None  # if that is already known

    def part(self, rows: slice) -> "Folds":
        """The folds of these rows, in memory; `n_parts` is the same as for all rows."""
        return self.with_rows(self.of_row[rows])

    def taken(self, order: IntArray) -> "Folds":
        """The folds of the rows in this order."""
        return self.with_rows(self.of_row.take(order))

    def with_rows(self, of_row: FoldArray) -> "Folds":
        """The folds of some of the rows, which are given."""
        return replace(self, of_row=of_row, any_held_out=self.n_parts > self.n_folds)

    @computed_once
    def ascend(self) -> bool:
        """Whether the rows are sorted by fold."""
        return ascends(self.of_row)

    @computed_once
    def begins(self) -> list[int]:
        """For sorted rows: where each fold begins, where held-out rows begin, and the end."""
        wanted = np.arange(self.n_folds + 2, dtype=self.of_row.dtype)
        begins: list[int] = self.of_row.searchsorted(wanted).tolist()
        return begins

    @property
    def held_out(self) -> BoolArray:  # (n_rows,)
        """The rows that nothing is learned from."""
        return np.asarray(self.of_row == self.n_folds)

    @property
    def n_parts(self) -> int:
        """The number of folds, and one more if rows are held out."""
        if self.any_held_out is None:
            return self.n_folds + bool(self.held_out.any())
        return self.n_folds + self.any_held_out

    def rows_in(self, part: int) -> BoolArray | slice:
        """The rows of a fold, or those held out; a slice if rows are sorted by fold."""
        if self.ascend:
            return slice(self.begins[part], self.begins[part + 1])
        return np.asarray(self.of_row == part)

    def learns_from(self, part: int) -> BoolArray:  # (n_rows,)
        """The rows from which the models for this part are learned."""
        return np.asarray((self.of_row != part) & ~self.held_out)


def assign_folds(data: LoggedData, n_folds: int, seed: int) -> Folds:
    """Assign the rows, or the groups of rows, to folds with similar shares of actions."""
    check_whole(n_folds, "folds", 2, MOST_FOLDS)
    (keys,), strata = _units(data, seed, ("folds",))
    used, reason = _number_of_folds(n_folds, strata, data)
    return Folds(of_row=_of_rows(data, stratified(keys, strata, used)), n_folds=used, reason=reason)


def assign_folds_and_hold_out(
    data: LoggedData,
    n_folds: int,
    share: float,
    seed: int,
    *,
    used: int | None = None,
    held: HeldValues = NOTHING_HELD,
) -> Folds:
    """Hold out a share of the rows for evaluation, and assign the others to exactly `n_folds`.

    With `used`, only so many of the folds have rows. Rows on disk count with what is `held`.
    """
    check_whole(n_folds, "folds", 2, MOST_FOLDS)
    used = used or n_folds
    if data.is_on_disk and data.groups is None:
        quotas = quotas_of(data.rows_per_action, share)
        of_row = folds_on_disk(data, (n_folds, used), share, quotas, seed, held)
    else:
        # A group's stratum may depend on the first key. So that key is the same whatever the share.
        purposes = ("evaluation", "folds") if share or data.groups is not None else ("folds",)
        (*earlier, keys), strata = _units(data, seed, purposes)
        fewest = 0 if data.groups is None else FEWEST_GROUPS
        order = None if data.groups is not None else content_order(data)
        if order is not None:
            earlier, keys, strata = [own[order] for own in earlier], keys[order], strata[order]
        quotas = quotas_of(np.bincount(strata), share, fewest) if share else NOBODY
        if np.count_nonzero(quotas):
            stays = ~_held_out(earlier[0], strata, quotas)
            folds = np.full(len(keys), n_folds, np.uint16)
            folds[stays] = stratified(keys[stays], strata[stays], used)
        else:
            folds = stratified(keys, strata, used)
        if order is not None:
            folds[order] = folds.copy()
        of_row = _of_rows(data, folds, f"folds {n_folds} {used} {share!r} {seed}")
    return as_agreed(of_row, n_folds, any_held_out=bool(np.count_nonzero(quotas)))


def as_agreed(of_row: FoldArray, n_folds: int, *, any_held_out: bool | None = None) -> Folds:
    """The folds of rows that were assigned to exactly as many folds as were agreed."""
    reason = f"{n_folds} folds as agreed"
    return Folds(of_row=of_row, n_folds=n_folds, reason=reason, any_held_out=any_held_out)


def stratified(keys: SortKeys, strata: IntArray, n_folds: int) -> FoldArray:
    """Assign units to folds in turn, one stratum after the other, each in the order of its keys.

    Folds differ by at most one unit, in each stratum and in total. The largest stratum goes first,
    so that names and codes of strata change nothing.
    """
    order = by_stratum(keys, strata)
    counts = np.bincount(strata)
    starts = counts.cumsum() - counts
    smallest = keys[order[np.minimum(starts, len(keys) - 1)]]
    turn = np.arange(len(keys)) + (first_turns(counts, smallest) - starts).repeat(counts)
    folds = np.empty(len(keys), np.uint16)
    folds[order] = turn % n_folds
    return folds


def _number_of_folds(asked: int, strata: IntArray, data: LoggedData) -> tuple[int, str]:
    """The number of folds, fewer than asked for if an action has fewer rows, and the reason."""
    units = "rows" if data.groups is None else "groups"
    if len(strata) < 2:
        raise DataError(
            f"cross-fitting needs at least 2 {units}, came {len(strata)}; "
            "use scores from a client with more data, or known nuisances"
        )
    counts = np.bincount(strata, minlength=data.n_actions)
    fewest = int(min(counts[counts >= 2], default=2))
    used = max(2, min(asked, fewest, len(strata)))
    if used == asked:
        return used, f"{used} folds as asked"
    return used, f"{used} folds instead of {asked}: an action has only {fewest} {units}"


# --- holding out -----------------------------------------------------------------------------


def quotas_of(counts: IntArray, share: float, fewest: int = 0) -> IntArray:  # (n_strata,)
    """How many units of each stratum are held out; at least one unit in all stays to learn from.

    On either side there are at least `fewest`, if there are enough for both.
    """
    if not share:
        return np.zeros_like(counts)
    quotas: IntArray = np.rint(share * counts).astype(np.int64)
    if counts.sum() >= 2 * fewest:
        while quotas.sum() < fewest:
            quotas[(counts - quotas).argmax()] += 1
        while (counts - quotas).sum() < fewest:
            quotas[quotas.argmax()] -= 1
    if (quotas == counts).all():
        # A share of nearly one would leave nothing to learn from.
        quotas[np.flatnonzero(counts)[-1]] -= 1
    return quotas


def _held_out(keys: SortKeys, strata: IntArray, quotas: IntArray) -> BoolArray:  # (n_units,)
    """The units to hold out: in each stratum, as many as its quota, with the smallest keys."""
    held_out = np.zeros(len(keys), np.bool_)
    order = _with_ties_broken(keys, strata)
    counts = np.bincount(strata)
    starts = np.cumsum(counts) - counts
    for start, quota in zip(starts, quotas, strict=True):
        held_out[order[start : start + quota]] = True
    return held_out


def _with_ties_broken(keys: SortKeys, strata: IntArray) -> IntArray:  # (n_units,)
    """The order by stratum and key; units that repeat an earlier unit's key get another one.

    Otherwise all rows that agree in contexts would be held out together, or none of them.
    """
    order = by_stratum(keys, strata)
    ordered = keys[order]
    same = ordered[1:] == ordered[:-1]
    if same.any():
        same &= strata[order[1:]] == strata[order[:-1]]
    if not same.any():
        return order
    again, unique = places_in_runs(np.append(True, ~same)), keys.copy()
    repeated = order[again > 0]
    unique[repeated] = scramble(keys[repeated] + again[again > 0].astype(np.uint64))
    return by_stratum(unique, strata)


# --- rows or groups --------------------------------------------------------------------------


def _units(
    data: LoggedData, seed: int, purposes: tuple[str, ...]
) -> tuple[SortKeys, IntArray]:  # (n_purposes, n_units) and (n_units,)
    """Keys and strata: for rows their action, for groups the action they took most often."""
    if data.groups is None:
        return row_keys(data.contexts, seed, purposes), data.actions
    taken = _taken_by_group(data, data.groups)
    keys = group_keys(len(taken), seed, purposes)
    # A group that took two actions equally often counts with the rarer one. This must not depend on
    # codes either. So equally rare actions are ordered by the keys of the groups that took them.
    by_rarity = np.lexsort((keys[0] @ taken.astype(np.uint64), taken.sum(axis=0)))
    return keys, by_rarity[taken[:, by_rarity].argmax(axis=1)]


def _taken_by_group(data: LoggedData, groups: IntArray) -> IntArray:  # (n_groups, n_actions)
    """How often each group took each action; an array by group does fit in memory."""
    taken = np.zeros(data.n_groups * data.n_actions, np.int64)
    for rows in slices(data.n_rows):
        taken_by = groups[rows].astype(np.int64) * data.n_actions + data.actions[rows]
        np.add.at(taken, taken_by, 1)
    return taken.reshape(-1, data.n_actions)


def _of_rows(data: LoggedData, folds: FoldArray, name: str = "") -> FoldArray:  # (n_rows,)
    """The fold of each row, given those of rows or groups; in a file for rows on disk."""
    groups = data.groups
    if groups is None:
        return folds
    if not data.is_on_disk:
        return folds[groups]
    parts = (folds[groups[rows]] for rows in slices(data.n_rows))
    of_row: FoldArray = cached_beside(data, name, np.uint16, parts)
    return of_row
