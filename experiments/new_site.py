"""What a policy is worth at a site that has contexts only, by several ways to say it.

    python experiments/new_site.py [DRAWS [FIRST]]
    python experiments/new_site.py balance [DRAWS [FIRST]]

DRAWS is how many draws each cell has: 24 if it is not given, and 100 with `balance`. FIRST is the
number of the first draw of what `learn` says, 0 if it is not given: with 24, the next ones after
those of the page. The first table always begins with draw 0.

Rows are made up: three sources and a target of 1,000 contexts each, which is moved by 0.5 or by 1
standard deviation in two features and by 0.5 in a third; outcomes are smooth in contexts, or steps;
two actions, known propensities. Sources lie 0.3 or 1 standard deviations apart.

The first table is of the best policy, whose value is to be found from all of the sources' rows: the
mean squared error, how often the 95 % interval has the truth in it, and effective rows. "Jointly"
are weights found for all sources' rows together, for which a server would choose how much each row
counts, in five to seven trips; "each alone" are those that each source finds by itself, in one.

The second is of what `learn(..., target=...)` says of the policy that it learns, from three sources
of 2,000 rows, of which a quarter is held out, in draws from FIRST on; how often it claims a value
at all; and so of a target where nobody is, and of a source whose outcomes are another's. The
third is the same within default limits. All cells share their draws.

With `balance`, there is a table of `learn(..., target=..., balance=...)`, for a target moved by 1:
each source for itself, and all together, on the same draws; then within default limits, on a
quarter of the draws.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, stdtrit

import fedopl
from fedopl.solvers.entropy_balance import Balanced, balance, rows_behind

Array = NDArray[np.float64]
Outcomes = Callable[[Array], Array]
N_FEATURES, N_ROWS, N_LIBRARY, N_TRUE = 5, 1_000, 2_000, 400_000
KNOTS = (-1.0, -0.33, 0.33, 1.0)
# In which direction each source lies.
PLACES = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [-1.0, 0.0, 1.0]])
CELLS = [("smooth", 0.5), ("smooth", 1.0), ("steps", 0.5), ("steps", 1.0)]


def smooth(x: Array) -> Array:
    """Two actions whose outcomes bend."""
    first = np.sin(x[:, 0]) + 0.25 * x[:, 1] ** 2
    return np.column_stack([first, 0.5 * x[:, 0] + np.cos(x[:, 1]) + 0.3 * x[:, 2]])


def steps(x: Array) -> Array:
    """Two actions whose outcomes jump."""
    first = 1.0 * (x[:, 0] > 0) - 1.0 * (x[:, 1] > 0.5)
    return np.column_stack([first, 0.8 * (x[:, 1] > 0) + 0.5 * (x[:, 2] > 0)])


WORLDS: dict[str, Outcomes] = {"smooth": smooth, "steps": steps}


def target_mean(move: float) -> Array:
    """Where the target lies."""
    return np.array([move, move, 0.5, 0.0, 0.0])


def sources(
    means: Outcomes, seed: int, n_rows: int, apart: float, odd: float = 0.0
) -> dict[str, fedopl.LoggedData]:
    """Three clients; outcomes of the last may be so much more under the second action."""
    rng, found = np.random.default_rng(seed), {}
    for place, side in enumerate(PLACES):
        x = rng.standard_normal((n_rows, N_FEATURES)) + np.append(apart * side, [0.0, 0.0])
        chance = np.clip(expit(0.5 * x[:, 0]), 0.1, 0.9)
        actions = (rng.random(n_rows) < chance).astype(int)
        expected = means(x)
        expected[:, 1] += odd * (place == 2)
        y = expected[np.arange(n_rows), actions] + rng.standard_normal(n_rows)
        known = np.column_stack([1 - chance, chance])
        found[f"source {place + 1}"] = fedopl.LoggedData(x, actions, y, known, action_names=(0, 1))
    return found


def target(move: float, seed: int) -> Array:
    """The contexts of the target."""
    rng = np.random.default_rng(10_000 + seed)
    return target_mean(move) + rng.standard_normal((N_ROWS, N_FEATURES))


# --- ways to say it ------------------------------------------------------------------------------


def basis(x: Array) -> Array:
    """A constant, and of every number itself, its square and hinges."""
    bent = [np.maximum(x - knot, 0.0) for knot in KNOTS]
    return np.hstack([np.ones((len(x), 1)), x, x**2 / 2, *bent])


def fitted(z: Array, y: Array) -> Array:
    """Ridge regression."""
    found: Array = np.linalg.solve(z.T @ z + 1e-3 * len(y) * np.eye(z.shape[1]), z.T @ y)
    return found


def scores(clients: Mapping[str, fedopl.LoggedData], seed: int) -> list[Array]:
    """Doubly robust scores by models that are everybody's, out of fold."""
    rng = np.random.default_rng(20_000 + seed)
    folds = [rng.integers(0, 5, own.n_rows) for own in clients.values()]
    found = [np.zeros((own.n_rows, 2)) for own in clients.values()]
    for fold in range(5):
        for action in (0, 1):
            parts = [
                (basis(own.contexts[taken]), own.rewards[taken])
                for own, of_row in zip(clients.values(), folds, strict=True)
                for taken in [(of_row != fold) & (own.actions == action)]
            ]
            model = fitted(np.vstack([z for z, _ in parts]), np.concatenate([y for _, y in parts]))
            for own, of_row, gamma in zip(clients.values(), folds, found, strict=True):
                here = of_row == fold
                modelled = basis(own.contexts[here]) @ model
                took = own.actions[here] == action
                rest = (own.rewards[here] - modelled) / own.propensities[here, action]
                gamma[here, action] = modelled + took * rest
    return found


