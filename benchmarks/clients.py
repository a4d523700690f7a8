"""The cost of many clients in one process, each with 100 to 1,000 rows.

4 actions, 10 features. "Federation" is `fedopl.learn`: doors, messages, checks and ledgers. "Plain
loop" goes over the same clients and does the same arithmetic in plain numpy: sums for each fold and
action, shared models from them, scores and their sums; then a solution, or 10 rounds of 5 steps on
32 rows. No policy is evaluated. Both start from arrays. Seconds are the processor's, and memory is
what each adds at its peak, in a process of its own.
"""

import json
from collections.abc import Callable

import numpy as np
from harness import Column, Options, Row, Table, in_child, in_turns, options, spread, write
from problem import Rows, draw
from process import growth

SIZES, QUICK = (10, 100, 1_000, 10_000), (10,)
N_ACTIONS, N_FEATURES, N_FOLDS = 4, 10, 5
ROUNDS, STEPS, BATCH, RATE = 10, 5, 32, 0.02
PENALTY = 1e-3  # of the plain loop's ridge, for clients with few rows
COLUMNS = (
    Column("clients", "{clients:,}"),
    Column("rows", "{rows:,}"),
    Column("oracle", "{oracle}", text=True),
    Column("plain loop, CPU s", "{plain:~3}"),
    Column("federation, CPU s", "{cpu_median:~3}"),
    Column("least – most", "{cpu_least:~3} – {cpu_most:~3}", text=True),
    Column("ratio", "{ratio:.2f}×"),
    Column("each client: plain, µs", "{plain_us:,.0f}"),
    Column("federation, µs", "{us:,.0f}"),
    Column("memory: plain", "{plain_mb:~3} MB"),
    Column("federation", "{mb:~3} MB"),
    Column("a client, KB", "{client_kb:~3}"),
)


def clients_of(n_clients: int) -> dict[str, Rows]:
    """Their rows; how many is drawn, too."""
    sizes = np.random.default_rng(0).integers(100, 1_001, n_clients)
    return {
        f"client {i:05d}": draw(int(n), seed=i, n_features=N_FEATURES) for i, n in enumerate(sizes)
    }


# --- the federation -------------------------------------------------------------------------------


def learned(clients: dict[str, Rows], oracle: str) -> object:
    """Everything that `fedopl.learn` does, from arrays."""
    import fedopl

    known = np.full((1_000, N_ACTIONS), 1 / N_ACTIONS)
    names = tuple("abcd")
    data = {
        name: fedopl.LoggedData(*rows, known[: len(rows.actions)], action_names=names)
        for name, rows in clients.items()
    }
    return fedopl.learn(
        data,
        basis="linear",
        policy=fedopl.Linear(
            oracle=oracle,
            training=fedopl.TrainingPlan(rounds=ROUNDS, local_steps=STEPS, batch_size=BATCH),
        ),
        nuisances=fedopl.NuisancePlan(propensity="known"),
        evaluation=fedopl.EvaluationPlan(share=0, describe=False),
    )


# --- the plain loop -------------------------------------------------------------------------------


