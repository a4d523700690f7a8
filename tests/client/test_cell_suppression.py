from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedopl.client.disclosure.cells.cell_suppression import possible_loss, suppress_cells
from fedopl.client.disclosure.cells.secondary_suppression import has_small_cut, suppressed_cells
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.local.cell_tables import Binning, cell_sums
from fedopl.client.rows.chunks import ScoredRows
from fedopl.policies.tree_columns import LevelColumn, NumberColumn
from fedopl.policies.trees.grid import grid_of
from fedopl.policies.trees.growing import DONE, EVERYBODY
from fedopl.policies.trees.nodes import Branch, Leaf
from fedopl.policies.trees.search import FIRST_ACTION, ROWS, WEIGHT

NEEDED = 5


def number_columns(n_columns):
    return tuple(NumberColumn(name=f"x{j}", feature=j) for j in range(n_columns))


def binning_of(bins, n_bins, partition=EVERYBODY, columns=None):
    """Rows that are given by the bins they are in, cut between all of them."""
    columns = columns or number_columns(len(n_bins))
    cuts = [[b + 0.5 for b in range(n - 1)] for n in n_bins]
    return Binning(columns=columns, grid=grid_of(columns, cuts), partition=partition)


def sums_of(bins, binning, scores, weights=None):
    rows = ScoredRows(contexts=bins.astype(float), scores=scores, weights=weights)
    return cell_sums([rows], binning)


def rows_in(table):
    """Rows with two columns, as many in each cell as the table says."""
    cells = np.argwhere(np.ones_like(table, bool))
    return np.repeat(cells, np.ravel(table), axis=0)


def smallest_cut(table):
    """By trying all of them: the fewest rows, but some, that lines of a table can differ by."""
    across, down = (np.array(list(product([0, 1], repeat=size))) for size in table.shape)
    cuts = across @ table @ (1 - down).T + (1 - across) @ table @ down.T
    return min(cuts[cuts > 0], default=np.inf)


def tables(n_layers, most_lines=4):
    """Tables of counts, sparse or dense."""
    counts = st.one_of(st.just(0), st.integers(0, 3), st.integers(0, 12), st.integers(0, 40))
    sizes = st.tuples(st.integers(2, most_lines), st.integers(2, most_lines))
    return sizes.flatmap(
        lambda size: st.lists(
            counts, min_size=n_layers * size[0] * size[1], max_size=n_layers * size[0] * size[1]
        ).map(lambda drawn: np.array(drawn, float).reshape(n_layers, *size))
    )


@st.composite
def worlds(draw, n_bins, most_rows=80):
    """The bins that rows are in: at random, nearly the same in two columns, or most in one cell."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    places = rng.random((draw(st.integers(NEEDED, most_rows)), len(n_bins)))
    if draw(st.booleans()):
        own = rng.random(len(places)) < draw(st.sampled_from([0.0, 0.03, 0.2]))
        places[:, 1] = np.where(own, places[:, 1], places[:, 0])
    if draw(st.booleans()):
        places **= draw(st.sampled_from([1.0, 3.0, 6.0]))
    return (places * n_bins).astype(int)


# --- a server that wants to know of a few rows --------------------------------------------------


def what_is_told_of_each_row(bins, binning, needed=NEEDED):
    """The factor that each row's score has in every number that is told, by part."""
    sums = sums_of(bins, binning, np.eye(len(bins)))
    return suppress_cells(sums, binning.grid, needed)[..., FIRST_ACTION:]


def can_single_out(factors, bins, needed=NEEDED):
    """Whether some combination of numbers rests on a few rows: for every few cells, an exact test.

    Rows of one cell are in the same numbers. A combination without any row but those of some cells
    exists just if the numbers, without these rows, have a lower rank.
    """
    cells, first, counts = np.unique(bins, axis=0, return_index=True, return_counts=True)
    by_cell = factors[:, first]
    rank = np.linalg.matrix_rank(by_cell, tol=1e-9)
    for few in product([False, True], repeat=len(cells)):
        out = np.array(few, bool)
        could_be_more = ~out & (counts + counts[out].sum() < needed)
        if not out.any() or counts[out].sum() >= needed or could_be_more.any():
            continue
        if np.linalg.matrix_rank(by_cell[:, ~out], tol=1e-9) < rank:
            return True
    return False


