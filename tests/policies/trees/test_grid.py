"""Thresholds that are agreed on: about equally full, round, and nobody's value."""

import numpy as np
import pytest

import fedopl
from fedopl.base.errors import OptionError
from fedopl.messages.trees.bin_counts import N_FINE_BINS
from fedopl.server.aggregate.grid_agreement import thresholds
from fedopl.server.exchange_counts import expected_trips
from fedopl.study.study import Study

RNG = np.random.default_rng(0)


def learned(columns, bins=8, n_clients=2, limits="open", refine=True, **options):
    """A run on columns that are shared out, with rewards that do not matter."""
    n_rows = len(columns)
    clients = {
        f"client {part}": fedopl.LoggedData(
            columns[part::n_clients],
            np.arange(len(columns[part::n_clients])) % 2,
            RNG.normal(size=len(columns[part::n_clients])),
            propensities=np.full(len(columns[part::n_clients]), 0.5),
        )
        for part in range(n_clients)
    }
    assert n_rows == sum(data.n_rows for data in clients.values())
    plan = fedopl.Tree(bins=bins, refine=refine)
    return fedopl.learn(clients, basis="linear", policy=plan, limits=limits, **options)


SHAPES = {
    "normal": RNG.normal(50, 12, 4000),
    "far from zero": 2000 + 20 * RNG.random(4000),
    "tiny": 1e-7 * RNG.normal(size=4000),
    "long tail": RNG.lognormal(0, 2, 4000),
    "heavy tails": RNG.standard_cauchy(4000),
}


@pytest.mark.parametrize("limits", ["open", "guarded"])
@pytest.mark.parametrize("column", SHAPES.values(), ids=SHAPES)
def test_bins_are_about_equally_full(column, limits):
    (cuts,) = learned(column[:, None], limits=limits).tree.grid.cuts
    assert len(cuts) == 7
    shares = np.bincount(np.searchsorted(cuts, column)) / len(column)
    assert shares.min() > 0.04
    assert shares.max() < 0.22


def test_thresholds_are_round_and_nobodys_value():
    column = RNG.normal(50, 12, 4000)
    (cuts,) = learned(column[:, None], bins=32).tree.grid.cuts
    assert all(round(cut, 1) == cut for cut in cuts)
    assert not np.isin(cuts, column).any()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1], [0.5]),
        ([0, 1, 2, 3], [0.5, 1.5, 2.5]),
        ([1, 2, 3, 4, 5, 6, 7], [1.5, 2.5, 3.5, 4.5, 5.5, 6.5]),
        ([-100, 0, 1000], [-50, 500]),
        ([3], []),
    ],
)
def test_numbers_that_come_in_steps_are_cut_between_them(values, expected):
    column = RNG.choice(np.array(values, float), 3000)
    run = learned(column[:, None])
    (cuts,) = run.tree.grid.cuts
    assert len(cuts) == len(expected)
    sorted_values = np.sort(np.unique(column))
    for cut, low, high in zip(cuts, sorted_values, sorted_values[1:], strict=False):
        assert low < cut < high
    if expected and np.ptp(values) < 10:
        assert cuts == tuple(expected)
        assert [r.query for r in run.rounds].count("CountBins") == 1


def test_rows_are_counted_again_where_bins_are_too_coarse_and_only_there():
    smooth, skewed = RNG.normal(size=(4000, 1)), RNG.lognormal(0, 2, (4000, 1))
    assert [r.query for r in learned(smooth).rounds].count("CountBins") == 1
    assert [r.query for r in learned(skewed).rounds].count("CountBins") == 2


def test_rows_are_counted_as_finely_for_a_second_look_in_few_bins_as_in_many():
    skewed = RNG.lognormal(0, 1, (4000, 1))

    def counted(**options):
        return [r.query for r in learned(skewed, **options).rounds].count("CountBins")

    assert counted(bins=32, refine=False) == counted(bins=4) == counted(bins=32) == 2
    assert counted(bins=4, refine=False) == 1  # nobody looks for thresholds within these bins


def test_agreed_cuts_are_used_and_nobody_is_asked_for_others():
    columns = RNG.normal(size=(600, 2))
    clients = {
        "a": fedopl.LoggedData(columns, np.arange(600) % 2, RNG.normal(size=600)),
    }
    plan = fedopl.Tree(cuts={"x0": (-1, 0.25), "x1": (0,)})
    run = fedopl.learn(clients, basis="linear", policy=plan)
    assert run.tree.grid.cuts == ((-1, 0.25), (0,))
    trips = {r.query: r.trip for r in run.rounds}
    assert "CountBins" not in trips
    assert trips["SumCells"] == trips["SumScores"] == 1  # nobody has to be asked twice
    assert max(trips.values()) + 1 == expected_trips(run.study, len(run.rows)) == 3


