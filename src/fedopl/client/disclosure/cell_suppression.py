"""Cells that rest on a few rows are hidden before sums over a grid are told.

What is hidden in one table could be had by subtracting: the sums over whole bins are known from
other tables. Take two columns, and the bins of both for points, joined by a line wherever a cell
is hidden. A sum or difference of bins, less what is told, rests on the rows in the lines between
some of the points and the rest of them: a cut. So nothing tells of a few rows if every cut has
enough of them, or none. Hence three steps:

1. Bins are joined until each holds enough rows, and further until few cells are small. A column is
   joined in the same way wherever it is told: a bin less half of it would be told otherwise. If two
   columns nearly repeat each other, bins of the second are joined until no cut is small.
2. Small cells are hidden, and with them larger ones that connect the bins they lie in, so that
   every cut goes through a large one. Where that is not enough, the whole table is hidden.
3. What is hidden is spread over the hidden cells of its bins, so that nothing is lost from the
   whole. How far that can move the value of any tree is told along with it.

With several parts all of this holds in each of them. They make up a whole that was told before:
what was joined or hidden there stays so.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.messages.vocabulary import RefusalCode
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.search import FIRST_ACTION, ROWS, largest_error

# A column's bins are joined until no more rows than this share are in small cells, on average.
MOST_HIDDEN = 0.1

Runs = IntArray  # where each run of joined bins starts, and where the last one ends
Pair = tuple[int, int]  # of columns


@dataclass(frozen=True, eq=False)
class Hiding:
    """Which bins of each column are joined, and which cells of each two columns are hidden."""

    runs: tuple[Runs, ...]
    hidden: dict[Pair, BoolArray]  # by run of both columns


def suppress_cells(
    sums: FloatArray, grid: Grid, needed: int, counts: FloatArray | None = None
) -> FloatArray:  # shaped as sums
    """The sums (n_parts, n_cells, n_numbers), such that none of them tells of a few rows.

    Where some numbers rest on some of the rows only, `counts` (n_parts, n_cells, n_kinds) says on
    how many, for each kind of them.
    """
    rows = sums[..., [ROWS]] if counts is None else counts
    parts = np.moveaxis(rows, -1, 1).reshape(-1, grid.n_cells)
    if _are_few(parts[:, grid.tables[0, 0]].sum(axis=1), needed).any():
        raise RefusedError(RefusalCode.SMALL_CELLS)
    hiding = _hide(rows.sum(axis=0).T, grid, needed)
    if len(sums) > 1:
        _check_parts(rows, grid, hiding.runs, needed)
        hiding = _hide(parts, grid, needed, hiding)
    told = np.empty_like(sums)
    for (first, second), place in grid.tables.items():
        across, down = hiding.runs[first], hiding.runs[second]
        if first == second:
            told[:, place] = _spread_evenly(_join(sums[:, place], across, 1), across, 1)
            continue
        shape = (len(sums), grid.n_bins[first], grid.n_bins[second], sums.shape[-1])
        joined = _join(_join(sums[:, place].reshape(shape), across, 1), down, 2)
        hidden = hiding.hidden[first, second]
        spread = np.stack([_spread_hidden(part, hidden) for part in joined])
        spread = _spread_evenly(_spread_evenly(spread, down, 2), across, 1)
        told[:, place] = spread.reshape(sums[:, place].shape)
    return told


def _check_parts(rows: FloatArray, grid: Grid, runs: Sequence[Runs], needed: int) -> None:
    """Refuse parts that divide what was joined in the whole such that a few rows are left."""
    for column in range(grid.n_columns):
        line = _join(rows[:, grid.tables[column, column]], runs[column], 1)
        if any(has_small_cut(kind, needed) for kind in np.moveaxis(line, -1, 0)):
            raise RefusedError(RefusalCode.SMALL_CELLS)


def _are_few(rows: FloatArray, needed: int) -> BoolArray:
    few: BoolArray = (rows > 0) & (rows < needed)
    return few


# --- which bins are joined ---------------------------------------------------------------------


def _hide(layers: FloatArray, grid: Grid, needed: int, whole: Hiding | None = None) -> Hiding:
    """What to join and to hide, so that no cut is small in any of the layers (…, n_cells)."""
    lines = [layers[:, grid.tables[column, column]] for column in range(grid.n_columns)]
    least = [needed] * grid.n_columns
    start = whole.runs if whole else [np.arange(n_bins + 1) for n_bins in grid.n_bins]
    runs = [_coarser(*one) for one in zip(lines, start, least, strict=True)]

    def table(pair: Pair) -> FloatArray:  # (n_layers, n_runs, n_runs of the second)
        first, second = pair
        cells = layers[:, grid.tables[pair]].reshape(-1, grid.n_bins[first], grid.n_bins[second])
        return _join(_join(cells, runs[first], 1), runs[second], 2)

    def join_more(column: int) -> None:
        n_runs = len(runs[column])
        while len(runs[column]) == n_runs > 2:
            least[column] *= 2
            runs[column] = _coarser(lines[column], runs[column], least[column])

    pairs = [(first, second) for first, second in grid.tables if first != second]
    while full := _too_full({pair: table(pair) for pair in pairs}, grid, runs, needed):
        for column in full:
            join_more(column)
    for first, second in pairs:
        while any(has_small_cut(layer, needed) for layer in table((first, second))):
            join_more(second)
    hidden = {}
    for pair in pairs:
        before = _hidden_before(whole, pair, runs) if whole else None
        hidden[pair] = suppressed_cells(table(pair), needed, before)
    return Hiding(tuple(runs), hidden)


def _coarser(line: FloatArray, runs: Runs, least: int) -> Runs:  # (n_runs + 1,)
    """Join runs of a line (n_layers, n_bins) until each has none or enough rows, in every layer."""
    if least >= line.sum():
        return runs[[0, -1]]
    enough = np.minimum(least, line.sum(axis=1))
    up_to = np.pad(np.cumsum(line, axis=1), ((0, 0), (1, 0)))

    def is_fine(first: int, after: int) -> bool:
        held = up_to[:, after] - up_to[:, first]
        return bool(((held == 0) | (held >= enough)).all())

    starts = [0]
    for after in runs[1:].tolist():
        if is_fine(starts[-1], after):
            starts.append(after)
    end = int(runs[-1])
    while len(starts) > 1 and not is_fine(starts[-1], end):
        starts.pop()  # what is left over belongs to the runs before
    return np.array(starts if starts[-1] == end else [*starts, end])


def _too_full(
    tables: dict[Pair, FloatArray], grid: Grid, runs: Sequence[Runs], needed: int
) -> list[int]:
    """Columns of numbers whose tables have too many rows in small cells, and that can be joined."""
    small: list[list[float]] = [[] for _ in grid.n_bins]
    for pair, table in tables.items():
        rows = table.sum(axis=0)
        share = rows[_are_few(table, needed).any(axis=0)].sum() / max(rows.sum(), 1.0)
        for column in pair:
            small[column].append(float(share))
    return [
        column
        for column, shares in enumerate(small)
        if shares and np.mean(shares) > MOST_HIDDEN
        if len(runs[column]) > 2 and not grid.is_level[column]
    ]


# --- which cells are hidden --------------------------------------------------------------------


def suppressed_cells(
    rows: FloatArray, needed: int, before: BoolArray | None = None
) -> BoolArray:  # (n_lines, n_lines)
    """Small cells of a table (n_layers, n_lines, n_lines), and larger ones to connect their lines.

    Those that were hidden before are hidden in any case.
    """
    hidden: BoolArray = np.any(_are_few(rows, needed), axis=0)
    if before is not None:
        hidden |= before
    for layer in rows if hidden.any() else ():
        hidden |= _connections(layer, hidden, needed)
    if any(has_small_cut(np.where(hidden, layer, 0.0), needed) for layer in rows):
        hidden |= (rows > 0).any(axis=0)
    return hidden


def _hidden_before(whole: Hiding, pair: Pair, runs: Sequence[Runs]) -> BoolArray:
    """The cells of these runs that hold any that was hidden in the whole."""
    hidden = whole.hidden[pair]
    for axis, column in enumerate(pair):
        starts = np.searchsorted(whole.runs[column], runs[column])
        hidden = np.logical_or.reduceat(hidden, starts[:-1], axis=axis)
    return hidden


def _connections(rows: FloatArray, hidden: BoolArray, needed: int) -> BoolArray:
    """Large cells that connect the lines of small hidden ones; the fewer rows in all the better."""
    n_across, n_down = rows.shape
    first, second = np.nonzero(hidden & _are_few(rows, needed))
    ends = np.zeros(n_across + n_down, bool)
    ends[first] = ends[n_across + second] = True
    first, second = np.nonzero(rows >= needed)
    cost = np.where(hidden, 1.0, 1.0 + rows)[first, second]
    places = first.astype(np.int32), (n_across + second).astype(np.int32)
    links = csr_array((cost, places), shape=(len(ends), len(ends)))
    forest = minimum_spanning_tree(links).tocoo()
    edges = np.column_stack([forest.row, forest.col])
    while len(edges):  # cut off what leads nowhere
        degree = np.bincount(edges.ravel(), minlength=len(ends))
        leads_on = ((degree > 1) | ends)[edges].all(axis=1)
        if leads_on.all():
            break
        edges = edges[leads_on]
    connecting = np.zeros(rows.shape, bool)
    connecting[edges[:, 0], edges[:, 1] - n_across] = True
    return connecting


def has_small_cut(rows: FloatArray, needed: int) -> bool:
    """Whether some sum or difference of a table's lines rests on a few rows, but on some.

    The exact search for a smallest cut (Stoer and Wagner 1997), in which points that no small cut
    can divide go together at once. Where there is no way between two points, nothing tells which
    side of a cut they are on, so they may go together, too.
    """
    if not _are_few(rows, needed).any():
        return False
    n_across, n_points = len(rows), sum(rows.shape)
    shared = np.zeros((n_points, n_points))
    shared[:n_across, n_across:] = rows
    shared = _together(shared + shared.T, shared + shared.T >= needed)
    while len(shared) > 1:
        before, last = _last_two(shared)
        if _are_few(shared[last].sum(), needed):
            return True
        close = shared >= needed
        close[before, last] = True
        shared = _together(shared, close)
    return False


def _together(shared: FloatArray, close: BoolArray) -> FloatArray:
    """What points share once close ones have become one."""
    n_groups, group = connected_components(csr_array(close), directed=False)
    if n_groups == len(shared):
        return shared
    of_group = np.eye(n_groups)[group]
    merged: FloatArray = of_group.T @ shared @ of_group
    np.fill_diagonal(merged, 0.0)
    return merged


def _last_two(shared: FloatArray) -> tuple[int, int]:
    """The last two points in an order where the next shares most with all before it."""
    before, last = 0, 0
    closeness = shared[0].copy()
    closeness[0] = -np.inf
    for _ in range(len(shared) - 1):
        before, last = last, int(closeness.argmax())
        closeness += shared[last]
        closeness[last] = -np.inf
    return before, last


# --- what is told instead ----------------------------------------------------------------------


def _spread_hidden(table: FloatArray, hidden: BoolArray) -> FloatArray:  # shaped as table
    """What is hidden, spread over the hidden cells of its row and column, half by each.

    It goes where many hidden rows of both meet, so that a wholly hidden table is told as if its
    two columns had nothing to do with each other.
    """
    if not hidden.any():
        return table
    kept = np.where(hidden[..., None], table, 0.0)
    across, down = kept.sum(axis=1, keepdims=True), kept.sum(axis=0, keepdims=True)
    likely = np.where(hidden, across[..., ROWS] * down[..., ROWS], 0.0)
    by_row = _shares(likely, axis=1)[..., None] * across
    by_column = _shares(likely, axis=0)[..., None] * down
    return np.where(hidden[..., None], (by_row + by_column) / 2, table)


def _shares(amounts: FloatArray, axis: int) -> FloatArray:
    total = amounts.sum(axis=axis, keepdims=True)
    shares: FloatArray = np.divide(amounts, total, where=total > 0, out=np.zeros_like(amounts))
    return shares


def _join(bins: FloatArray, runs: Runs, axis: int) -> FloatArray:
    joined: FloatArray = np.add.reduceat(bins, runs[:-1], axis=axis)
    return joined


def _spread_evenly(joined: FloatArray, runs: Runs, axis: int) -> FloatArray:
    """A run's sums, in equal parts for each of its bins."""
    lengths = np.diff(runs)
    shape = [1] * joined.ndim
    shape[axis] = -1
    spread: FloatArray = np.repeat(joined / lengths.reshape(shape), lengths, axis=axis)
    return spread


def possible_loss(told: FloatArray, true: FloatArray, grid: Grid, depth: int, n: int) -> float:
    """How far hiding can move the value of any tree below a node, rounded up to a power of two.

    The exact number would tell of the very cells that were hidden.
    """
    exact = largest_error(told, true, grid, depth, n)
    scale = float(np.abs(grid.line(true, 0)[:, FIRST_ACTION : FIRST_ACTION + n]).sum())
    return 0.0 if exact <= 1e-12 * scale else 2.0 ** math.ceil(math.log2(exact))