@given(worlds((3, 3)))
def test_no_combination_of_what_is_told_of_two_columns_rests_on_a_few_rows(bins):
    told = what_is_told_of_each_row(bins, binning_of(bins, (3, 3)))
    assert not can_single_out(told[0], bins)


@given(worlds((3, 3, 2)), st.booleans())
def test_nor_does_any_in_a_part_of_the_rows(bins, is_done):
    partition = Branch(2, 0.5, Leaf(0), Leaf(DONE if is_done else 1))
    binning = binning_of(bins, (3, 3, 2), partition)
    try:
        told = what_is_told_of_each_row(bins, binning)
    except RefusedError:
        return
    grid, parts = binning.grid, binning.parts(bins.astype(float))
    pair = np.r_[grid.tables[0, 0], grid.tables[0, 1], grid.tables[1, 1]]
    for part in range(2):
        own = parts == part
        assert not can_single_out(told[part][pair][:, own], bins[own][:, :2])


@pytest.mark.parametrize(
    "table",
    [
        [[30, 3], [20, 20]],  # a row of the table less its large cell is the small one
        [[9, 4], [4, 30]],
        [[8, 0], [1, 13]],  # hiding all of it is not enough: one column less the other is one row
        [[40, 3, 0], [0, 40, 0], [3, 0, 40]],
    ],
)
def test_hiding_the_small_cells_alone_would_tell_of_them(table):
    rows = np.array([table], float)
    small = (rows[0] > 0) & (rows[0] < NEEDED)
    assert smallest_cut(rows[0] * small) < NEEDED
    bins = rows_in(np.array(table))
    told = what_is_told_of_each_row(bins, binning_of(bins, rows.shape[1:]))
    assert not can_single_out(told[0], bins)


def test_a_column_is_joined_in_the_same_way_wherever_it_is_told():
    # Joined to 9 and 11 in the line, but to 12 and 8 where more are needed: their difference is 3.
    table = np.zeros((3, 6), int)
    table[0, :4], table[1, 4], table[2] = [3, 2, 2, 2], 3, [1, 1, 1, 2, 1, 2]
    bins = rows_in(table)
    grid = binning_of(bins, (3, 6)).grid
    told = what_is_told_of_each_row(bins, binning_of(bins, (3, 6)))[0]
    line = told[grid.tables[0, 0]]
    crossed = told[grid.tables[0, 1]].reshape(3, 6, -1).sum(axis=1)
    joined_in_line = {tuple(np.flatnonzero(np.isclose(line, row).all(axis=1))) for row in line}
    joined_in_table = {
        tuple(np.flatnonzero(np.isclose(crossed, row).all(axis=1))) for row in crossed
    }
    assert joined_in_line == joined_in_table


def test_of_two_columns_that_nearly_repeat_each_other_the_second_is_not_cut():
    bins = rows_in(np.diag([40, 40, 40]))
    bins = np.vstack([bins, [[0, 1]]])
    binning = binning_of(bins, (3, 3))
    sums = sums_of(bins, binning, np.ones((len(bins), 1)))
    told = suppress_cells(sums, binning.grid, NEEDED)[0, :, ROWS]
    assert told[binning.grid.tables[0, 0]].tolist() == [41, 40, 40]
    assert len(set(told[binning.grid.tables[1, 1]])) < 3


def test_columns_that_repeat_each_other_are_told_in_full():
    bins = rows_in(np.diag([40, 6, 40]))
    binning = binning_of(bins, (3, 3))
    sums = sums_of(bins, binning, np.ones((len(bins), 1)))
    assert np.array_equal(suppress_cells(sums, binning.grid, NEEDED), sums)


# --- cells and cuts -----------------------------------------------------------------------------


@given(tables(1, most_lines=5))
def test_the_search_for_a_small_cut_is_exact(drawn):
    assert has_small_cut(drawn[0], NEEDED) == (smallest_cut(drawn[0]) < NEEDED)


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@given(st.data())
def test_what_is_hidden_has_no_small_cut_in_any_part(n_layers, data):
    rows = data.draw(tables(n_layers))
    hidden = suppressed_cells(rows, NEEDED)
    assert not ((rows > 0) & (rows < NEEDED))[:, ~hidden].any()
    if any(smallest_cut(layer * hidden) < NEEDED for layer in rows):
        assert any(smallest_cut(layer) < NEEDED for layer in rows)  # then bins have to be joined
        assert not rows[:, ~hidden].any()


