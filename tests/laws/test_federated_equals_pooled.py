"""Law: given the scores and λ = n̄, federated equals pooled; federated nuisances, too."""

from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.client.local.cell_tables import Binning, cell_sums, near_sums
from fedopl.client.rows.chunks import Chunk, ScoredRows
from fedopl.client.rows.folds import Folds
from fedopl.client.scoring.cross_fit import fit_nuisances
from fedopl.client.scoring.outcome import GivenModels
from fedopl.client.scoring.scores import aipw_scores
from fedopl.engines.in_process import InProcess
from fedopl.policies.trees.grid import rules_of
from fedopl.policies.trees.growing import grow_tree
from fedopl.policies.trees.nodes import depth_of
from fedopl.results.sums.tree_statistics import mixed_cells
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from fedopl.solvers.linear_solvers import solve_scores
from fedopl.study.study import Study

SIZES = {"north": 400, "south": 150, "west": 61}


@pytest.fixture
def federation(draw):
    """Three clients, their doors after a run, and the record."""

    def _run(known=True, weighted=False, **options):
        clients = {}
        for seed, (name, size) in enumerate(SIZES.items()):
            weights = np.random.default_rng(seed).uniform(0.5, 2, size) if weighted else None
            clients[name] = draw(size, seed=seed, known=known, confounded=True, weights=weights)
        first = clients["north"]
        # Where clients count by noise, pooled rows would have to, too.
        options.setdefault("policy", fedopl.Linear(precision="rows"))
        study = Study(actions=first.action_names, features=first.feature_names, **options)
        doors = {
            name: Door(name, data, study, limits=Limits.open(), secret=SEED_ALONE)
            for name, data in clients.items()
        }
        return clients, doors, run_study(Conversation(study, InProcess(doors)))

    return _run


def pooled_rows(doors):
    """Everybody's rows in one table, with the folds the clients used."""
    spaces = [doors[name]._space for name in sorted(doors)]
    data = [space.data for space in spaces]
    together = fedopl.LoggedData(
        np.vstack([d.contexts for d in data]),
        np.concatenate([d.actions for d in data]),
        np.concatenate([d.rewards for d in data]),
        np.vstack([d.propensities for d in data]),
        action_names=data[0].action_names,
        weights=None if data[0].weights is None else np.concatenate([d.weights for d in data]),
    )
    folds = Folds(
        of_row=np.concatenate([space.folds.of_row for space in spaces]),
        n_folds=spaces[0].folds.n_folds,
        reason="",
    )
    return together, folds, np.vstack([space.scores for space in spaces])


def least_squares_policy(contexts, scores, weights):
    root = np.sqrt(weights)[:, None]
    design = np.column_stack([contexts, np.ones(len(contexts))])
    return np.linalg.lstsq(design * root, scores * root, rcond=None)[0].T


def test_the_exact_policy_is_the_one_learned_on_pooled_rows(federation):
    _, doors, record = federation()
    together, folds, scores = pooled_rows(doors)
    training = ~folds.held_out
    expected = least_squares_policy(
        together.contexts[training], scores[training], np.ones(training.sum())
    )
    np.testing.assert_allclose(record.policy.parameters, expected, rtol=1e-9)


def test_blocks_are_pooled_least_squares_on_each_actions_own_features(draw):
    clients = {n: draw(s, seed=i, n_features=6) for i, (n, s) in enumerate(SIZES.items())}
    study = Study(
        actions=clients["north"].action_names,
        features=clients["north"].feature_names,
        policy=fedopl.Linear(features="blocks", precision="rows"),
    )
    doors = {
        n: Door(n, d, study, limits=Limits.open(), secret=SEED_ALONE) for n, d in clients.items()
    }
    record = run_study(Conversation(study, InProcess(doors)))
    spaces = [doors[name]._space for name in sorted(doors)]
    contexts = np.vstack([space.data.contexts[space.training] for space in spaces])
    scores = np.vstack([space.scores[space.training] for space in spaces])
    for action in range(3):
        own = slice(2 * action, 2 * action + 2)
        expected = np.zeros(7)
        expected[own] = np.linalg.lstsq(contexts[:, own], scores[:, action], rcond=None)[0]
        np.testing.assert_allclose(record.policy.parameters[action], expected, rtol=1e-9)


