"""What may be told without singling anybody out: the arithmetic behind the limits.

Sums leave by more than one query, so what one leaves out could be had by subtracting another. Hence
the rule that recurs here: what is told, what is left out, and what two answers differ in rest on
either no row or on enough of them.
"""

from collections.abc import Iterable
from itertools import combinations

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disclosure.ledger import Ledger
from fedopl.client.disclosure.limits import RefusedError
from fedopl.messages.vocabulary import Message, Refusal, RefusalCode

ROWS_PER_BLOCK = 8192


def shown_counts(counts: IntArray, minimum: int) -> IntArray:  # shaped as counts
    """The counts, zero where small; if that hides just one, the smallest other is hidden too."""
    if counts.min() >= minimum:
        return counts
    shown = counts * (counts >= minimum)
    if np.sum(shown < counts) == 1:
        shown[np.argmin(np.where(shown > 0, shown, np.inf))] = 0
    return shown


def large_enough(counts: IntArray, needed: int) -> BoolArray:  # (n_folds, n_actions)
    """The cells whose sums may be told, such that just a few rows are left out of no fold."""
    if counts.min() >= needed:
        return np.ones(counts.shape, np.bool_)
    enough = np.stack([_large_enough_in_fold(fold, needed) for fold in counts])
    for fold in np.argsort(counts.sum(axis=1)):
        if not 0 < int(counts[~enough].sum()) < needed:
            break
        enough[fold] = False
    return enough


def _large_enough_in_fold(counts: IntArray, needed: int) -> BoolArray:  # (n_actions,)
    enough: BoolArray = counts >= needed
    for action in np.argsort(counts):
        left_out = int(counts[~enough].sum())
        if left_out == 0 or left_out >= needed:
            break
        enough[action] = False
    return enough


class KnownScores:
    """How many training rows have a score for each action, and for both of every two."""

    def __init__(self, n_actions: int) -> None:
        self.n_rows = 0
        self.both = np.zeros((n_actions, n_actions))

    def add(self, scores: FloatArray) -> None:
        """Count these rows."""
        self.n_rows += len(scores)
        for start in range(0, len(scores), ROWS_PER_BLOCK):
            known = np.isfinite(scores[start : start + ROWS_PER_BLOCK])
            if known.all():
                self.both += len(known)
            else:
                counted = known.astype(np.float64)
                self.both += counted.T @ counted

    @property
    def are_complete(self) -> bool:
        """Whether all rows have all scores."""
        return bool((self.both == self.n_rows).all())

    def to_hide(self, needed: int) -> BoolArray:  # (n_actions,)
        """The actions that just a few rows lack a score for.

        Refused where, of the others, an action has a few scores only, or two actions have them in
        nearly the same rows: the difference of their sums would tell of the rest.
        """
        if self.are_complete and (self.n_rows >= needed or self.n_rows == 0):
            return np.zeros(len(self.both), np.bool_)
        counts = np.diagonal(self.both)
        missing = self.n_rows - counts
        few: BoolArray = (missing > 0) & (missing < needed)
        counts = np.where(few, 0, counts)
        if ((counts > 0) & (counts < needed)).any():
            raise RefusedError(RefusalCode.SMALL_CELLS)
        partly = np.flatnonzero((counts > 0) & (counts < self.n_rows))
        differ = counts[partly, None] + counts[partly] - 2 * self.both[np.ix_(partly, partly)]
        if ((differ > 0) & (differ < needed)).any():
            raise RefusedError(RefusalCode.SMALL_CELLS)
        return few


def check_parts(known: BoolArray, parts: Iterable[slice], needed: int) -> None:
    """Refuse to tell parts of the rows apart, if what is known (n_rows, n_actions) tells of a few.

    Sums are over the rows that have a score for an action. So in each part an action has none or
    enough of them, lacks none or enough, and has them in the same rows as another or not nearly.
    """
    for part in parts:
        everybody = np.ones(part.stop - part.start, bool)
        for first, second in combinations([everybody, ~everybody, *known[part].T], 2):
            _check_difference(first, second, needed)


def _check_difference(
    first: IntArray | BoolArray, second: IntArray | BoolArray, least: int
) -> None:
    if 0 < np.count_nonzero(first != second) < least:
        raise RefusedError(RefusalCode.SMALL_CELLS)


class Budgets:
    """How many different queries of a kind are answered; asking the same again is free.

    A refusal for small cells tells something, too: that there are such cells. So it counts. The
    ledger knows what was answered, also by an earlier process.
    """

    def __init__(self, budgets: dict[type[Message], int], ledger: Ledger, study: bytes) -> None:
        self._budgets = budgets
        self._paid: dict[str, set[str]] = {}  # kind of query → SHA-256 of each
        for entry in ledger.entries():
            told = entry.answer != Refusal.__name__ or entry.reason == RefusalCode.SMALL_CELLS.name
            if told and entry.study == study.hex():
                self._paid.setdefault(entry.query, set()).add(entry.query_sha256)

    def check(self, query: Message, asked: str) -> None:
        """Refuse a query, whose SHA-256 is `asked`, that nothing is left for."""
        budget = self._budgets.get(type(query))
        if budget is None:
            return
        paid = self._paid.get(type(query).__name__, ())
        if asked not in paid and len(paid) >= budget:
            raise RefusedError(RefusalCode.BUDGET_SPENT)

    def pay(self, query: Message, asked: str) -> None:
        """Count a query that something was told to."""
        if type(query) in self._budgets:
            self._paid.setdefault(type(query).__name__, set()).add(asked)
