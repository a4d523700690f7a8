"""Law: what three numbers do only together is learned by waves, from sums, and explained."""

import numpy as np
import pytest

import fedopl
from fedopl.report.explain.curve_words import policy_as_json, policy_as_text
from fedopl.report.page import render

pytestmark = pytest.mark.usefixtures("without_figures")


def effect(contexts):
    return np.tanh(2 * contexts[:, 0] * contexts[:, 1] * contexts[:, 2])


def client(seed):
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((1000, 3))
    actions = rng.integers(0, 2, 1000)
    rewards = np.where(actions == 1, effect(contexts), 0) + 0.5 * rng.standard_normal(1000)
    return fedopl.LoggedData(contexts, actions, rewards, 0.5, action_names=("no", "yes"))


@pytest.fixture(scope="module")
def clients():
    return {name: client([1, place]) for place, name in enumerate("ab")}


@pytest.fixture(scope="module")
def waved(clients):
    return fedopl.learn(clients, basis="waves")


def regret(policy):
    contexts = np.random.default_rng(99).standard_normal((20_000, 3))
    gain = effect(contexts)
    return float(np.mean(np.maximum(gain, 0) - gain * policy.decide(contexts)))


def test_waves_find_what_acts_three_at_a_time(clients, waved):
    usual = fedopl.learn(clients)
    assert waved.study.basis.waves == 200
    assert waved.statistics.choice.family == "waves"
    assert regret(waved.policy) < 0.5 * regret(usual.policy)


def test_waves_are_named_explained_and_saved(waved, tmp_path):
    text = policy_as_text(waved.policy, waved, 5)
    assert "Waves of x0, x1 and x2 at once move scores, too" in text
    told = policy_as_json(waved.policy, waved)
    assert told["waves"]["features"] == ["x0", "x1", "x2"]
    assert "at once move scores" in render(waved)
    waved.save(tmp_path / "run")
    loaded = fedopl.load_run(tmp_path / "run")
    contexts = np.random.default_rng(3).standard_normal((50, 3))
    assert np.array_equal(loaded.policy.decide(contexts), waved.policy.decide(contexts))
    assert policy_as_text(loaded.policy, loaded, 5) == text


def test_a_choice_with_waves_leaves_what_is_straight_straight():
    rng = np.random.default_rng(5)
    contexts = rng.standard_normal((1000, 3))
    actions = rng.integers(0, 2, 1000)
    rewards = contexts[:, 0] * actions + rng.standard_normal(1000)
    data = fedopl.LoggedData(contexts, actions, rewards, 0.5, action_names=("no", "yes"))
    knots = {f"x{place}": (-1.0, 0.0, 1.0) for place in range(3)}
    basis = fedopl.Basis(kind="auto", knots=knots, waves=100)
    run = fedopl.learn({"a": data, "b": data}, basis=basis)
    assert "waves" in run.statistics.choice.losses
    assert run.statistics.choice.family == "linear"


def test_a_study_with_a_target_has_no_waves():
    basis = fedopl.Basis(kind="waves", knots={"x0": (-1.0, 0.0, 1.0)}, waves=5)
    settings = {"actions": ("a", "b"), "features": ("x0",), "basis": basis}
    with pytest.raises(fedopl.FedoplError, match="a study with a target cannot have waves"):
        fedopl.Study(**settings, target={"client": "new site"})