def on_blocks(draw, n_rows=SIZES, **nuisances):
    """Scores of three clients by models on blocks of six features, and the rows and folds."""
    clients = {
        n: draw(s, seed=i, n_features=6, known=True) for i, (n, s) in enumerate(n_rows.items())
    }
    study = Study(
        actions=clients["north"].action_names,
        features=clients["north"].feature_names,
        nuisances=fedopl.NuisancePlan(features="blocks", **nuisances),
    )
    doors = {
        n: Door(n, d, study, limits=Limits.open(), secret=SEED_ALONE) for n, d in clients.items()
    }
    run_study(Conversation(study, InProcess(doors)))
    return doors


def block_means(data, folds, outcome):
    """μ̂ of each action, from a table that has no features but the action's own."""
    means = []
    for action in range(3):
        alone = fedopl.LoggedData(
            data.contexts[:, 2 * action : 2 * action + 2],
            data.actions,
            data.rewards,
            action_names=data.action_names,
        )
        found = fit_nuisances(Chunk(data=alone, folds=folds), outcome, "marginal", 0)
        means.append(found.outcome_means[:, action])
    return np.column_stack(means)


def scores_by(means, data):
    """Γ̂ = μ̂ + 1{A = a}·(Y − μ̂)/e, with known propensities."""
    took = np.arange(3) == data.actions[:, None]
    return means + took * (data.rewards[:, None] - means) / data.propensities


