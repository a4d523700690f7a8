"""Folds that do not depend on the order of the rows, on rewards, or on what actions are called.

Each row gets a key, a seeded hash of its contexts (of its group, where there are groups). Within an
action, rows are dealt to the folds in the order of their keys. So the same table in another order
gives every row the same fold, and nobody's reward can move a fold. Only rows that agree in contexts
and action are told apart by their position.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedopl.arrays import BoolArray, IntArray
from fedopl.client.logged_data import LoggedData
from fedopl.errors import DataError
from fedopl.options import check_whole
from fedopl.seeds import generator_for

Keys = NDArray[np.uint64]
FoldArray = NDArray[np.uint16]

ROWS_PER_BLOCK = 4096
MOST_FOLDS = 1000


@dataclass(frozen=True, eq=False, kw_only=True)
class Folds:
    """The fold of each row, k_c : [n_c] → [K] in Algorithm 3.

    Rows set apart for evaluation have the number `n_folds`: nothing is ever learned from them.
    """

    of_row: FoldArray  # (n_rows,)
    n_folds: int
    reason: str  # why there are this many

    @property
    def set_apart(self) -> BoolArray:  # (n_rows,)
        """The rows that nothing is learned from."""
        apart: BoolArray = self.of_row == self.n_folds
        return apart

    @property
    def n_parts(self) -> int:
        """The folds, and one more if rows are set apart."""
        return self.n_folds + bool(self.set_apart.any())

    def part(self, rows: slice) -> "Folds":
        """Those of these rows."""
        return Folds(of_row=self.of_row[rows], n_folds=self.n_folds, reason=self.reason)

    def learns_from(self, part: int) -> BoolArray:  # (n_rows,)
        """The rows from which the models for this part are learned."""
        rows: BoolArray = (self.of_row != part) & ~self.set_apart
        return rows


def assign_folds(data: LoggedData, n_folds: int, seed: int) -> Folds:
    """Deal the rows, or the groups of rows, to folds that are alike in actions."""
    check_whole(n_folds, "folds", 2, MOST_FOLDS)
    keys, strata, units = _units(data, seed, "folds")
    used, reason = _number_of_folds(n_folds, strata, data.n_actions, units)
    return Folds(of_row=_spread(data, deal(keys, strata, used)), n_folds=used, reason=reason)


def assign_folds_and_set_apart(data: LoggedData, n_folds: int, share: float, seed: int) -> Folds:
    """Set a share of the rows apart for evaluation, and deal the others to just so many folds."""
    check_whole(n_folds, "folds", 2, MOST_FOLDS)
    keys, strata, _ = _units(data, seed, "evaluation")
    apart = _set_apart(keys, strata, share)
    keys, _, _ = _units(data, seed, "folds")
    hands = np.full(len(keys), n_folds, np.uint16)
    if not apart.all():
        hands[~apart] = deal(keys[~apart], strata[~apart], n_folds)
    return Folds(of_row=_spread(data, hands), n_folds=n_folds, reason=f"{n_folds} folds as agreed")


def _set_apart(keys: Keys, strata: IntArray, share: float) -> BoolArray:
    """Of each stratum, the share with the smallest keys; one at least stays to learn from."""
    apart = np.zeros(len(keys), np.bool_)
    order = np.lexsort((_told_apart(keys, strata), strata))
    counts = np.bincount(strata)
    starts = np.cumsum(counts) - counts
    for start, count in zip(starts, counts, strict=True):
        apart[order[start : start + round(share * count)]] = True
    apart[order[-1]] &= not apart.all()
    return apart


def _told_apart(keys: Keys, strata: IntArray) -> Keys:
    """The keys, with others for the second and further items of a stratum with the same key.

    Otherwise all rows that agree in contexts would be set apart together, or none of them.
    """
    order = np.lexsort((keys, strata))
    same = (np.diff(keys[order]) == 0) & (np.diff(strata[order]) == 0)
    first = np.flatnonzero(np.concatenate([[True], ~same]))
    lengths = np.diff(np.append(first, len(keys)))
    again = np.arange(len(keys)) - np.repeat(first, lengths)
    told = keys.copy()
    repeated = order[again > 0]
    told[repeated] = _scramble(keys[repeated] + again[again > 0].astype(np.uint64))
    return told


def deal(keys: Keys, strata: IntArray, n_hands: int) -> FoldArray:
    """Deal items to hands like cards, one stratum after the other, each in the order of its keys.

    Hands differ by at most one item, in each stratum and in all. The largest stratum goes first,
    so that names and codes of strata change nothing.
    """
    order = np.argsort(keys)
    order = order[np.argsort(strata[order].astype(np.uint16), kind="stable")]
    counts = np.bincount(strata)
    starts = np.cumsum(counts) - counts
    smallest = keys[order[np.minimum(starts, len(keys) - 1)]]
    turns = np.lexsort((smallest, -counts))
    dealt_before = np.empty_like(counts)
    dealt_before[turns] = np.cumsum(counts[turns]) - counts[turns]
    turn = np.arange(len(keys)) + np.repeat(dealt_before - starts, counts)
    hands = np.empty(len(keys), np.uint16)
    hands[order] = turn % n_hands
    return hands


def _units(data: LoggedData, seed: int, purpose: str) -> tuple[Keys, IntArray, str]:
    """What is dealt: rows by their action, or whole groups by the action they mostly took."""
    if data.groups is None:
        return context_keys(data, seed, purpose), data.actions, "rows"
    n_groups = int(data.groups.max()) + 1
    cells = data.groups * data.n_actions + data.actions
    taken = np.bincount(cells, minlength=n_groups * data.n_actions).reshape(n_groups, -1)
    multiplier, offset = _odd_numbers(seed, purpose, 2)
    keys = _scramble(np.arange(n_groups, dtype=np.uint64) * multiplier + offset)
    # Groups that took two actions equally often count with the rarer one; that, too, must not
    # depend on codes, so actions that are equally rare are told apart by who took them.
    by_rarity = np.lexsort((keys @ taken.astype(np.uint64), taken.sum(axis=0)))
    return keys, by_rarity[taken[:, by_rarity].argmax(axis=1)], "groups"


def _spread(data: LoggedData, hands: FoldArray) -> FoldArray:
    return hands if data.groups is None else hands[data.groups]


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
    """A hash of each row's contexts: multiply, add, scramble."""
    multipliers = _odd_numbers(seed, purpose, data.n_features)
    keys = np.empty(data.n_rows, np.uint64)
    half = np.uint64(32)
    for start in range(0, data.n_rows, ROWS_PER_BLOCK):
        # The shift brings a float's sign, exponent and leading digits, all that small whole
        # numbers have, down to where a product can spread them upwards.
        bits = data.contexts[start : start + ROWS_PER_BLOCK].view(np.uint64)
        mixed = bits >> half
        mixed ^= bits
        np.einsum("ij,j->i", mixed, multipliers, out=keys[start : start + ROWS_PER_BLOCK])
    return _scramble(keys)


def _odd_numbers(seed: int, purpose: str, how_many: int) -> Keys:
    rng = generator_for(seed, purpose=purpose)
    return rng.integers(0, 2**64, how_many, dtype=np.uint64) | np.uint64(1)


def _scramble(keys: Keys) -> Keys:
    """The finaliser of SplitMix64 (Steele, Lea & Flood 2014)."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
