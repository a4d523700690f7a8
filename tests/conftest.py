"""Small worlds with known truth, for every test to draw from."""

import numpy as np
import pytest
from hypothesis import settings

import fedopl

pytest_plugins = ["fitted_once", "joined_clients", "longest_first"]

settings.register_profile("fedopl", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("fedopl")


def linear_world(rng, n_rows, n_features=5, n_actions=3, *, confounded=False, offset=0.0):
    """Linear rewards for every action; logging is uniform, or leans on the first features."""
    contexts = rng.standard_normal((n_rows, n_features))
    slopes = np.random.default_rng(7).standard_normal((n_actions, n_features))
    leaning = contexts[:, :n_actions] if confounded else np.zeros((n_rows, n_actions))
    chances = np.exp(leaning)
    chances /= chances.sum(axis=1, keepdims=True)
    actions = (chances.cumsum(axis=1) < rng.random((n_rows, 1))).sum(axis=1)
    means = np.arange(n_actions) + contexts @ slopes.T
    rewards = means[np.arange(n_rows), actions] + rng.standard_normal(n_rows)
    return contexts + offset, actions, rewards, chances


@pytest.fixture
def draw():
    """A function that draws LoggedData from the linear world."""

    def _draw(n_rows=200, *, seed=0, known=False, confounded=False, offset=0.0, **options):
        shape = {name: options.pop(name) for name in ("n_features", "n_actions") if name in options}
        rng = np.random.default_rng(seed)
        contexts, actions, rewards, chances = linear_world(
            rng, n_rows, confounded=confounded, offset=offset, **shape
        )
        names = [f"a{action}" for action in range(chances.shape[1])]
        options.setdefault("action_names", names)
        return fedopl.LoggedData(contexts, actions, rewards, chances if known else None, **options)

    return _draw


@pytest.fixture
def without_figures(monkeypatch):
    """Pages have empty figures: to draw them takes longer than all else."""
    monkeypatch.setattr("fedopl.report.figures.drawing.Drawing.svg", "<svg></svg>")
