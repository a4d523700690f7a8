"""Wide data: which two of many features act together, and what finding out is worth.

    python experiments/wide_products.py [features] [rows of a client] [draws]

Worlds with known truth: three clients, three actions, confounded logging with known propensities,
noise of 1; of all features six matter by themselves. `products`: two pairs of these act together.
`xor`: two pairs of others do, that say nothing alone. `steps`: two others do, both above zero.
`squares`: effects bend, and nothing acts together. Regret is what a decision loses to the best one,
on fresh contexts.
"""

import sys
from typing import NamedTuple

import numpy as np

import fedopl
from fedopl.base.arrays import FloatArray
from fedopl.policies.basis import Basis

N_ACTIONS, N_FRESH = 3, 20_000
KINDS = ("linear", "squares", "products", "xor", "steps")
KNOTS = (-1.0, 0.0, 1.0)
SHIFTS = {"north": -0.3, "south": 0.0, "west": 0.3}


class Wide(NamedTuple):
    """A world: linear effects, pairs that act together, and how much each action gains by each."""

    kind: str
    correlation: float  # of a feature with the next
    effects: FloatArray  # (n_actions, n_features)
    together: FloatArray  # (n_actions, n_pairs)
    pairs: tuple[tuple[int, int], ...]
    logging: FloatArray  # (n_actions, n_features)

    def contexts(self, n_rows: int, shift: float, rng: np.random.Generator) -> FloatArray:
        """Rows of features, each correlated with the one before it."""
        found = rng.normal(size=(n_rows, self.effects.shape[1]))
        for place in range(1, found.shape[1] if self.correlation else 0):
            own = found[:, place] * np.sqrt(1 - self.correlation**2)
            found[:, place] = self.correlation * found[:, place - 1] + own
        return found + shift

    def means(self, contexts: FloatArray) -> FloatArray:  # (n_rows, n_actions)
        """What each action is worth."""
        found = contexts @ self.effects.T
        for (first, second), gains in zip(self.pairs, self.together.T, strict=True):
            one, two = contexts[:, first], contexts[:, second]
            acting = {
                "steps": 2.5 * ((one > 0) & (two > 0)),
                "squares": (one**2 + two**2) / 2,
            }.get(self.kind, one * two)
            found += np.outer(acting, gains)
        return found

    def logged(self, n_rows: int, shift: float, rng: np.random.Generator) -> fedopl.LoggedData:
        """Decisions of a policy that looks at five features."""
        contexts = self.contexts(n_rows, shift, rng)
        chances = np.exp(contexts @ self.logging.T)
        chances = 0.1 + (1 - 0.1 * N_ACTIONS) * chances / chances.sum(axis=1, keepdims=True)
        drawn = rng.random(n_rows)[:, None] > chances.cumsum(axis=1)
        actions = np.minimum(drawn.sum(axis=1), N_ACTIONS - 1)
        rewards = self.means(contexts)[np.arange(n_rows), actions] + rng.normal(size=n_rows)
        known = chances[np.arange(n_rows), actions]
        return fedopl.LoggedData(contexts, actions, rewards, known)


def wide_world(kind: str, n_features: int, correlation: float, rng: np.random.Generator) -> Wide:
    """A world of this kind, drawn."""
    shuffled = rng.permutation(n_features)
    alone, others = shuffled[:6], shuffled[6:]
    effects = np.zeros((N_ACTIONS, n_features))
    effects[:, alone] = rng.normal(size=(N_ACTIONS, 6)) / 2
    among = {"products": alone[:4], "xor": others[:4], "squares": others[:4], "steps": others[:2]}
    acting = sorted(among.get(kind, alone[:0]).tolist())
    pairs = tuple(zip(acting[::2], acting[1::2], strict=True))
    together = rng.permuted(np.tile([[0.8], [-0.8], [0.0]], (1, len(pairs))), axis=0)
    logging = rng.normal(size=(N_ACTIONS, n_features)) / 2 * (np.arange(n_features) < 5)
    return Wide(kind, correlation, effects, together, pairs, logging)


def regrets(world: Wide, n_rows: int, rng: np.random.Generator) -> dict[str, tuple[float, int]]:
    """By way to choose products: the regret, and how many pairs it had."""
    clients = {name: world.logged(n_rows, shift, rng) for name, shift in SHIFTS.items()}
    names = next(iter(clients.values())).feature_names
    fresh = world.contexts(N_FRESH, 0.0, rng)
    means = world.means(fresh)
    bent = {"kind": "auto", "knots": dict.fromkeys(names, KNOTS)}
    strongest = np.argsort(-np.ptp(world.effects, axis=0), kind="stable")[:11].tolist()
    true = () if world.kind == "squares" else world.pairs
    ways = {
        "none": Basis(**bent),
        "of the strongest": Basis(**bent, products=tuple(names[k] for k in sorted(strongest))),
        "screened": Basis(**bent, screened_pairs=60),
        "the true ones": Basis(**bent, pairs=tuple((names[a], names[b]) for a, b in true)),
    }
    found = {}
    for way, basis in ways.items():
        run = fedopl.learn(clients, basis=basis, evaluation=fedopl.EvaluationPlan(describe=False))
        chosen = run.study.basis.multiplied if run.study.basis else ()
        lost = means.max(axis=1) - means[np.arange(N_FRESH), run.policy.decide(fresh)]
        found[way] = (float(lost.mean()), len(chosen))
    found["boosted, pooled"] = (_boosted(list(clients.values()), fresh, means), 0)
    return found


def _boosted(clients: list[fedopl.LoggedData], fresh: FloatArray, means: FloatArray) -> float:
    """The regret of a boosted model for each action, from everybody's rows in one place."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    contexts, actions, rewards = (
        np.concatenate([getattr(data, name) for data in clients])
        for name in ("contexts", "actions", "rewards")
    )
    predicted = []
    for action in range(N_ACTIONS):
        own = actions == action
        model = HistGradientBoostingRegressor(max_leaf_nodes=8, early_stopping=True, random_state=0)
        predicted.append(model.fit(contexts[own], rewards[own]).predict(fresh))
    decided = np.argmax(predicted, axis=0)
    return float((means.max(axis=1) - means[np.arange(N_FRESH), decided]).mean())


def main(n_features: int = 40, n_rows: int = 2_000, n_draws: int = 2) -> None:
    """Print a line for each world: mean regret, and in brackets how many pairs there were."""
    for correlation, kind in ((c, k) for c in (0.0, 0.6) for k in KINDS):
        drawn = []
        for draw in range(n_draws):
            rng = np.random.default_rng([n_features, KINDS.index(kind), draw])
            drawn.append(regrets(wide_world(kind, n_features, correlation, rng), n_rows, rng))
        cells = []
        for way in drawn[0]:
            lost, n_pairs = np.mean([one[way] for one in drawn], axis=0)
            pairs = f"{n_pairs:.0f}" if n_pairs >= 1 else "< 1"
            cells.append(f"{lost:.4f}" + (f" ({pairs})" if n_pairs else ""))
        if kind == KINDS[0] and not correlation:
            print("| world | " + " | ".join(drawn[0]) + " |")
        print(f"| {kind}, correlation {correlation:g} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
