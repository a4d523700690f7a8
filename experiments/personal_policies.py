"""What personal policies are worth: regret of shared, local and personal ones, by client.

    python experiments/personal_policies.py [--draws 8] [--rows 100 400 2000] [--basis linear]
    python experiments/personal_policies.py --policy tree --draws 4 --rows 400 2000
    python experiments/personal_policies.py --policy finite --draws 4 --rows 400 2000
    python experiments/personal_policies.py --epsilon 4 --draws 4 --rows 400 2000

Eight clients, three actions, known propensities. Rows are those that are learned from; a third more
is held out. Clients' rewards are alike (0) or differ by slopes of their own, a quarter as large as
the common ones (.25) or as large (1); or one of them is odd; or the rewards of one rise with
everybody's index and fall again. A policy's regret is what is lost to a client's best action, over
fresh contexts; "hindsight" is the better of shared and local, client by client. The last column
says whether personal policies are within 15 % and .003 of the better of both means.

Candidates of a finite policy are the three actions for everybody, and the rule that is best at each
of the first four clients: the first of them may be odd. With an epsilon, the shared policy is
learned with differential privacy, and clients solve for theirs at home; what is learned alone has
no noise.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import fedopl
from fedopl.base.arrays import FloatArray
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.simulation.named_worlds import (
    N_ACTIONS,
    N_CLIENTS,
    changed,
    clients_alike,
    odd_world,
    with_own_slopes,
)
from fedopl.simulation.shaped_worlds import Shape, ShapedWorld, linear, smooth

N_TEST, SHARE, N_RULES = 8_000, 0.25, 4
WAYS = ("shared", "local", "personal")
Worlds = dict[str, Callable[[int], ShapedWorld]]
SHAPES = {"linear": linear, "smooth": smooth}


def differing_world(shape: str, seed: int, far: float) -> ShapedWorld:
    """A world in which each client adds its own slopes to common rewards, `far` times as large."""
    world = clients_alike(SHAPES[shape], seed, N_CLIENTS, N_ACTIONS)
    for name in world.clients:
        world = with_own_slopes(world, name, far)
    return world


def saturating_world(seed: int, most: float = 0.5) -> ShapedWorld:
    """Linear; at the first client, rewards rise with the common index up to `most`, then fall."""
    world = clients_alike(linear, seed, N_CLIENTS, N_ACTIONS)
    first = world.clients[0]
    usual = world.sites[first].rewards
    return changed(world, first, rewards=_bent(usual, most))


def _bent(usual: Shape, most: float) -> Callable[[FloatArray], FloatArray]:
    """Like the paper's k·sin(·/k) for the client that differs."""
    return lambda contexts: most * np.sin(usual(contexts) / most)


def worlds(shape: str) -> Worlds:
    """By name, how each is drawn."""
    return {
        **{f"{far:g}": lambda seed, far=far: differing_world(shape, seed, far) for far in FAR},
        "one odd": odd_world,
        "one saturates": saturating_world,
    }


FAR = (0.0, 0.25, 1.0)


def regrets(
    world: ShapedWorld, n_rows: int, how: dict[str, Any], epsilon: float | None
) -> np.ndarray:
    """Of everybody's policy, each client's alone and its personal one: (n_clients, n_ways)."""
    rows = world.all_known(round(n_rows / (1 - SHARE)))
    if how["policy"] == "finite":
        how = {**how, "policy": fedopl.Finite(candidates=best_rules(world))}
    noise = private(world, epsilon) if epsilon else {}
    together = fedopl.learn(rows, **how, **noise, personal="ridge", evaluation=SHARE)
    found = []
    for client, own in rows.items():
        alone = fedopl.learn({client: own}, **how, evaluation=SHARE)
        policies = (together.policy, alone.policy, together.personal_policies[client])
        found.append([regret(world, client, policy) for policy in policies])
    return np.array(found)


def best_rules(world: ShapedWorld) -> dict[str, Policy]:
    """The linear rules of the first clients, by their true rewards."""
    first = next(iter(world.all_known(2).values()))
    found: dict[str, Policy] = {}
    for client in world.clients[:N_RULES]:
        contexts = world.test_contexts(client, N_TEST)
        wide = np.column_stack([contexts, np.ones(N_TEST)])
        slopes, *_ = np.linalg.lstsq(wide, world.mean_rewards(client, contexts), rcond=None)
        names = first.action_names, first.feature_names
        found[f"best for {client}"] = LinearPolicy(slopes.T, *names)
    return found


def private(world: ShapedWorld, epsilon: float) -> dict[str, Any]:
    """Differential privacy with ranges that hold most rows of these worlds."""
    first = next(iter(world.all_known(2).values()))
    ranges = dict.fromkeys(first.feature_names, (-3.0, 3.0))
    return {
        "privacy": fedopl.PrivacyPlan(epsilon=epsilon, outcome=(-6.0, 6.0), ranges=ranges),
        "declared": fedopl.Declared(overlap=0.2),
        "running": fedopl.Running(secret=f"{world.seed}"),  # the same noise whenever it is run
    }


def regret(world: ShapedWorld, client: str, policy: Policy) -> float:
    """What the policy loses to the client's best action."""
    contexts = world.test_contexts(client, N_TEST)
    worth = world.mean_rewards(client, contexts)
    taken = worth[np.arange(N_TEST), policy.decide(contexts)]
    return float((worth.max(axis=1) - taken).mean())


def line(name: str, found: np.ndarray) -> str:  # found: (n_draws, n_clients, n_ways)
    """One row of the table."""
    shared, local, personal = found.mean(axis=(0, 1))
    hindsight = found[..., :2].min(axis=-1).mean()
    holds = personal <= 1.15 * min(shared, local) + 0.003
    numbers = " | ".join(f"{x:.4f}" for x in (shared, local, personal, hindsight))
    return f"| {name} | {numbers} | {'yes' if holds else 'NO'} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 400, 2_000])
    parser.add_argument("--basis", default="linear", help="linear, or auto")
    parser.add_argument("--policy", default="linear", help="linear, tree or finite")
    parser.add_argument("--epsilon", type=float, default=None, help="none: exact sums")
    parser.add_argument("--shape", default="linear", help="linear, or smooth")
    parser.add_argument("--worlds", nargs="+", default=None)
    options = parser.parse_args()
    how = {"policy": options.policy, "basis": options.basis}
    print("| world × rows | shared | local | personal | hindsight | holds |\n|---|" + "---:|" * 5)
    for n_rows in options.rows:
        for name, draw in worlds(options.shape).items():
            if options.worlds and name not in options.worlds:
                continue
            draws = [draw(seed) for seed in range(options.draws)]
            found = np.array([regrets(one, n_rows, how, options.epsilon) for one in draws])
            if not name.startswith("one"):
                print(line(f"{n_rows:,} × {name}", found), flush=True)
                continue
            print(line(f"{n_rows:,} × {name}: that one", found[:, :1]))
            print(line(f"{n_rows:,} × {name}: the seven", found[:, 1:]), flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
