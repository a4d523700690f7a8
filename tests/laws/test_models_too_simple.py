"""Where linear models and logistic propensities are both wrong, nothing is said with certainty."""

import numpy as np
import pytest

import fedopl
from fedopl.analysis.model_doubts import action_fits, doubted
from fedopl.report.cautions import cautions
from fedopl.report.page import render
from fedopl.report.recommending import key_figures, recommend

N_CLIENTS = 5


def world(kind, seed, n_rows=400):
    """A client whose outcomes bend, unless `kind` is linear, and how its actions were decided."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, 6)) + 0.2 * rng.standard_normal(6)
    x[:, 5] = rng.random(n_rows) < 0.4
    base = np.sin(2 * x[:, 0]) + 0.6 * x[:, 1] ** 2 - 0.5 * x[:, 0] * x[:, 2]
    effect = np.sin(1.5 * x[:, 3]) + 0.8 * x[:, 4] ** 2 - 0.8 + 0.4 * x[:, 0] * x[:, 1]
    # What was done followed what was good for people, as it does where somebody decides.
    odds = np.sin(2 * x[:, 0]) + 0.7 * x[:, 1] ** 2 - 0.7 - 0.5 * x[:, 0] * x[:, 2]
    odds += 0.5 * (x[:, 4] ** 2 - 1)
    if kind == "linear":
        base, effect, odds = x[:, 0] - 0.5 * x[:, 1], 0.6 * x[:, 2] - 0.1, x[:, 0]
    elif kind == "randomised":
        odds = np.zeros(n_rows)
    elif kind == "logistic":
        odds = 0.6 * x[:, 0] - 0.4 * x[:, 1]
    chances = np.clip(1 / (1 + np.exp(-1.2 * odds)), 0.05, 0.95)
    actions = (rng.random(n_rows) < chances).astype(int)
    rewards = base + effect * actions + rng.standard_normal(n_rows)
    return fedopl.LoggedData(x, actions, rewards, action_names=["usual", "new"])


def clients(kind, seed):
    return {f"site {c}": world(kind, 100 * seed + c) for c in range(N_CLIENTS)}


@pytest.mark.parametrize("limits", ["open", "guarded"])
@pytest.mark.parametrize("seed", range(2))
def test_models_that_are_too_simple_are_noticed_and_nothing_is_recommended(seed, limits):
    run = fedopl.learn(clients("both bend", seed), limits=limits)
    titles = [one.title for one in cautions(run)]
    assert titles[0] == "The models are too simple"
    assert recommend(run).tone == "nothing"
    page = render(run)
    assert "Use the learned policy" not in page
    assert "Do the models fit?" in page
    figures = [what for what, _, _ in key_figures(run)]
    assert figures == ["Clients", "Rows learned from", "Held-out rows"]


@pytest.mark.parametrize("kind", ["linear", "randomised", "logistic"])
@pytest.mark.parametrize("seed", range(3))
def test_one_right_model_is_enough_for_there_to_be_no_doubt(kind, seed):
    run = fedopl.learn(clients(kind, seed))
    assert not doubted(run)
    assert "The models are too simple" not in [one.title for one in cautions(run)]


def test_what_richer_models_change_is_what_the_value_is_wrong_by():
    """Over many rows, so that chance is small beside what models miss."""
    many = {f"site {c}": world("both bend", c, n_rows=4_000) for c in range(2)}
    run = fedopl.learn(many)
    x = np.concatenate([data.contexts for data in many.values()])
    truth = np.mean(np.sin(2 * x[:, 0]) + 0.6 * x[:, 1] ** 2 - 0.5 * x[:, 0] * x[:, 2])
    wrong_by = truth - run.statistics.arm_values(run.mixture)[0]
    (usual, _new) = action_fits(run)
    assert abs(wrong_by) > 0.2
    assert abs(wrong_by - usual.moved.value) < 0.5 * abs(wrong_by)


def test_a_saved_run_tells_the_same(tmp_path):
    run = fedopl.learn(clients("both bend", 0))
    run.save(tmp_path / "run")
    assert render(fedopl.load_run(tmp_path / "run")) == render(run)
