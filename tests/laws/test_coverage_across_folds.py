"""How often cross-fitted intervals hold what the way of learning is worth, from world to world."""

from functools import partial

import numpy as np
import pytest
from interval_coverage import Drawn, counts, of_benchmarks, say, seen

import fedopl
from fedopl.policies.trees.nodes import leaf_positions
from fedopl.results.value_tables import LEAF_GAIN
from fedopl.simulation.named_worlds import SHAPED_WORLDS
from fedopl.study.plans import EvaluationPlan, NuisancePlan

N_DRAWS = 400  # in each world
POLICIES = {"linear": "linear", "tree": fedopl.Tree(bins=8)}
DEFAULT_POLICIES = {"linear": "linear", "tree": "tree"}
ARMS = "abc"
CONTEXTS = np.random.default_rng(99).standard_normal((10_000, 4))
PLAN = {
    "basis": "linear",
    "personal": "none",
    "evaluation": EvaluationPlan(kind="cross-fitted", describe=False),
    "nuisances": NuisancePlan(propensity="marginal"),
}
EFFECTS = {
    "none": lambda x: 0 * x[:, 0],
    "weak": lambda x: 0.2 * x[:, 0],
    "linear": lambda x: x[:, 0],
    "xor": lambda x: np.sign(x[:, 0] * x[:, 1]),
    "step": lambda x: 1.0 * (x[:, 0] > 0.5),
}
# What models cannot see with so few rows makes intervals miss by as much (docs/learning.md).
MISSED = {"poor-overlap": 0.12, "xor": 0.15, "deep": 0.08, "steps": 0.06}
SIZES = ((5, 60), (10, 60), (5, 240))


def means_of(x, effect):  # (n_rows, 3)
    """What each arm does, on average: the first nothing, the others the effect or its opposite."""
    return x[:, [2]] + np.column_stack([0 * x[:, 0], effect(x), -effect(x)])


def logged(rng, n_rows, effect):
    x, arms = rng.standard_normal((n_rows, 4)), rng.integers(0, 3, n_rows)
    rewards = means_of(x, effect)[np.arange(n_rows), arms] + rng.standard_normal(n_rows)
    return fedopl.LoggedData(x, arms, rewards, action_names=ARMS)


def with_effect(world, size, seed):
    """Clients that are alike, and chose arms by lot."""
    (n_clients, n_rows), effect = size, EFFECTS[world]
    rng, true = np.random.default_rng(seed), means_of(CONTEXTS, EFFECTS[world])
    clients = {f"c{k}": logged(rng, n_rows, effect) for k in range(n_clients)}

    def worth(policy):
        value = true[np.arange(len(true)), policy.decide(CONTEXTS)].mean()
        return dict.fromkeys(clients, value)

    return Drawn(clients, worth, dict.fromkeys(clients, true.mean()))


def check(held, n_draws, missed=0.0):
    """Of as many draws that cover 95 %, so many do in all but one of a thousand such tests."""
    slack = 3.1 * np.sqrt(0.95 * 0.05 / n_draws) + missed
    # The one tree that is delivered may be better than those without each fold are.
    del held["value of the one delivered"]
    assert min(covered for covered, _ in held.values()) >= (0.95 - slack) * n_draws
    assert max(too_high for _, too_high in held.values()) <= (0.025 + slack) * n_draws


@pytest.mark.slow_law
@pytest.mark.parametrize("size", SIZES, ids=lambda size: "{} of {}".format(*size))
@pytest.mark.parametrize("world", EFFECTS)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_intervals_hold_what_they_are_of(policy, world, size):
    held = counts(partial(with_effect, world, size), range(N_DRAWS), policy, PLAN)
    say(f"{policy}, {world}, {size}", N_DRAWS, held)
    check(held, N_DRAWS)


@pytest.mark.slow_law
@pytest.mark.parametrize("world", SHAPED_WORLDS)
@pytest.mark.parametrize("policy", DEFAULT_POLICIES.values(), ids=DEFAULT_POLICIES)
def test_intervals_of_default_studies_hold_what_they_are_of(policy, world):
    held = counts(partial(of_benchmarks, world), range(N_DRAWS), policy, {})
    say(f"{policy}, {world}", N_DRAWS, held)
    check(held, N_DRAWS, MISSED.get(world, 0.03))


def leaf_counts(world, size, seeds):
    """Of all leaves, how many intervals of gains hold what they are of, and lie above it."""
    true = means_of(CONTEXTS, EFFECTS[world])
    told, plan = [], {**PLAN, "evaluation": "cross-fitted"}
    for seed in seeds:
        drawn = with_effect(world, size, seed)
        with seen() as learned:
            run = fedopl.learn(drawn.clients, policy=fedopl.Tree(bins=8), seed=seed, **plan)
        leaf = leaf_positions(run.policy.root, run.study.columns, CONTEXTS)
        gains = [row.estimate for row in run.leaves if row.action == LEAF_GAIN]
        for place, gain in enumerate(gains):
            inside = leaf == place
            row, contexts = np.arange(inside.sum()), CONTEXTS[inside]
            if gain is None or not len(row):
                continue
            of_trees = [true[inside][row, one.decide(contexts)] for one in learned["together"][0]]
            low, high = gain.interval()
            truth = np.mean(of_trees) - true[inside].mean()
            told.append((low <= truth <= high, truth < low, gain.value - truth))
    return np.mean(told, axis=0)


@pytest.mark.slow_law
@pytest.mark.parametrize("world", EFFECTS)
def test_intervals_of_leaves_hold_what_their_way_of_learning_gains(world):
    held, too_much, bias = leaf_counts(world, SIZES[0], range(40))
    print(world, {"held": held, "too much": too_much, "bias": bias})
    # About four leaves a draw, which are not independent: leaves say less surely than all rows do.
    assert held >= 0.85
    assert too_much <= 0.08
    assert bias <= 0.02