def _sums(rows: Rows, folds: np.ndarray, design: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gram matrices and products for each fold and action."""
    width = design.shape[1]
    grams = np.empty((N_FOLDS, N_ACTIONS, width, width))
    products = np.empty((N_FOLDS, N_ACTIONS, width))
    for fold in range(N_FOLDS):
        for action in range(N_ACTIONS):
            own = (folds == fold) & (rows.actions == action)
            block = design[own]
            grams[fold, action] = block.T @ block
            products[fold, action] = block.T @ rows.rewards[own]
    return grams, products


def _slopes(grams: np.ndarray, products: np.ndarray) -> np.ndarray:
    """Models for each fold and action, from all other folds."""
    grams, products = grams.sum(axis=0) - grams, products.sum(axis=0) - products
    ridge = grams + PENALTY * np.eye(grams.shape[-1])
    return np.linalg.solve(ridge, products[..., None])[..., 0]


def _scores(rows: Rows, folds: np.ndarray, design: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    scores = np.empty((len(design), N_ACTIONS))
    for fold in range(N_FOLDS):
        scores[folds == fold] = design[folds == fold] @ slopes[fold].T
    every = np.arange(len(design))
    scores[every, rows.actions] += (rows.rewards - scores[every, rows.actions]) * N_ACTIONS
    return scores


def _prepared(rows: Rows, seed: int) -> tuple[np.ndarray, np.ndarray]:
    folds = np.random.default_rng(seed).permutation(len(rows.actions)) % N_FOLDS
    return folds, np.column_stack([rows.contexts, np.ones(len(folds))])


Scored = list[tuple[np.ndarray, np.ndarray]]  # of each client, (x, 1) and scores


def _scored(clients: dict[str, Rows]) -> tuple[Scored, np.ndarray, np.ndarray]:
    """Two passes over the clients: sums for everybody's models, then scores and their sums."""
    prepared = [_prepared(rows, seed) for seed, rows in enumerate(clients.values())]
    totals = [0.0, 0.0]
    for rows, (folds, design) in zip(clients.values(), prepared, strict=True):
        for place, part in enumerate(_sums(rows, folds, design)):
            totals[place] = totals[place] + part
    slopes = _slopes(*totals)
    kept: Scored = []
    gram, product = 0.0, 0.0
    for rows, (folds, design) in zip(clients.values(), prepared, strict=True):
        scores = _scores(rows, folds, design, slopes)
        gram, product = gram + design.T @ design, product + design.T @ scores
        kept.append((design, scores))
    return kept, gram, product


def plain_exact(clients: dict[str, Rows]) -> np.ndarray:
    """Least squares from the sums."""
    _, gram, product = _scored(clients)
    return np.linalg.solve(gram, product).T


def plain_sgd(clients: dict[str, Rows]) -> np.ndarray:
    """Rounds of steps, averaged by rows."""
    kept, _, _ = _scored(clients)
    total = sum(len(design) for design, _ in kept)
    parameters = np.zeros((N_ACTIONS, N_FEATURES + 1))
    for turn in range(ROUNDS):
        average = np.zeros_like(parameters)
        for seed, (design, scores) in enumerate(kept):
            rng = np.random.default_rng([seed, turn])
            current = parameters
            for pick in rng.integers(0, len(design), (STEPS, BATCH)):
                features = design[pick]
                gradient = (features @ current.T - scores[pick]).T @ features / BATCH
                current = current - RATE * gradient
            average += len(design) / total * current
        parameters = average
    return parameters


Way = Callable[[dict[str, Rows]], object]
WAYS: dict[str, dict[str, Way]] = {
    "csoaa-exact": {"plain": plain_exact, "federation": lambda c: learned(c, "csoaa-exact")},
    "csoaa-sgd": {"plain": plain_sgd, "federation": lambda c: learned(c, "csoaa-sgd")},
}


def seconds_here(n_clients: str, oracle: str, turns: str) -> Row:
    """In a process of its own: seconds of both ways, in turns."""
    clients = clients_of(int(n_clients))
    ways = {name: (lambda way=way: way(clients)) for name, way in WAYS[oracle].items()}
    found = in_turns(ways, int(turns))
    return {name: {"seconds": timed.seconds, "cpu": timed.cpu} for name, timed in found.items()}


def memory_here(n_clients: str, oracle: str, way: str) -> int:
    """In a process of its own: bytes that one way adds at its peak."""
    run = WAYS[oracle][way]
    run(clients_of(3))
    clients = clients_of(int(n_clients))
    return growth(lambda: run(clients))


def measure(n_clients: int, oracle: str, turns: int) -> Row:
    """One row of the table."""
    found = in_child(__file__, "seconds", str(n_clients), oracle, str(turns))
    memory = {
        way: in_child(__file__, "memory", str(n_clients), oracle, way) for way in WAYS[oracle]
    }
    row: Row = {"clients": n_clients, "oracle": oracle}
    row["rows"] = int(np.random.default_rng(0).integers(100, 1_001, n_clients).sum())
    row |= spread(found["federation"]["seconds"])
    row |= spread(found["federation"]["cpu"], "cpu_") | spread(found["plain"]["cpu"], "plain_cpu_")
    row |= spread(found["plain"]["seconds"], "plain_")
    row |= in_processor_time(row)
    row["mb"], row["plain_mb"] = (memory[way] / 2**20 for way in ("federation", "plain"))
    row["client_kb"] = memory["federation"] / 2**10 / n_clients
    return row


def in_processor_time(row: Row) -> Row:
    """What the table shows: other programs' work does not count."""
    ours, plain = row["cpu_median"], row["plain_cpu_median"]
    each = {"us": 1e6 * ours / row["clients"], "plain_us": 1e6 * plain / row["clients"]}
    return {"plain": plain, "ratio": ours / plain, **each}


def main(given: Options) -> None:
    """Measure and write."""
    if given.measure:
        what, *arguments = given.measure
        print(json.dumps({"seconds": seconds_here, "memory": memory_here}[what](*arguments)))
        return
    sizes, turns = given.sizes(SIZES, QUICK), given.turns()
    rows = [measure(n_clients, oracle, turns) for oracle in WAYS for n_clients in sizes]
    write(__file__, given, Table(COLUMNS, rows))


if __name__ == "__main__":
    main(options(__doc__))
