"""Assigns actions to rows within a budget: rows that gain most per unit of cost come first.

Every row begins with its cheapest action. Every dearer action is a step that gains some score at
some cost. Steps are taken in the order of their gain per unit of cost, along each row's upper hull
of costs and scores, until the next step is not affordable. The result is the best assignment for
the amount spent (Sinha & Zoltners, 1979), so less than one step of the budget is left.
"""

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.errors import OptionError


def decide_within(scores: FloatArray, costs: FloatArray, most: float) -> IntArray:  # (n_rows,)
    """The action of each row, if a decision may cost at most `most` on average.

    Scores and costs are (n_rows, n_actions); scores are −∞ where an action may not be given. Among
    equal rows, earlier rows come first. No row gets an action that costs more than another and is
    worth no more.
    """
    n_rows = len(scores)
    codes = _cheapest(scores, costs)
    least = costs[np.arange(n_rows), codes].sum()
    allowed = most * n_rows
    if least > allowed * (1 + 1e-12):
        raise OptionError(
            f"budget: even the cheapest actions cost {least / n_rows:.6g} per row, more than "
            f"{most:g}; allow more"
        )
    rows, then, rates, spent = _steps(scores, costs, codes)
    order = np.argsort(-rates, kind="stable")
    total = least + np.cumsum(spent[order])
    # A row's steps are taken in order, because later steps gain less per unit of cost.
    n_taken = int(np.searchsorted(total, allowed * (1 + 1e-12), side="right"))
    taken = order[:n_taken]
    codes[rows[taken]] = then[taken]
    return codes


def _cheapest(scores: FloatArray, costs: FloatArray) -> IntArray:  # (n_rows,)
    """The best-scoring action among the cheapest ones of each row."""
    possible = np.where(np.isneginf(scores), np.inf, costs)
    least = possible.min(axis=1, keepdims=True)
    codes: IntArray = np.where(possible == least, scores, -np.inf).argmax(axis=1)
    return codes


def _steps(
    scores: FloatArray, costs: FloatArray, codes: IntArray
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """For each step: its row, its action, its gain per unit of cost, and its cost."""
    now, everybody = codes.copy(), np.arange(len(codes))
    found: list[tuple[IntArray, IntArray, FloatArray, FloatArray]] = []
    while True:
        dearer = costs - costs[everybody, now][:, None]
        more = scores - scores[everybody, now][:, None]
        rates = np.where(dearer > 0, more / np.where(dearer > 0, dearer, 1.0), -np.inf)
        then = rates.argmax(axis=1)
        best = rates[everybody, then]
        rows = np.flatnonzero(best > 0)
        if not len(rows):
            break
        found.append((rows, then[rows], best[rows], dearer[rows, then[rows]]))
        now[rows] = then[rows]
    empty = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0))
    parts = zip(*(found or [empty]), strict=True)
    rows, then, rates, spent = (np.concatenate(part) for part in parts)
    return rows, then, rates, spent
