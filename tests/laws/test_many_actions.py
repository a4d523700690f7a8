"""With many actions the limits cost none of them silently, and values rest on all rows."""

import numpy as np
import pytest

import fedopl
from fedopl.report.cautions import cautions
from fedopl.report.page import render
from fedopl.report.recommending import key_figures, recommend
from fedopl.results.value_tables import LOGGING

N_ACTIONS, N_LEVELS = 34, 16
AT_RANDOM = fedopl.NuisancePlan(propensity="marginal")


def shop(seed, n_rows=10_000, rare=0):
    """Recommendations drawn at random: 8 numbers and 16 levels of a category, clicks in percent."""
    rng = np.random.default_rng(seed)
    level = rng.integers(0, N_LEVELS, n_rows)
    contexts = np.hstack([rng.standard_normal((n_rows, 8)), np.eye(N_LEVELS)[level]])
    actions = rng.integers(0, N_ACTIONS, n_rows)
    if rare:  # the last action is taken so often
        actions[actions == N_ACTIONS - 1] = 0
        actions[:rare] = N_ACTIONS - 1
    worth = 1 + contexts[:, 0] * np.sin(actions) + 0.5 * np.cos(actions)
    rewards = worth + rng.standard_normal(n_rows)
    names = [f"item {a}" for a in range(N_ACTIONS)]
    return fedopl.LoggedData(contexts, actions, rewards, action_names=names)


@pytest.fixture(scope="module")
def shops():
    return {"one": shop(1), "two": shop(2)}


def guarded(clients, policy="linear", **more):
    options = {"evaluation": 0.25, "nuisances": AT_RANDOM, **more}
    return fedopl.learn(clients, basis="linear", policy=policy, limits="guarded", **options)


@pytest.fixture(scope="module")
def run(shops):
    return guarded(shops)


def test_every_action_that_many_took_has_a_score(run):
    assert not run.statistics.unknown(run.mixture).any()


@pytest.mark.parametrize("policy", ["linear", "tree"])
def test_values_rest_on_all_rows_held_out(shops, run, policy):
    found = run if policy == "linear" else guarded(shops, fedopl.Tree(depth=1, bins=8))
    for client, rows in shops.items():
        held_out = found.gains.over(LOGGING, client)
        assert held_out.n_rows == pytest.approx(rows.n_rows / 4, abs=N_ACTIONS)
        # What was done so far is the mean outcome, of everybody.
        estimate = found.values.of(LOGGING, client)
        assert estimate.n_rows == rows.n_rows
        low, high = estimate.interval(0.999)
        assert low < rows.rewards.mean() < high


def test_scores_of_rare_actions_are_as_good_as_with_open_limits(shops, run):
    open_run = fedopl.learn(
        shops, basis="linear", limits="open", nuisances=AT_RANDOM, evaluation=0.25
    )
    both = [one.statistics.arm_values(one.mixture) for one in (run, open_run)]
    truth = 1 + 0.5 * np.cos(np.arange(N_ACTIONS))
    errors = [float(np.sqrt(np.mean((found - truth) ** 2))) for found in both]
    assert errors[0] < 1.1 * errors[1]


def test_an_action_that_too_few_took_has_no_score_and_nobody_chooses_it():
    clients = {"one": shop(1, rare=4), "two": shop(2, rare=4)}
    run = guarded(clients)
    (lost,) = np.flatnonzero(run.statistics.unknown(run.mixture))
    assert run.study.actions[lost] == f"item {N_ACTIONS - 1}"
    for client in clients:
        assert run.gains.over(LOGGING, client).n_rows == pytest.approx(2_500, abs=N_ACTIONS)
        assert run.values.of(LOGGING, client).n_rows == clients[client].n_rows


@pytest.fixture(scope="module")
def partial():
    """A client that has no score for what is best for 3 % of its people, as others know."""

    def client(seed, n_actions, n_rows=4_000):
        rng = np.random.default_rng(seed)
        contexts, actions = rng.standard_normal((n_rows, 2)), rng.integers(0, n_actions, n_rows)
        worth = np.where(actions == 2, 2 * contexts[:, 0] - 3.8, 0.1 * actions)
        rewards = worth + 0.3 * rng.standard_normal(n_rows)
        return fedopl.LoggedData(contexts, actions, rewards, action_names=["a", "b", "c"])

    plan = fedopl.NuisancePlan(kind="local", unseen="mask", propensity="marginal")
    clients = {"best": client(1, 3), "lacks": client(2, 2)}
    return fedopl.learn(clients, basis="linear", nuisances=plan, evaluation=0.25)


def test_rows_used_are_shown_beside_the_rows_that_there_are(run, shops):
    for client in shops:
        estimate = run.gains.over(LOGGING, client)
        assert estimate.n_rows == estimate.of_rows
    whole = run.gains.over(LOGGING)
    assert f"{whole.n_rows:,} of {whole.of_rows:,}" in str(run)
    assert set(run.gains.to_frame()["of_rows"]) >= {whole.of_rows}
    assert ("Held-out rows used", f"{whole.n_rows:,} of {whole.of_rows:,}", "from 2 clients") in (
        key_figures(run)
    )
    assert "Values of a part of the rows" not in [one.title for one in cautions(run)]


def test_values_of_a_part_of_the_rows_are_counted_and_are_no_claim(partial, tmp_path):
    estimate = partial.gains.over(LOGGING, "lacks")
    assert 0.95 * estimate.of_rows < estimate.n_rows < 0.99 * estimate.of_rows
    best = partial.gains.over(LOGGING, "best")
    assert best.n_rows == best.of_rows
    found = {one.title: one for one in cautions(partial)}["Values of a part of the rows"]
    assert f"lacks ({estimate.n_rows:,} of {estimate.of_rows:,})" in found.what
    assert "best (" not in found.what
    assert partial.verdict.startswith("Values rest on a part of the rows that policies selected")
    assert recommend(partial).tone == "nothing"
    partial.save(tmp_path / "run")
    assert render(fedopl.load_run(tmp_path / "run")) == render(partial)
