"""Whether the logged actions can have been taken with the known propensities.

For every action, Σ 1{A = a}/p over the rows is on average the number of rows. The usual mistake is
to give the probability of treatment also for those who were not treated.
"""

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.table.logged_data import LoggedData

# How far off a sum must be to count as impossible: in standard errors, and as a share of all rows.
SURELY, AT_LEAST = 6.0, 0.05


def contradiction(data: LoggedData) -> str:
    """In words, the action whose propensities contradict how often it was taken; empty if none."""
    # |Σ (1{A = a}/p − 1)| is at most √n standard errors, by Cauchy & Schwarz.
    if data.propensities is None or data.n_rows < SURELY**2:
        return ""
    found = _Sums(data.n_actions, data.n_groups)
    for rows in data.slices():  # no context is read
        groups = data.groups_of(rows)
        found.add(data.actions[rows].astype(np.int64), data.propensities[rows], groups)
    ratios = found.ratios(data.n_rows)
    if _off_by(ratios, found.errors(data.n_rows)).max() <= SURELY:
        return ""
    # What the smallest propensities allow takes as long again, and can only excuse more.
    for rows in data.slices():
        found.add_chances(data.actions[rows].astype(np.int64), data.propensities[rows])
    off = _off_by(ratios, found.errors(data.n_rows))
    worst = int(off.argmax())
    if off[worst] <= SURELY:
        return ""
    return (
        f"propensities: '{data.action_names[worst]}' was taken {_often(ratios[worst])} as its "
        f"propensities say; 1/propensity over its "
        f"{found.taken[worst]:,} rows adds up to {ratios[worst] * data.n_rows:,.0f}, and there are "
        f"{data.n_rows:,} rows in all. {_advice(data)}"
    )


def _off_by(ratios: FloatArray, errors: FloatArray) -> FloatArray:  # (n_actions,)
    """How many standard errors ratios are from one; 0 for those that are close to it."""
    away = np.abs(ratios - 1)
    return np.where(away < AT_LEAST, 0.0, away / np.maximum(errors, 1e-12))


def _advice(data: LoggedData) -> str:
    if data.schema is not None and data.schema.known_shares:
        return "Correct the numbers that the schema states (action.propensity of the study file)"
    return "Give each row the probability of the action that was taken, not that of treatment"


def _often(ratio: float) -> str:
    return f"{ratio:.1f} times as often" if ratio > 1 else f"only {ratio:.0%} as often"


class _Sums:
    """Σ 1{A = a}/p by action, and how far chance may move it from the number of rows."""

    def __init__(self, n_actions: int, n_groups: int) -> None:
        self.taken: IntArray = np.zeros(n_actions, np.int64)
        self._sums, self._squares = np.zeros(n_actions), np.zeros(n_actions)
        self._least: FloatArray | None = None  # the smallest propensities, if they were added
        self._expected = np.zeros(n_actions)
        self._by_group = np.zeros((n_groups, n_actions))
        self._n_rows = 0

    def add(self, actions: IntArray, known: FloatArray, groups: IntArray | None) -> None:
        """Add these rows."""
        inverse = 1 / _of_taken(actions, known)
        n_actions = len(self.taken)
        self.taken += np.bincount(actions, minlength=n_actions)
        self._sums += np.bincount(actions, inverse, n_actions)
        # Σ (1{A = a}/p − 1)² over all rows. Rows that did not take the action add one each.
        self._squares += np.bincount(actions, inverse * (inverse - 2), n_actions)
        self._n_rows += len(actions)
        if groups is not None:
            np.add.at(self._by_group, (groups, actions), inverse)
            np.add.at(self._by_group, groups, -1.0)

    def add_chances(self, actions: IntArray, known: FloatArray) -> None:
        """Add what the propensities of these rows alone allow, whoever took what."""
        n_actions = len(self.taken)
        if self._least is None:
            self._least = np.ones(n_actions)
        np.minimum.at(self._least, actions, _of_taken(actions, known))
        if known.ndim == 1 and n_actions == 2:  # the rest is the other action's
            known = np.where(actions[:, None] == np.arange(2), known[:, None], 1 - known[:, None])
        if known.ndim == 2:  # the variance of 1{A = a}/p, over those who took it and all others
            self._expected += (1 / np.where(known > 0, known, 1.0) - 1).sum(axis=0)

    def ratios(self, n_rows: int) -> FloatArray:  # (n_actions,)
        """By action, the sum as a share of the rows."""
        return np.where(self.taken > 0, self._sums / n_rows, 1.0)

    def errors(self, n_rows: int) -> FloatArray:  # (n_actions,)
        """Their standard errors, at least what was added of chances.

        Rows with small propensities that did not take the action show in no sum. So the error is
        at least what the smallest propensity among the rows that took the action allows. If
        propensities of all actions are known, it is at least what these imply.
        """
        squares = np.maximum(self._squares + self._n_rows, 0.0)  # unless rounded below it
        if len(self._by_group):
            squares = np.maximum(squares, (self._by_group**2).sum(axis=0))
        if self._least is not None:
            squares = np.maximum.reduce([squares, n_rows / self._least, self._expected])
        return np.sqrt(squares) / n_rows


def _of_taken(actions: IntArray, known: FloatArray) -> FloatArray:  # (n_rows,)
    """The propensity of what each row took."""
    return known if known.ndim == 1 else known[np.arange(len(actions)), actions]
