"""Mixtures on the way to one client, and the one for the client that loses most."""

import numpy as np
import pytest
from small_worlds import action_missing, alike_world, outcome_shift

from fedopl.base.errors import FederationError, OptionError
from fedopl.messages.message import RowSplit as Rows
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.nodes import Branch, Leaf
from fedopl.results.sums.any_mixture import solve_for
from fedopl.results.sums.tree_statistics import tree_value
from fedopl.server.mixtures.found_weights import (
    regrets_at_hand,
    regrets_by_asking,
    skew_paths,
)
from fedopl.server.mixtures.value_queries import ValueQueries
from fedopl.study.policy_plans import Tree
from fedopl.theory.skew import effective_sample_size, skewness

SIZES = (300, 200, 120)
CUTS = {f"x{n}": (-0.6, 0.0, 0.7) for n in (1, 2, 3)}


def path_of(joined, target="client 3", **options):
    values = ValueQueries(joined.ask(), options.pop("most", joined.most))
    return skew_paths(joined.statistics, joined.record.rows, values, [target], **options)[target]


def test_a_path_goes_from_everybody_to_one_client(join):
    joined = join(outcome_shift(alike_world()), SIZES)
    path = path_of(joined, alphas=(0.5, 1.0, 0.2))
    assert [point.alpha for point in path.points] == [0, 0.2, 0.5, 1]
    rows = joined.record.rows
    for point in path.points:
        assert point.skewness == pytest.approx(skewness(point.weights, rows))
        assert point.effective_rows == pytest.approx(effective_sample_size(point.weights, rows))
    first, *_, last = path.points
    assert first.effective_rows == pytest.approx(sum(rows.values()))
    assert last.effective_rows == pytest.approx(rows["client 3"])
    alone = joined.statistics.solve({"client 1": 0.0, "client 2": 0.0, "client 3": 1.0})
    own, shared = (solve_for(joined.statistics, point.weights) for point in (last, first))
    np.testing.assert_allclose(own.parameters, alone.parameters, rtol=1e-9)
    np.testing.assert_allclose(shared.parameters, joined.record.policy.parameters)


@pytest.mark.parametrize("most", [2, 5])
def test_values_on_a_path_are_those_of_the_rows_and_paired(join, most):
    joined = join(outcome_shift(alike_world()), SIZES)
    path = path_of(joined, most=most)
    base = path.points[0]
    for point in path.points:
        value = gain = variance = 0.0
        for name, weight in base.weights.items():
            x, scores, _ = joined.rows(name, Rows.EVALUATION)
            pair = [solve_for(joined.statistics, one.weights) for one in (point, base)]
            chosen = [scores[np.arange(len(x)), p.decide(x)] for p in pair]
            difference = chosen[0] - chosen[1]
            value += weight * chosen[0].mean()
            gain += weight * difference.mean()
            variance += weight**2 * difference.var(ddof=1) / len(x)
            if name == "client 3":
                assert point.at_target.value == pytest.approx(chosen[0].mean())
                assert point.target_gain.value == pytest.approx(difference.mean(), abs=1e-12)
                error = difference.std(ddof=1) / np.sqrt(len(x))
                assert point.target_gain.standard_error == pytest.approx(error, abs=1e-12)
        assert point.in_base.value == pytest.approx(value)
        assert point.base_gain.value == pytest.approx(gain, abs=1e-12)
        assert point.base_gain.standard_error == pytest.approx(np.sqrt(variance), abs=1e-9)


def test_a_path_says_whether_the_data_tell_mixtures_apart(join):
    tree = {"policy": Tree(cuts=CUTS)}
    alike = path_of(join(alike_world(), (400, 400, 400), draw=1))
    assert alike.cannot_tell
    assert "cannot show which mixture" in alike.verdict
    odd = outcome_shift(alike_world(n_features=3), 2.0)
    for options in ({}, tree):
        path = path_of(join(odd, (900, 900, 900), **options), "client 1")
        assert not path.cannot_tell
        assert path.best_for_target.alpha > 0
        assert "helps client 1" in path.verdict
    costly = path_of(join(odd, (3000, 3000, 3000), **tree), "client 3")
    assert costly.points[-1].base_gain.interval()[1] < 0
    assert not costly.cannot_tell
    assert "costs all together" in costly.verdict


def test_paths_that_are_none_are_refused(join):
    joined = join(alike_world(), SIZES)
    for alphas in ((), (0.0,), (1.2,)):
        with pytest.raises(OptionError, match="alphas"):
            path_of(joined, alphas=alphas)
    with pytest.raises(OptionError, match="client 9"):
        path_of(joined, "client 9")