def test_a_large_cell_of_one_part_does_not_hide_a_small_one_of_another():
    # Hidden with the first column's large cells, those 2 rows of the second part stood alone.
    rows = np.array([[[20.0, 50, 30], [30, 20, 30]], [[2, 0, 30], [30, 20, 30]]])
    hidden = suppressed_cells(rows, NEEDED)
    assert smallest_cut(rows[1] * hidden) >= NEEDED


def test_nothing_is_hidden_where_no_cell_is_small():
    assert not suppressed_cells(np.array([[[0.0, 5], [60, 7]]]), NEEDED).any()


def test_what_was_hidden_in_the_whole_stays_hidden():
    parts = np.array([[[0.0, 20], [20, 20]], [[20.0, 20], [20, 20]]])
    before = np.array([[False, True], [False, False]])
    assert suppressed_cells(parts, NEEDED, before)[0, 1]
    assert not suppressed_cells(parts, NEEDED).any()


# --- what is told -------------------------------------------------------------------------------


@given(worlds((4, 3, 3)), st.booleans(), st.booleans())
def test_totals_stay_and_no_count_is_negative(bins, has_parts, is_weighted):
    rng = np.random.default_rng(len(bins))
    partition = Branch(0, 1.5, Leaf(0), Leaf(1)) if has_parts else EVERYBODY
    binning = binning_of(bins, (4, 3, 3), partition)
    weights = rng.uniform(0.5, 2, len(bins)) if is_weighted else None
    sums = sums_of(bins, binning, rng.standard_normal((len(bins), 2)), weights)
    try:
        told = suppress_cells(sums, binning.grid, NEEDED)
    except RefusedError:
        assume(False)
    assert (told[..., [ROWS, WEIGHT]] >= 0).all()
    for place in binning.grid.tables.values():
        np.testing.assert_allclose(told[:, place].sum(axis=1), sums[:, place].sum(axis=1))


@given(worlds((5, 4)))
def test_no_small_cell_is_told_as_it_is(bins):
    rng = np.random.default_rng(len(bins))
    binning = binning_of(bins, (5, 4))
    sums = sums_of(bins, binning, rng.standard_normal((len(bins), 2)))
    told = suppress_cells(sums, binning.grid, NEEDED)
    small = (sums[..., ROWS] > 0) & (sums[..., ROWS] < NEEDED)
    assert not np.isclose(told[small][:, FIRST_ACTION:], sums[small][:, FIRST_ACTION:]).all(1).any()


def test_what_is_told_of_hidden_cells_follows_from_the_sums_of_their_bins():
    answers = []
    for few in (2, 3, 4):
        bins = rows_in(np.array([[few, 60 - few], [60 - few, few]]))
        binning = binning_of(bins, (2, 2))
        sums = sums_of(bins, binning, np.ones((len(bins), 2)))
        answers.append(suppress_cells(sums, binning.grid, NEEDED))
    assert len({answer.tobytes() for answer in answers}) == 1


def test_fewer_rows_than_needed_are_not_told_of_at_all():
    bins = np.zeros((NEEDED - 1, 2), int)
    binning = binning_of(bins, (2, 2))
    with pytest.raises(RefusedError, match="SMALL_CELLS"):
        suppress_cells(sums_of(bins, binning, np.ones((len(bins), 1))), binning.grid, NEEDED)


def test_a_sum_that_rests_on_a_few_of_a_cells_rows_is_hidden_too():
    bins = rows_in(np.full((3, 3), 30))
    scores = np.ones((len(bins), 2))
    scores[np.flatnonzero((bins == 1).all(axis=1))[2:], 1] = np.nan  # two have the second score
    binning = binning_of(bins, (3, 3))
    sums = sums_of(bins, binning, scores)
    place = binning.grid.tables[0, 1].start + 4
    known = FIRST_ACTION + 2 + 1
    assert sums[0, place, known] == 2
    unaware = suppress_cells(sums, binning.grid, NEEDED)
    assert unaware[0, place, known] == 2
    told = suppress_cells(sums, binning.grid, NEEDED, sums[..., [ROWS, known]])
    assert told[0, place, known] > NEEDED