def weighted(values: Array, weights: Array) -> tuple[float, float]:
    """A mean under weights, and its variance by leaving out each row in turn."""
    share = weights / weights.sum()
    mean = float(share @ values)
    return mean, float(np.sum((share * (values - mean) / (1 - share)) ** 2))


def ways(means: Outcomes, move: float, seed: int, apart: float) -> dict[str, tuple[float, ...]]:
    """By each way, the value of the best policy, its variance and effective rows."""
    clients = sources(means, seed, N_ROWS, apart)
    there, gammas = target(move, seed), scores(clients, seed)
    models = [
        fitted(
            np.vstack([basis(own.contexts[own.actions == a]) for own in clients.values()]),
            np.concatenate([own.rewards[own.actions == a] for own in clients.values()]),
        )
        for a in (0, 1)
    ]

    def modelled(x: Array) -> Array:
        chosen = means(x).argmax(axis=1)
        found: Array = (basis(x) @ np.array(models).T)[np.arange(len(x)), chosen]
        return found

    own = [
        gamma[np.arange(len(gamma)), means(data.contexts).argmax(axis=1)]
        for gamma, data in zip(gammas, clients.values(), strict=True)
    ]
    rest = [v - modelled(d.contexts) for v, d in zip(own, clients.values(), strict=True)]
    said = modelled(there)
    at_home, of_it = float(said.mean()), float(said.var() / len(said))
    moments = there.mean(axis=0), (there**2).mean(axis=0)
    everybody = np.vstack([data.contexts for data in clients.values()])
    joint = balance(everybody, *moments)
    alone = [balance(data.contexts, *moments) for data in clients.values()]
    n_rows = sum(rows_behind(one.weights) for one in alone)
    all_rows = np.ones(len(everybody))
    by_joint = weighted(np.concatenate(rest), joint.weights)
    by_alone = _together(rest, alone)
    return {
        "sources as they are": (*weighted(np.concatenate(own), all_rows), len(everybody)),
        "models alone": (at_home, of_it, N_ROWS),
        "weights, jointly": (
            *weighted(np.concatenate(own), joint.weights),
            rows_behind(joint.weights),
        ),
        "weights, each alone": (*_together(own, alone), n_rows),
        "doubly robust, jointly": (
            at_home + by_joint[0],
            of_it + by_joint[1],
            rows_behind(joint.weights),
        ),
        "doubly robust, each alone": (at_home + by_alone[0], of_it + by_alone[1], n_rows),
    }


def _together(values: list[Array], balanced: list[Balanced]) -> tuple[float, float]:
    """Sources' means, each of which counts by its effective rows."""
    rows = np.array([rows_behind(one.weights) for one in balanced])
    found = [weighted(v, one.weights) for v, one in zip(values, balanced, strict=True)]
    shares = rows / rows.sum()
    mean = sum(s * m for s, (m, _) in zip(shares, found, strict=True))
    return float(mean), float(sum(s**2 * v for s, (_, v) in zip(shares, found, strict=True)))


# --- the tables ----------------------------------------------------------------------------------


def true_value(means: Outcomes, move: float, decide: Callable[[Array], NDArray[np.int64]]) -> float:
    """What a policy is worth at the target."""
    x = target_mean(move) + np.random.default_rng(99).standard_normal((N_TRUE, N_FEATURES))
    return float(means(x)[np.arange(N_TRUE), decide(x)].mean())


def table_of_ways(n_draws: int, apart: float) -> None:
    """Print the first table for sources so far apart."""
    print(f"\nSources {apart:g} sd apart: mean squared error (coverage), effective rows\n")
    print("| | " + " | ".join(f"{name}, {move:g} sd" for name, move in CELLS) + " |")
    print("|---|" + "---:|" * len(CELLS))
    cells: dict[str, list[str]] = defaultdict(list)
    for name, move in CELLS:
        means = WORLDS[name]
        truth = true_value(means, move, lambda x, means=means: means(x).argmax(axis=1))
        drawn = [ways(means, move, seed, apart) for seed in range(n_draws)]
        for way in drawn[0]:
            value, variance, rows = np.array([one[way] for one in drawn]).T
            reach = stdtrit(np.maximum(rows - 1, 3), 0.975) * np.sqrt(variance)
            covered = np.mean(np.abs(value - truth) < reach)
            error = np.mean((value - truth) ** 2)
            cells[way].append(f"{error:.4f} ({covered:.2f}), {rows.mean():,.0f}")
    for way, row in cells.items():
        print(f"| {way} | " + " | ".join(row) + " |", flush=True)


