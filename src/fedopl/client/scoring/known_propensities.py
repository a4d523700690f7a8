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
    found = _Sums(data.n_actions, _n_groups(data))
    for rows in data.slices():  # no context is read
        groups = data.groups_of(rows)
        found.add(data.actions[rows].astype(np.int64), data.propensities[rows], groups)
    ratios, errors = found.ratios(data.n_rows)
    off = np.abs(ratios - 1) / np.maximum(errors, 1e-12)
    off[np.abs(ratios - 1) < AT_LEAST] = 0.0
    worst = int(off.argmax())
    if off[worst] <= SURELY:
        return ""
    return (
        f"propensities: '{data.action_names[worst]}' was taken {_often(ratios[worst])} as its "
        f"propensities say; 1/propensity over its "
        f"{found.taken[worst]:,} rows adds up to {ratios[worst] * data.n_rows:,.0f}, and there are "
        f"{data.n_rows:,} rows in all. {_advice(data)}"
    )


def _advice(data: LoggedData) -> str:
    if data.schema is not None and data.schema.known_shares:
        return "Correct the numbers that the schema states (action.propensity of the study file)"
    return "Give each row the probability of the action that was taken, not that of treatment"


def _often(ratio: float) -> str:
    return f"{ratio:.1f} times as often" if ratio > 1 else f"only {ratio:.0%} as often"


def _n_groups(data: LoggedData) -> int:
    if data.groups is None:
        return 0
    return 1 + max(int(data.groups[rows].max()) for rows in data.slices())


class _Sums:
    """Σ 1{A = a}/p by action, and how far chance may move it from the number of rows."""

    def __init__(self, n_actions: int, n_groups: int) -> None:
        self.taken: IntArray = np.zeros(n_actions, np.int64)
        self._sums, self._squares = np.zeros(n_actions), np.zeros(n_actions)
        self._least, self._expected = np.ones(n_actions), np.zeros(n_actions)
        self._by_group = np.zeros((n_groups, n_actions))
        self._n_rows = 0

    def add(self, actions: IntArray, known: FloatArray, groups: IntArray | None) -> None:
        """Add these rows."""
        of_taken = known if known.ndim == 1 else known[np.arange(len(actions)), actions]
        inverse = 1 / of_taken
        n_actions = len(self.taken)
        self.taken += np.bincount(actions, minlength=n_actions)
        self._sums += np.bincount(actions, inverse, n_actions)
        # Σ (1{A = a}/p − 1)² over all rows. Rows that did not take the action add one each.
        self._squares += np.bincount(actions, inverse * (inverse - 2), n_actions)
        np.minimum.at(self._least, actions, of_taken)
        if known.ndim == 1 and n_actions == 2:  # the rest is the other action's
            known = np.where(actions[:, None] == np.arange(2), known[:, None], 1 - known[:, None])
        if known.ndim == 2:  # the variance of 1{A = a}/p, over those who took it and all others
            variances = 1 / np.where(known > 0, known, 1.0) - 1
            self._expected += np.einsum("ij->j", variances)  # faster than their `sum`
        self._n_rows += len(actions)
        if groups is not None:
            np.add.at(self._by_group, (groups, actions), inverse)
            np.add.at(self._by_group, groups, -1.0)

    def ratios(self, n_rows: int) -> tuple[FloatArray, FloatArray]:
        """By action, the sum as a share of the rows, and its standard error.

        Rows with small propensities that did not take the action show in neither. So the error is
        at least what the smallest propensity among the rows that took the action allows. If
        propensities of all actions are known, it is at least what these imply.
        """
        squares = self._squares + self._n_rows
        if len(self._by_group):
            squares = np.maximum(squares, (self._by_group**2).sum(axis=0))
        least = np.maximum.reduce([squares, n_rows / self._least, self._expected])
        ratios = np.where(self.taken > 0, self._sums / n_rows, 1.0)
        return ratios, np.sqrt(least) / n_rows
