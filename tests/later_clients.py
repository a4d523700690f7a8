"""Rows of clients that come late: a linear world, drawn apart for every seed."""

import numpy as np

import fedopl

N_TRUE = 20_000


def slopes(n_actions, n_features):
    return np.random.default_rng(7).standard_normal((n_actions, n_features))


def linear_rows(seed, n_rows, n_features=3, n_actions=3):
    """Rows logged by chance, and known to be."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n_rows, n_features))
    actions = rng.integers(0, n_actions, n_rows)
    means = np.arange(n_actions) + contexts @ slopes(n_actions, n_features).T
    rewards = means[np.arange(n_rows), actions] + rng.standard_normal(n_rows)
    chances = np.full((n_rows, n_actions), 1 / n_actions)
    names = list("abc")[:n_actions]
    return fedopl.LoggedData(contexts, actions, rewards, chances, action_names=names)


def true_value(policy, n_features=3, n_actions=3):
    """What a policy is worth in that world."""
    contexts = np.random.default_rng(99).standard_normal((N_TRUE, n_features))
    means = np.arange(n_actions) + contexts @ slopes(n_actions, n_features).T
    return means[np.arange(N_TRUE), policy.decide(contexts)].mean()
