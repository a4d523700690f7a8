"""Finds combinations of terms that rest on a few rows, which no single term of waves shows.

Sums of terms give the sums of every combination of them. Hinges and products single out a person by
a knot nearby, which is found term by term. A combination of many waves may single out anyone,
anywhere. Let U be a basis of the span of all terms over the rows of a cell, with UᵀU = I. The
largest share of a combination's sum of squares that rows G have is the largest eigenvalue of
U_G·U_Gᵀ. If rows that are too few for a cell can have more than a share of it, no sums are
released.
"""

from collections.abc import Callable, Iterator

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.decompositions import eigh, eigvalsh

# Terms of some rows, their weights, and the cell of each row; called once for each pass.
TermParts = Callable[[], Iterator[tuple[FloatArray, FloatArray, IntArray]]]
# Directions in which terms vary less, relative to those in which they vary most, are rounding.
LEAST_VARYING = 1e-11
# Rows with a smaller share of every combination hardly add to the share of others.
LEAST_SHARE = 0.05
MOST_SEARCHED = 4_000  # rows of a cell searched for groups, those with the largest shares first


def largest_shares_of_few(parts: TermParts, n_cells: int, n_few: int) -> FloatArray:  # (n_cells,)
    """By cell, the largest share of a combination's sum of squares that `n_few` rows have.

    Each row is grouped with the rows that a combination aimed at it can distinguish least.
    """
    grams: dict[int, FloatArray] = {}
    for terms, weights, cells in parts():
        columns = _with_constant(terms, weights)
        for cell in np.unique(cells).tolist():
            own = columns[cells == cell]
            grams[cell] = grams.get(cell, 0.0) + own.T @ own
    turns = {cell: _whitening(gram) for cell, gram in grams.items()}
    kept: dict[int, list[FloatArray]] = {cell: [] for cell in turns}
    for terms, weights, cells in parts():
        columns = _with_constant(terms, weights)
        for cell, turn in turns.items():
            own = columns[cells == cell] @ turn
            kept[cell].append(own[(own**2).sum(axis=1) > LEAST_SHARE])
    found = np.zeros(n_cells)
    for cell, rows in kept.items():
        found[cell] = _largest_share(np.vstack(rows), n_few)
    return found


def _with_constant(terms: FloatArray, weights: FloatArray) -> FloatArray:  # (n_rows, n_terms + 1)
    return np.column_stack([terms, np.ones(len(terms))]) * np.sqrt(weights)[:, None]


def _whitening(gram: FloatArray) -> FloatArray:  # (n_terms + 1, rank)
    """The matrix that makes orthogonal combinations of columns with unit sums of squares."""
    scale = np.sqrt(np.diagonal(gram))
    scale = np.where(scale > 0, scale, 1.0)
    values, vectors = eigh(gram / np.outer(scale, scale))
    varies = values > LEAST_VARYING * values[-1]
    return np.asarray(vectors[:, varies] / np.sqrt(values[varies]) / scale[:, None])


def _largest_share(rows: FloatArray, n_few: int) -> float:
    """The largest share of any group of `n_few` rows that is grown from one of these rows."""
    if not len(rows) or n_few < 1:
        return 0.0
    order = np.argsort(-(rows**2).sum(axis=1), kind="stable")[:MOST_SEARCHED]
    together = rows[order] @ rows[order].T  # the diagonal has the share of each row alone
    n_few = min(n_few, len(together))
    groups = np.argpartition(-np.abs(together), n_few - 1, axis=1)[:, :n_few]
    shares = eigvalsh(together[groups[:, :, None], groups[:, None, :]])
    return float(min(shares.max(), 1.0))
