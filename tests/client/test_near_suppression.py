"""Sums between narrow cuts, with the cells of any two columns: no few rows can be told apart."""

from itertools import combinations

import numpy as np
import pytest

from fedopl.client.disclosure.cells.cell_suppression import suppression_of
from fedopl.client.disclosure.cells.near_suppression import Beside, Pieces
from fedopl.client.local.cell_tables import Binning, cell_sums
from fedopl.client.local.near_rows import near_sums
from fedopl.client.rows.chunks import ScoredRows
from fedopl.policies.tree_columns import NumberColumn
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.nodes import Branch, Leaf, leaf_positions, leaves_of
from fedopl.policies.trees.search import ROWS
from fedopl.policies.trees.second_look import NEAR_BINS, SecondLook, window

NEEDED, N_ACTIONS = 5, 3
COLUMNS = tuple(NumberColumn(name=f"x{place}", feature=place) for place in range(4))
GRID = Grid(((-0.5, 0.0, 0.5),) * 4, (False,) * 4)
BINNING = Binning(columns=COLUMNS, grid=GRID)


def drawn(seed, n_rows=400):
    """Rows whose columns nearly repeat each other, and a tree with thresholds beside its own."""
    rng = np.random.default_rng(seed)
    own = rng.standard_normal((n_rows, len(COLUMNS)))
    common = np.where(rng.random(own.shape) < 0.1, own, own[:, :1] + 0.3 * own)
    scores = rng.standard_normal((n_rows, N_ACTIONS))
    rows = ScoredRows(contexts=np.round(common, 1), scores=scores, weights=None)
    (r, c1, c2), cuts = rng.integers(0, 3, 3).tolist(), rng.choice(GRID.cuts[0], 3).tolist()
    below = Branch(c1, cuts[1], Leaf(0), Leaf(1)), Branch(c2, cuts[2], Leaf(2), Leaf(0))
    look = SecondLook(Branch(r, cuts[0], *below), GRID, np.zeros((0, NEAR_BINS - 1)))
    near = [thresholds_beside(branch) for branch, _ in look.questions]
    return rows, SecondLook(look.root, GRID, np.array(near))


def thresholds_beside(branch):
    """Two narrow bins and more to either side of a question's own threshold."""
    low, high = np.clip(window(GRID, branch), -1.0, 1.0)
    more = [*np.linspace(low, branch.cut, 5)[1:-1], *np.linspace(branch.cut, high, 5)[1:-1]]
    return np.sort([*more, *[branch.cut] * (NEAR_BINS - 1 - len(more))])


def sides_of(look, question):
    branch, _ = look.questions[question]
    return branch.yes, branch.no


def decided(node, rows):
    actions = np.array([leaf.action for leaf in leaves_of(node)])
    return actions[leaf_positions(node, COLUMNS, rows.contexts)]


def released_sums(rows, look, *, guarded):
    """By pair of columns, the rows of every sum that is known of them, (n_sums, n_rows)."""
    cells = cell_sums([rows], BINNING)[..., [ROWS]]
    first = suppression_of(cells, GRID, NEEDED)
    found = near_sums([rows], look, BINNING, np.ones(N_ACTIONS, bool), first)
    beside = Beside(layers=cells[0].T, grid=GRID, suppression=first, needed=NEEDED)
    pieces = Pieces(found.counts, look, beside)
    while guarded and (columns := next(pieces.disclosing(), None)):
        pieces.merge_more(columns)
    runs = [first.run_of(column)[own] for column, own in enumerate(BINNING.bins(rows.contexts))]
    told = np.ones(len(runs[0]), bool)
    for (j, k), hidden in first.cells.items():
        if {j, k} <= {branch.column for branch, _ in look.questions}:
            told &= ~hidden[runs[j], runs[k]]
    narrow = {column: [] for column in range(len(COLUMNS))}
    for run in pieces.runs():
        near = np.searchsorted(look.near[run.question], rows.contexts[:, run.column])
        within = (near >= run.bins.start) & (near < run.bins.stop)
        own = told & within & look.comes_to(run.question, COLUMNS, rows.contexts)
        yes, no = (decided(side, rows) for side in sides_of(look, run.question))
        narrow[run.column].append(own & (yes != no))
    for (j, k), hidden in first.cells.items():
        lines = [runs[column] == r for column in (j, k) for r in np.unique(runs[column])]
        known = [(runs[j] == a) & (runs[k] == b) for a, b in np.argwhere(~hidden)]
        yield np.array([*lines, *known, *narrow[j], *narrow[k]], float)


def isolates_few(sums):
    """Whether some combination of sums (n_sums, n_rows) is zero but for a few rows.

    Rows that are in the same sums cannot be told apart. A combination rests on some of these groups
    alone if the sums have a lower rank without them.
    """
    groups, sizes = np.unique(sums, axis=1, return_counts=True)
    rank, small = np.linalg.matrix_rank(groups), np.flatnonzero(sizes < NEEDED)
    few = [
        chosen
        for n_groups in (1, 2)
        for chosen in combinations(small, n_groups)
        if sizes[list(chosen)].sum() < NEEDED
    ]
    return any(np.linalg.matrix_rank(np.delete(groups, one, axis=1)) < rank for one in few)


@pytest.mark.parametrize("seed", range(4))
def test_no_combination_of_narrow_sums_and_cells_rests_on_a_few_rows(seed):
    rows, look = drawn(seed)
    assert not any(map(isolates_few, released_sums(rows, look, guarded=True)))


def test_without_the_guard_some_combination_does():
    found = (released_sums(*drawn(seed), guarded=False) for seed in range(4))
    assert any(isolates_few(sums) for every in found for sums in every)
