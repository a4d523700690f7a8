"""Which cells of a two-way table to suppress, so that its margins cannot be differenced.

The sums over each row and column of the table (its margins) are known from elsewhere. Take a graph
with a point for each row and column of the table and an edge for each suppressed cell. A cut is the
set of edges between some of the points and all others. A sum or difference of margins, less the
released cells, rests on the data rows in a cut. So nothing discloses a few data rows if every cut
holds enough of them, or none. Cells below the minimum are suppressed (primary suppression). Larger
cells that connect them are suppressed as well, so that every cut passes through a large cell
(secondary suppression).
"""

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray


def are_few(counts: FloatArray, needed: int) -> BoolArray:  # shaped as counts
    """Where there are data rows, but fewer than needed."""
    few: BoolArray = (counts > 0) & (counts < needed)
    return few


def suppressed_cells(
    layers: FloatArray, needed: int, before: BoolArray | None = None
) -> BoolArray:  # (n_across, n_down)
    """Cells of a table (n_layers, n_across, n_down) to suppress, so that no layer discloses a few.

    Cells that were suppressed `before` stay suppressed. Where connecting the small cells is not
    enough, the whole table is suppressed.
    """
    suppressed: BoolArray = np.any(are_few(layers, needed), axis=0)
    if before is not None:
        suppressed |= before
    for counts in layers if suppressed.any() else ():
        suppressed |= _connecting_cells(counts, suppressed, needed)
    if any(has_small_cut(np.where(suppressed, counts, 0.0), needed) for counts in layers):
        suppressed |= (layers > 0).any(axis=0)
    return suppressed


def _connecting_cells(counts: FloatArray, suppressed: BoolArray, needed: int) -> BoolArray:
    """Large cells that connect the margins of small suppressed cells, with few data rows in all."""
    from scipy.sparse import csr_array  # here, because it is slow to import
    from scipy.sparse.csgraph import minimum_spanning_tree

    n_across, n_down = counts.shape
    first, second = np.nonzero(suppressed & are_few(counts, needed))
    ends = np.zeros(n_across + n_down, bool)
    ends[first] = ends[n_across + second] = True
    first, second = np.nonzero(counts >= needed)
    # A cell that is suppressed anyway costs nearly nothing. Others cost the rows they would hide.
    cost = np.where(suppressed, 1.0, 1.0 + counts)[first, second]
    points = first.astype(np.int32), (n_across + second).astype(np.int32)
    links = csr_array((cost, points), shape=(len(ends), len(ends)))
    forest = minimum_spanning_tree(links).tocoo()
    edges = np.column_stack([forest.row, forest.col])
    while len(edges):  # prune branches that lead to no small cell
        degree = np.bincount(edges.ravel(), minlength=len(ends))
        leads_on = ((degree > 1) | ends)[edges].all(axis=1)
        if leads_on.all():
            break
        edges = edges[leads_on]
    connecting = np.zeros(counts.shape, bool)
    connecting[edges[:, 0], edges[:, 1] - n_across] = True
    return connecting


def has_small_cut(counts: FloatArray, needed: int) -> bool:
    """Whether a sum or difference of a table's margins rests on some data rows, but only a few.

    This is the exact search for a minimum cut (Stoer and Wagner 1997). Points that no small cut can
    separate are merged at once. A cut can separate points without a path between them at no cost,
    so these may be merged, too.
    """
    if not are_few(counts, needed).any():
        return False
    n_across, n_points = len(counts), sum(counts.shape)
    weights = np.zeros((n_points, n_points))
    weights[:n_across, n_across:] = counts
    weights = _merged(weights + weights.T, weights + weights.T >= needed)
    while len(weights) > 1:
        before, last = _last_two(weights)
        if are_few(weights[last].sum(), needed):
            return True
        inseparable = weights >= needed
        # This cut is the smallest that separates the last two points, so they may be merged.
        inseparable[before, last] = True
        weights = _merged(weights, inseparable)
    return False


def _merged(weights: FloatArray, inseparable: BoolArray) -> FloatArray:
    """The weights between points after merging inseparable ones."""
    from scipy.sparse import csr_array  # here, because it is slow to import
    from scipy.sparse.csgraph import connected_components

    n_groups, group = connected_components(csr_array(inseparable), directed=False)
    if n_groups == len(weights):
        return weights
    of_group = np.eye(n_groups)[group]
    merged: FloatArray = of_group.T @ weights @ of_group
    np.fill_diagonal(merged, 0.0)
    return merged


def _last_two(weights: FloatArray) -> tuple[int, int]:
    """The last two points, if each next point is the one with most weight to those before it."""
    before, last = 0, 0
    attached = weights[0].copy()
    attached[0] = -np.inf
    for _ in range(len(weights) - 1):
        before, last = last, int(attached.argmax())
        attached += weights[last]
        attached[last] = -np.inf
    return before, last
