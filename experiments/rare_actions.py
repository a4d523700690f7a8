"""What limited weights are worth where an action was rarely taken, and elsewhere.

    python experiments/rare_actions.py [DRAWS]

Rows are made up, so regret is known. By world, the mean regret of what three clients of 700 rows
learn with weights as they are, and with `nuisances.learning_clip` at its default; and in how many
draws the second is no more.
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import fedopl
from fedopl.study.plans import NuisancePlan

N_CLIENTS, N_ROWS, N_TRIED = 3, 700, 20_000
Array = np.ndarray


class Rows(NamedTuple):
    """Contexts, what each action is worth there, and how likely each was."""

    contexts: Array  # (n_rows, n_features)
    means: Array  # (n_rows, n_actions)
    chances: Array  # (n_rows, n_actions)


World = Callable[[np.random.Generator, int], Rows]


def rarely_taken(chance: float, extra: float) -> World:
    """Where x0 > 0 the second action was taken with this chance, and is worth so much more."""

    def world(rng: np.random.Generator, n_rows: int) -> Rows:
        x = rng.standard_normal((n_rows, 4))
        effect = 0.5 * x[:, 1] + extra * (x[:, 0] > 0)
        second = np.where(x[:, 0] > 0, chance, 0.5)
        base = x[:, 2] + 0.5 * x[:, 0]
        return Rows(x, np.column_stack([base, base + effect]), _both(second))

    return world


def confounded(rng: np.random.Generator, n_rows: int) -> Rows:
    """Linear effects, logging that leans on what is good; some chances are small."""
    x = rng.standard_normal((n_rows, 4))
    base = x[:, 0] - x[:, 1]
    means = np.column_stack([base, base + x[:, 2], base - x[:, 3]])
    odds = np.exp(1.5 * np.column_stack([np.zeros(n_rows), x[:, 0], x[:, 2]]))
    return Rows(x, means, odds / odds.sum(axis=1, keepdims=True))


def bent(rng: np.random.Generator, n_rows: int) -> Rows:
    """Effects that change sign with a product, and outcomes that linear models miss."""
    x = rng.standard_normal((n_rows, 4))
    base = 2 * np.abs(x[:, 0]) + x[:, 1] ** 2
    means = np.column_stack([base, base + x[:, 2] + 0.5 * x[:, 0]])
    return Rows(x, means, _both(1 / (1 + np.exp(-2 * x[:, 0] - x[:, 2]))))


def ten_actions(rng: np.random.Generator, n_rows: int) -> Rows:
    """Ten actions, some of which were taken more than others."""
    x = rng.standard_normal((n_rows, 4))
    slopes = np.random.default_rng(0).standard_normal((10, 4)) / 2
    odds = np.exp(x[:, :1] * np.linspace(-1, 1, 10))
    return Rows(x, x @ slopes.T, odds / odds.sum(axis=1, keepdims=True))


def _both(second: Array) -> Array:
    return np.column_stack([1 - second, second])


WORLDS: dict[str, World] = {
    f"chance {chance:g}, extra {extra:+g}": rarely_taken(chance, extra)
    for chance in (0.05, 0.01, 0.001)
    for extra in (-1.5, 0.0, 1.5)
} | {"confounded, linear": confounded, "confounded, bent": bent, "ten actions": ten_actions}


def logged(world: World, seed: int) -> fedopl.LoggedData:
    """One client's rows, with known propensities."""
    rng = np.random.default_rng(seed)
    x, means, chances = world(rng, N_ROWS)
    actions = (chances.cumsum(axis=1)[:, :-1] < rng.random((N_ROWS, 1))).sum(axis=1)
    rewards = means[np.arange(N_ROWS), actions] + rng.standard_normal(N_ROWS)
    names = [f"a{code}" for code in range(chances.shape[1])]
    return fedopl.LoggedData(x, actions, rewards, chances, action_names=names)


def regrets(world: World, draw: int, clips: tuple[float, ...]) -> list[float]:
    """What policies lose that are learned from the same rows, by each smallest propensity."""
    clients = {f"c{place}": logged(world, 100 * draw + place) for place in range(N_CLIENTS)}
    x, means, _ = world(np.random.default_rng(10_000 + draw), N_TRIED)
    lost = []
    for clip in clips:
        plan = NuisancePlan(learning_clip=clip)
        policy = fedopl.learn(clients, basis="linear", nuisances=plan, evaluation=0).policy
        chosen = means[np.arange(N_TRIED), policy.decide(x)]
        lost.append(float(np.mean(means.max(axis=1) - chosen)))
    return lost


def main(n_draws: int) -> None:
    """Print the table."""
    print("| world | as they are | limited | better or equal in |\n|---|---:|---:|---:|")
    for name, world in WORLDS.items():
        found = np.array([regrets(world, draw, (0.0, 0.05)) for draw in range(n_draws)])
        free, limited = found.mean(axis=0)
        wins = int((found[:, 1] <= found[:, 0]).sum())
        print(f"| {name} | {free:.3f} | {limited:.3f} | {wins} of {n_draws} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 10)