def table_of_library(n_draws: int, limits: str, first: int) -> None:
    """Print what `learn` says of the policy it learns."""
    print(f"\nThe learned policy, 3 × {N_LIBRARY:,} rows, limits {limits}\n")
    print("| | claimed | mean squared error | coverage | width | effective rows |")
    print("|---|---:|---:|---:|---:|---:|")
    cells = [(name, move, 0.3, 0.0) for name, move in CELLS]
    cells += [("smooth", 4.0, 0.3, 0.0), ("smooth", 0.5, 0.3, 1.5)]
    for name, move, apart, odd in cells:
        means, errors, covered, widths, rows, out = WORLDS[name], [], [], [], [], 0
        for seed in range(first, first + n_draws):
            clients = sources(means, seed, N_LIBRARY, apart, odd)
            there = fedopl.Contexts(target(move, seed))
            run = fedopl.learn(clients, target=there, limits=limits, seed=seed)
            found = run.target
            out += any(one.client == "source 3" and one.chance for one in found.left_out)
            rows.append(found.effective_rows)
            if found.why_not:
                continue
            value, truth = found.values[run.chosen], true_value(means, move, run.policy.decide)
            low, high = value.interval()
            errors.append((value.value - truth) ** 2)
            covered.append(low < truth < high)
            widths.append(high - low)
        what = f"{name}, {move:g} sd" + f", one source {odd:g} off (left out {out})" * bool(odd)
        claimed = f"{len(errors)} of {n_draws}"
        numbers = "– | – | –"
        if errors:
            numbers = f"{np.mean(errors):.4f} | {np.mean(covered):.2f} | {np.mean(widths):.2f}"
        print(f"| {what} | {claimed} | {numbers} | {np.mean(rows):,.0f} |", flush=True)


def table_of_balances(n_draws: int, first: int, limits: str, aparts: tuple[float, ...]) -> None:
    """Print what weights found by each source, and by all together, come to at a move of 1."""
    print(f"\nThe learned policy, 3 × {N_LIBRARY:,} rows, a move of 1 sd, limits {limits}\n")
    print("| apart | world | balance | claimed | mean squared error | where both claim ", end="")
    print("| coverage | width | effective rows | steps |")
    print("|---:|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for apart in aparts:
        for name, means in WORLDS.items():
            drawn = [
                both_balances(means, seed, apart, limits) for seed in range(first, first + n_draws)
            ]
            both = [one for one in drawn if all(own.claimed for own in one.values())]
            for way in ("each", "joint"):
                claimed = [one[way] for one in drawn if one[way].claimed]
                cells = "– | – | – | –"
                if claimed:
                    error = np.mean([own.error**2 for own in claimed])
                    shared = np.mean([one[way].error ** 2 for one in both]) if both else np.nan
                    covered = np.mean([own.covered for own in claimed])
                    width = np.mean([own.width for own in claimed])
                    cells = f"{error:.4f} | {shared:.4f} | {covered:.2f} | {width:.2f}"
                rows = np.mean([one[way].rows for one in drawn])
                steps = np.mean([one[way].steps for one in drawn])
                print(
                    f"| {apart:g} | {name} | {way} | {len(claimed)} of {n_draws} | {cells} "
                    f"| {rows:,.0f} | {steps:.1f} |",
                    flush=True,
                )


@dataclass
class Balancing:
    """What one way comes to in one draw."""

    rows: float
    steps: int
    claimed: bool = False
    error: float = 0.0
    covered: bool = False
    width: float = 0.0


def both_balances(means: Outcomes, seed: int, apart: float, limits: str) -> dict[str, Balancing]:
    """Each source for itself, and all together, in one draw."""
    clients, there = sources(means, seed, N_LIBRARY, apart), fedopl.Contexts(target(1.0, seed))
    told, truth = {}, None
    for way in ("each", "joint"):
        run = fedopl.learn(
            clients, target=there, limits=limits, seed=seed, personal="none", balance=way
        )
        found = run.target
        own = told[way] = Balancing(rows=found.effective_rows, steps=found.n_steps)
        if not found.why_not:
            if truth is None:  # the policy is the same
                truth = true_value(means, 1.0, run.policy.decide)
            value = found.values[run.chosen]
            low, high = value.interval()
            own.claimed, own.error, own.width = True, value.value - truth, high - low
            own.covered = low < truth < high
    return told


if __name__ == "__main__":
    if sys.argv[1:2] == ["balance"]:
        n = int(sys.argv[2]) if sys.argv[2:] else 100
        start = int(sys.argv[3]) if sys.argv[3:] else 0
        table_of_balances(n, start, "open", (1.0, 0.3))
        table_of_balances(n // 4, start, "guarded", (1.0,))
        sys.exit()
    draws = int(sys.argv[1]) if sys.argv[1:] else 24
    for so_far in (0.3, 1.0):
        table_of_ways(draws, so_far)
    for kind in ("open", "guarded"):
        table_of_library(draws, kind, int(sys.argv[2]) if sys.argv[2:] else 0)