def test_parts_of_a_few_rows_are_refused_and_empty_ones_are_not():
    for n_above, is_refused in ((0, False), (3, True), (NEEDED, False)):
        bins = np.repeat([[0, 0], [1, 1], [3, 1]], [20, 20, n_above], axis=0)
        binning = binning_of(bins, (4, 2), Branch(0, 2.5, Leaf(0), Leaf(1)))
        sums = sums_of(bins, binning, np.ones((len(bins), 1)))
        if is_refused:
            with pytest.raises(RefusedError, match="SMALL_CELLS"):
                suppress_cells(sums, binning.grid, NEEDED)
        else:
            assert suppress_cells(sums, binning.grid, NEEDED)[1, :, ROWS].max() == n_above


def test_parts_that_divide_bins_which_were_joined_in_the_whole_are_refused():
    # Bins of 3 and 3 rows were told as 6. A part that ends between them would tell them apart.
    bins = np.repeat([[0, 0], [1, 0], [2, 1], [3, 1]], [20, 3, 3, 20], axis=0)
    binning = binning_of(bins, (4, 2), Branch(0, 1.5, Leaf(0), Leaf(1)))
    sums = sums_of(bins, binning, np.ones((len(bins), 1)))
    with pytest.raises(RefusedError, match="SMALL_CELLS"):
        suppress_cells(sums, binning.grid, NEEDED)


# --- what it can cost ---------------------------------------------------------------------------


def value_on(cells, grid, tree, actions):
    """The sum of scores in a tree's leaves; by two columns' cells where it asks about two."""
    (column, cut), below = tree
    total = 0.0
    for side, (other, second) in enumerate(below):
        table = grid.table(cells, column, other)[..., FIRST_ACTION:]
        in_first = _says_yes(grid, column, cut) == (side == 0)
        for deeper in (True, False):
            in_second = _says_yes(grid, other, second) == deeper
            total += table[in_first][:, in_second].sum(axis=(0, 1))[actions[side][int(deeper)]]
    return total


def centred(cells):
    """Only differences between actions decide: what they have in common is taken off."""
    scores = cells[:, FIRST_ACTION:]
    return np.hstack([cells[:, :FIRST_ACTION], scores - scores.mean(axis=1, keepdims=True)])


def _says_yes(grid, column, cut):
    places = np.arange(grid.n_bins[column])
    return places == cut if grid.is_level[column] else places <= cut


@given(worlds((3, 3, 3), most_rows=60))
def test_no_tree_is_worth_more_or_less_than_was_told_by_more_than_the_possible_loss(bins):
    rng = np.random.default_rng(len(bins))
    level = LevelColumn(name="x2", levels=("a", "b", "c"), features=(2, 3))
    columns = (*number_columns(2), level)
    contexts = np.column_stack([bins[:, :2], bins[:, 2] == 1, bins[:, 2] == 2])
    binning = binning_of(contexts, (3, 3, 3), columns=columns)
    sums = sums_of(contexts, binning, rng.standard_normal((len(bins), 2)))[0]
    grid = binning.grid
    told = suppress_cells(sums[None], grid, NEEDED)[0]
    lost = possible_loss(told, sums, grid, 2, 2)
    splits = [(column, cut) for column in range(3) for cut in grid.cuts[column]]
    worst = 0.0
    for _ in range(200):
        first, yes, no = (splits[place] for place in rng.integers(len(splits), size=3))
        tree = (first, (yes, no))
        actions = rng.integers(2, size=(2, 2))
        values = [value_on(centred(cells), grid, tree, actions) for cells in (told, sums)]
        moved = values[0] - values[1]
        worst = max(worst, abs(moved))
    assert worst <= lost * (1 + 1e-9) + 1e-12
    assert lost == 0 or np.log2(lost) % 1 == 0


def test_nothing_is_lost_where_nothing_is_hidden():
    bins = rows_in(np.full((2, 2), 9))
    binning = binning_of(bins, (2, 2))
    sums = sums_of(bins, binning, np.random.default_rng(0).standard_normal((len(bins), 2)))
    told = suppress_cells(sums, binning.grid, NEEDED)
    assert np.array_equal(told, sums)
    assert possible_loss(told[0], sums[0], binning.grid, 2, 2) == 0