# --- minimax -------------------------------------------------------------------------------------


def random_root(rng):
    def leaf():
        return Leaf(int(rng.integers(3)))

    def split(yes, no):
        return Branch(int(rng.integers(3)), float(rng.choice(CUTS["x1"])), yes, no)

    below = [leaf() if rng.random() < 0.3 else split(leaf(), leaf()) for _ in range(2)]
    return leaf() if rng.random() < 0.1 else split(*below)


def test_a_tree_is_valued_from_cells_as_on_rows(join):
    world = outcome_shift(alike_world(n_features=3), 1.0)
    joined = join(world, SIZES, policy=Tree(cuts=CUTS))
    found, rng = joined.statistics, np.random.default_rng(0)
    for _ in range(60):
        root = random_root(rng)
        policy = type(joined.record.policy)(root, joined.study.actions, joined.study.features)
        for name in joined.doors:
            value = tree_value(found.cells[name], found.grid, 3, root)
            assert value == pytest.approx(joined.value(name, policy), abs=1e-10)


def test_a_tree_that_asks_about_levels_is_valued_from_cells_too():
    rng = np.random.default_rng(0)
    level, number = rng.integers(0, 3, 50), rng.standard_normal(50)
    scores = rng.standard_normal((50, 2))
    grid = Grid(((0.0, 1.0, 2.0), (0.5,)), (True, False))
    bins = [level, (number > 0.5).astype(int)]
    cells = np.zeros((grid.n_cells, 4))
    for (first, second), table in grid.tables.items():
        places = bins[first]
        if first != second:
            places = places * grid.n_bins[second] + bins[second]
        numbers = np.column_stack([np.ones(50), np.full(50, 0.02), scores / 50])
        np.add.at(cells, table.start + places, numbers)
    below = Branch(1, 0.5, Leaf(0), Leaf(1))
    for root, decided in (
        (Branch(0, 1.0, Leaf(0), Leaf(1)), level != 1),
        (Branch(0, 1.0, below, Leaf(0)), (level == 1) & (number > 0.5)),
        (Branch(1, 0.5, Branch(0, 2.0, Leaf(1), Leaf(0)), Leaf(1)), (number > 0.5) | (level == 2)),
        (Branch(0, 0.0, Leaf(0), Branch(0, 2.0, Leaf(1), Leaf(0))), level == 2),
    ):
        expected = scores[np.arange(50), decided.astype(int)].mean()
        assert tree_value(cells, grid, 2, root) == pytest.approx(expected)


def test_rows_without_a_score_are_left_out_of_a_trees_value(join):
    world = action_missing(alike_world(n_features=3), "client 2", "a1")
    nuisances = {"kind": "local", "unseen": "mask"}
    joined = join(world, SIZES, policy=Tree(cuts=CUTS), nuisances=nuisances)
    root = Branch(0, 0.0, Leaf(0), Leaf(1))
    x, scores, _ = joined.rows("client 2")
    cells = joined.statistics.cells["client 2"]
    found = tree_value(cells, joined.statistics.grid, 3, root)
    assert found == pytest.approx(scores[x[:, 0] > 0, 1].mean())
    assert np.isnan(tree_value(cells, joined.statistics.grid, 3, Leaf(0)))


def test_regrets_at_hand_are_against_each_clients_best_tree(join):
    world = outcome_shift(alike_world(n_features=3), 1.0)
    joined = join(world, SIZES, policy=Tree(cuts=CUTS))
    regrets = regrets_at_hand({None: joined.statistics})
    for name in joined.doors:
        best = solve_for(joined.statistics, {name: 1.0})
        assert regrets({None: best})[None][name] == pytest.approx(0, abs=1e-12)
        expected = joined.value(name, best) - joined.value(name, joined.record.policy)
        told = regrets({None: joined.record.policy})[None]
        assert told[name] == pytest.approx(expected, abs=1e-10)


def test_regrets_that_are_asked_for_are_against_each_clients_own_policy(join):
    joined = join(outcome_shift(alike_world(), 1.0), SIZES)
    regrets = regrets_by_asking({None: joined.statistics}, joined.ask_training, 2)
    for name, regret in regrets({None: joined.record.policy})[None].items():
        own = solve_for(joined.statistics, {name: 1.0})
        expected = joined.value(name, own) - joined.value(name, joined.record.policy)
        assert regret == pytest.approx(expected)


