"""What caution is worth where an action was rarely taken: better, the same or worse there.

    python experiments/caution.py [DRAWS] [tree]

Rows are made up, as those of `experiments/rare_actions.py`: where x0 > 0 the second action was
taken with a small chance, and is worth so much more than elsewhere. By chance and by `caution` of
the policy, the mean regret of what three clients of 700 rows learn on a basis of steps, or, with
`tree`, of a tree of two questions on 16 bins: where the rare action is bad, the same and good, and
over the three.
"""

import sys

import numpy as np
from rare_actions import N_CLIENTS, N_TRIED, World, logged, rarely_taken

import fedopl

CHANCES, EXTRAS, CAUTIONS = (0.05, 0.01, 0.001), (-1.5, 0.0, 1.5), (0.0, 0.5, 1.0, 2.0)


PLANS = {
    "linear": lambda caution: fedopl.Linear(caution=caution),
    "tree": lambda caution: fedopl.Tree(caution=caution, bins=16),
}


def regrets(world: World, draw: int, kind: str) -> list[float]:  # (n_cautions,)
    """What policies lose that are learned from the same rows."""
    clients = {f"c{place}": logged(world, 100 * draw + place) for place in range(N_CLIENTS)}
    x, means, _ = world(np.random.default_rng(10_000 + draw), N_TRIED)
    lost = []
    for caution in CAUTIONS:
        plan = PLANS[kind](caution)
        policy = fedopl.learn(clients, basis="steps", policy=plan, evaluation=0).policy
        chosen = means[np.arange(N_TRIED), policy.decide(x)]
        lost.append(float(np.mean(means.max(axis=1) - chosen)))
    return lost


def main(n_draws: int, kind: str) -> None:
    """Print the table."""
    print("| chance | caution | bad there | the same | good there | mean |")
    print("|---:|---:|---:|---:|---:|---:|")
    for chance in CHANCES:
        worlds = [rarely_taken(chance, extra) for extra in EXTRAS]
        found = np.array([[regrets(w, draw, kind) for draw in range(n_draws)] for w in worlds])
        for place, caution in enumerate(CAUTIONS):
            own = found[:, :, place].mean(axis=1)
            numbers = " | ".join(f"{lost:.3f}" for lost in (*own, own.mean()))
            print(f"| {chance:g} | {caution:g} | {numbers} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 10, sys.argv[2] if sys.argv[2:] else "linear")