@pytest.mark.parametrize("outcome", ["ridge", "ols"])
def test_models_on_blocks_are_those_of_pooled_tables_with_these_features_alone(draw, outcome):
    together, folds, scores = pooled_rows(on_blocks(draw, outcome=outcome))
    expected = scores_by(block_means(together, folds, outcome), together)
    np.testing.assert_allclose(scores, expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("outcome", ["ridge", "ols"])
def test_local_models_on_blocks_are_those_of_own_tables_with_these_features_alone(draw, outcome):
    for door in on_blocks(draw, outcome=outcome, kind="local").values():
        space = door._space
        means = block_means(space.data, space.folds, outcome)
        np.testing.assert_allclose(space.scores, scores_by(means, space.data), rtol=1e-7, atol=1e-9)


def test_any_mixture_is_a_weighted_pool(federation):
    mixture = fedopl.mixture.given({"north": 0.1, "south": 0.2, "west": 0.7})
    _, doors, record = federation(mixture=mixture)
    together, folds, scores = pooled_rows(doors)
    training = ~folds.held_out
    shares = np.concatenate(
        [
            np.full(door._space.data.n_rows, mixture.shares[name] / door._space.n_training)
            for name, door in sorted(doors.items())
        ]
    )
    expected = least_squares_policy(together.contexts[training], scores[training], shares[training])
    np.testing.assert_allclose(record.policy.parameters, expected, rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("outcome", ["ridge", "ols"])
def test_federated_nuisances_give_the_scores_of_pooled_rows(federation, outcome, weighted):
    plan = fedopl.NuisancePlan(outcome=outcome, learning_clip=0)
    _, doors, _ = federation(nuisances=plan, weighted=weighted)
    together, folds, scores = pooled_rows(doors)
    nuisances = fit_nuisances(Chunk(data=together, folds=folds), outcome, "known", seed=0)
    np.testing.assert_allclose(
        scores, aipw_scores(together, nuisances).values, rtol=1e-9, atol=1e-9
    )


def test_resolving_for_another_mixture_is_learning_with_it(draw):
    clients = {name: draw(200, seed=seed) for seed, name in enumerate(SIZES)}
    skewed = fedopl.mixture.skewed(toward="west", alpha=0.3)
    run = fedopl.learn(clients, basis="linear")
    again = fedopl.learn(clients, basis="linear", mixture=skewed)
    n_rounds = len(run.rounds)
    np.testing.assert_array_equal(run.resolve(skewed).numbers(), again.policy.numbers())
    assert len(run.rounds) == n_rounds
    assert (run.policy.parameters != again.policy.parameters).any()


def test_one_client_is_ordinary_policy_learning(draw):
    data = draw(300, known=True)
    run = fedopl.learn({"all": data}, basis="linear", evaluation=0, nuisances="local")
    space = Door("all", data, run.study, secret=SEED_ALONE)._space
    means = space.score_means(space.scored_with(GivenModels(np.empty((0, 3, 6)))))
    expected = solve_scores(
        means.grams, means.products, means.squares, means.shares, intercept=True
    )
    np.testing.assert_array_equal(run.policy.parameters, expected)


# --- trees ----------------------------------------------------------------------------------------


def pooled_tree(record, doors, depth):
    """The tree grown on everybody's training rows in one table, on the same grid."""
    together, folds, scores = pooled_rows(doors)
    used = ~folds.held_out
    weights = None if together.weights is None else together.weights[used]
    rows = ScoredRows(contexts=together.contexts[used], scores=scores[used], weights=weights)
    grid, study = record.tree.grid, record.study

    def cells_of(partition):
        binning = Binning(columns=study.columns, grid=grid, partition=partition)
        return list(cell_sums([rows], binning)[: binning.n_open])

    rules = rules_of(study.tree, study.columns, grid, study.actions)
    root = grow_tree(grid, depth, rules, cells_of)[0]
    if not record.tree.closer:
        return root
    look = replace(record.tree.closer.look, root=root)
    binning = Binning(columns=study.columns, grid=grid)
    return look.moved(near_sums([rows], look, binning, np.ones(study.n_actions, bool)).gains)


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_the_federated_tree_is_the_tree_of_the_pooled_rows(federation, depth):
    _, doors, record = federation(policy=fedopl.Tree(depth=depth, bins=8))
    assert record.policy.root == pooled_tree(record, doors, depth)
    assert depth_of(record.policy.root) == depth  # so that there was something to compare
    assert bool(record.tree.closer) == (depth <= 2)


def test_the_federated_cells_are_those_of_the_pooled_rows(federation):
    _, doors, record = federation(policy=fedopl.Tree(bins=5))
    together, folds, scores = pooled_rows(doors)
    used = ~folds.held_out
    weights = {name: 1 / used.sum() * n for name, n in record.rows.items()}
    found = mixed_cells(record.tree.cells, weights)
    grid = record.tree.grid
    bins = [
        np.searchsorted(cuts, column)
        for cuts, column in zip(grid.cuts, together.contexts[used].T, strict=True)
    ]
    for (first, second), table in grid.tables.items():
        for cell in range(table.stop - table.start):
            across, down = divmod(cell, grid.n_bins[second])
            inside = bins[first] == (cell if first == second else across)
            if first != second:
                inside &= bins[second] == down
            expected = [
                inside.sum(),
                inside.mean(),
                *(scores[used][inside].sum(axis=0) / len(inside)),
            ]
            np.testing.assert_allclose(found[table][cell], expected, atol=1e-12)


def test_a_tree_is_grown_again_for_any_mixture_without_asking(federation):
    clients, _, record = federation(policy=fedopl.Tree(bins=8, refine=False))
    shares = {"north": 0.1, "south": 0.2, "west": 0.7}
    study = record.study.model_copy(update={"mixture": fedopl.mixture.given(shares)})
    again = {
        n: Door(n, clients[n], study, limits=Limits.open(), secret=SEED_ALONE) for n in clients
    }
    asked = run_study(Conversation(study, InProcess(again)))
    assert record.resolve(shares).root == asked.policy.root
    assert record.resolve(shares).root != record.policy.root