def test_columns_that_may_not_be_asked_about_are_not_cut():
    run = learned(RNG.normal(size=(600, 3)))
    assert all(len(cuts) == 7 for cuts in run.tree.grid.cuts)
    clients = {
        "a": fedopl.LoggedData(RNG.normal(size=(600, 3)), np.arange(600) % 2, RNG.random(600))
    }
    only = fedopl.learn(clients, basis="linear", policy=fedopl.Tree(bins=8, columns=("x1",)))
    assert [len(cuts) for cuts in only.tree.grid.cuts] == [0, 7, 0]


def test_columns_that_may_not_be_asked_about_cost_no_cells_and_change_nothing():
    contexts, rewards = RNG.normal(size=(600, 5)), RNG.random(600)
    rewards += np.arange(600) % 2 * (contexts[:, 1] > 0.3) * (contexts[:, 3] < 0.5)

    def run_on(places, **options):
        data = fedopl.LoggedData(
            contexts[:, places],
            np.arange(600) % 2,
            rewards,
            propensities=np.full((600, 2), 0.5),
            feature_names=tuple(f"x{place}" for place in places),
        )
        plan = fedopl.Tree(bins=8, depth=2, **options)
        return fedopl.learn({"a": data}, basis="linear", policy=plan)

    some = run_on([0, 1, 2, 3, 4], columns=("x1", "x3")).tree
    assert some.grid.n_cells == run_on([1, 3]).tree.grid.n_cells == 8 * 8 + 2 * 8
    cells = some.cells["a"]
    assert some.grid.line(cells, 0) == pytest.approx(some.grid.line(cells, 1).sum(axis=0)[None])
    assert some.grid.line(cells, 0)[0, 0] == some.grid.line(cells, 3)[:, 0].sum()


def test_the_grid_does_not_depend_on_the_mixture():
    columns = np.concatenate([RNG.normal(0, 1, (500, 1)), RNG.normal(9, 1, (500, 1))])
    clients = {
        name: fedopl.LoggedData(part, np.arange(500) % 2, RNG.random(500))
        for name, part in (("a", columns[:500]), ("b", columns[500:]))
    }
    grids = [
        fedopl.learn(clients, basis="linear", policy="tree", mixture=mixture).tree.grid.cuts
        for mixture in ("empirical", {"a": 0.99, "b": 0.01})
    ]
    assert grids[0] == grids[1]


def test_a_grid_with_more_cells_than_anybody_could_tell_is_refused():
    features = tuple(f"x{f}" for f in range(200))
    options = {"actions": ("a", "b"), "features": features, "policy": "tree"}
    with pytest.raises(OptionError, match=r"tree: its grid has up to 20,384,000 cells.*columns"):
        Study(**options)
    assert Study(**options | {"policy": fedopl.Tree(bins=8)}).most_cells < 10_000_000
    few = Study(**options | {"policy": fedopl.Tree(columns=("x0", "x7"))})
    assert few.most_cells == 32 * 32 + 2 * 32  # columns that are not asked about have no cells


def test_a_grid_whose_cells_no_message_could_hold_is_refused():
    features = tuple(f"x{f}" for f in range(100))
    many = {"actions": [f"a{a}" for a in range(30)], "features": features, "policy": "tree"}
    with pytest.raises(OptionError, match=r"tree: its grid has .* cells in 1 node at .* message"):
        Study(**{"evaluation": 0.25, **many})
    few = {**many, "actions": ("a", "b")}
    assert (
        Study(**{"evaluation": 0.25, **few}).most_cells
        == Study(**{"evaluation": 0.25, **(few | {"policy": fedopl.Tree(depth=4)})}).most_cells
    )
    with pytest.raises(OptionError, match=r"in 8 nodes at once.*depth"):
        Study(**{"evaluation": 0.25, **(few | {"policy": fedopl.Tree(depth=5)})})


def test_no_rows_between_the_cuts_is_no_threshold():
    cuts = np.linspace(0, 1, N_FINE_BINS - 1)
    assert thresholds(cuts, np.zeros(N_FINE_BINS), 8) == []
    assert thresholds(cuts, np.eye(N_FINE_BINS)[0] * 9, 8) == []