def test_an_ascent_ends_where_regrets_are_not_told_any_more(join):
    joined = join(outcome_shift(alike_world(), 1.0), SIZES)
    for told in ({"client 1": 0.1, "client 2": 0.1}, dict.fromkeys(joined.weights, np.nan)):
        with pytest.raises(FederationError, match="even of the first policy"):
            joined.climbed(lambda _, told=told: {None: told})
    regrets = regrets_by_asking({None: joined.statistics}, joined.ask_training, 2)
    left = iter(range(4))

    def until_refused(policies):
        return regrets(policies) if next(left, None) is not None else {None: {}}

    found = joined.climbed(until_refused)
    assert len(found.trace) == 4
    assert not found.converged
    assert found.largest == min(step.largest for step in found.trace)


def test_each_step_is_the_exponential_of_the_regrets(join):
    joined = join(outcome_shift(alike_world()), SIZES)
    asked = []

    def regrets(policies):
        asked.append(policies[None])
        return {None: {"client 1": 0.3, "client 2": 0.1, "client 3": -0.2}}

    found = joined.climbed(regrets, most_steps=3)
    first, second, third = found.trace
    assert first.weights == pytest.approx(joined.weights)
    felt = np.array([0.3, 0.1, -0.2])
    step_size = np.sqrt(-8 * np.log(min(joined.weights.values())) / 3) / np.ptp(felt)
    for before, after in ((first, second), (second, third)):
        grown = np.array(list(before.weights.values())) * np.exp(step_size * felt)
        assert list(after.weights.values()) == pytest.approx(grown / grown.sum())
    assert found.averaged["client 2"] == pytest.approx(
        np.mean([step.weights["client 2"] for step in found.trace])
    )
    # Regrets that do not change: the gap is their largest less what the weights felt on average.
    weighed = [felt @ list(step.weights.values()) for step in found.trace]
    assert third.gap == pytest.approx(0.3 - np.mean(weighed))
    assert found.at_least == pytest.approx(max(weighed))
    assert not found.converged
    assert found.largest == first.largest == 0.3
    assert asked[0].parameters == pytest.approx(joined.record.policy.parameters)


def test_the_ascent_converges_and_bounds_the_game_from_both_sides(join):
    world = outcome_shift(alike_world(n_features=3), 1.0)
    joined = join(world, (400, 100, 100), policy=Tree(cuts=CUTS))
    regrets = regrets_at_hand({None: joined.statistics})
    found = joined.climbed(regrets, most_steps=300)
    assert found.converged
    mean = np.mean([list(step.regrets.values()) for step in found.trace], axis=0)
    assert found.at_least <= mean.max() + 1e-12  # no lottery does better than the bound
    assert mean.max() - found.trace[-1].gap <= found.at_least + 1e-12
    assert found.trace[-1].gap < found.trace[0].gap / 4
    assert sum(found.averaged.values()) == pytest.approx(1)
    assert found.largest <= min(step.largest for step in found.trace)
    reached = {None: solve_for(joined.statistics, found.weights)}
    assert found.regrets == pytest.approx(regrets(reached)[None])


def worst_regret(world, policy):
    best = {name: world.optimal_policy({name: 1.0}) for name in world.clients}
    return max(world.value(best[n], n, 4000) - world.value(policy, n, 4000) for n in best)


@pytest.mark.parametrize("n_draws", [10, pytest.param(20, marks=pytest.mark.slow_law)])
@pytest.mark.parametrize("policy", ["linear", "tree"])
def test_minimax_weights_lower_the_true_worst_regret(join, policy, n_draws):
    options = {"policy": Tree(cuts=CUTS)} if policy == "tree" else {}
    lowered = []
    for draw in range(n_draws):
        world = outcome_shift(alike_world(n_features=3, seed=draw), 1.0)
        joined = join(world, (1600, 300, 300), draw, **options)
        if policy == "tree":
            regrets = regrets_at_hand({None: joined.statistics})
        else:
            ask = joined.ask_training
            regrets = regrets_by_asking({None: joined.statistics}, ask, joined.most)
        found = joined.climbed(regrets, most_steps=30)
        before, after = joined.record.policy, solve_for(joined.statistics, found.weights)
        lowered.append(worst_regret(world, before) - worst_regret(world, after))
    by = np.array(lowered)
    assert by.mean() > 3 * by.std(ddof=1) / np.sqrt(len(by))
    assert np.mean(by > 0) >= 0.8
