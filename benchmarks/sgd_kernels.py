"""Ways to take the steps of `csoaa-sgd`, beside each other and beside Vowpal Wabbit.

    python benchmarks/sgd_kernels.py [--quick]

The same steps (20 of them, as in one message) are taken by each way in turns, in one process, on
one BLAS thread, with a draw of its own each time: rows that the one before had just read would be
in a cache. Seconds are medians. What is slower, or faster at one end only, is here and not in
`fedopl.client.descent`: so that nobody has to wonder whether it was tried.

Then one pass over 10,000 to 1,000,000 rows of four actions and forty features, from ready scores:
rows a second, and how much the policy loses.
"""

import argparse
import shutil
import statistics
import time
from collections.abc import Callable

import numpy as np
from scipy.linalg import blas
from threadpoolctl import threadpool_limits

import fedopl
from fedopl.client.batches import Batches
from fedopl.client.descent import Examples, examples, improve

N_STEPS = 20
STEP = 0.01
PLAN = fedopl.TrainingPlan(local_steps=N_STEPS, average="rounds")  # ends, as all ways have
ROWS_AT_ONCE = 8192
# Rows, features, actions, rows of a batch, and how often each way is timed.
SIZES = (
    (200, 10, 3, 32, 101),
    (1_000, 10, 3, 128, 51),
    (1_000_000, 40, 4, 128, 21),
    (1_000_000, 40, 4, 1024, 9),
    (1_000_000, 40, 4, 4096, 5),
    (50_000, 200, 100, 128, 5),
)


# --- ways to take the same steps --------------------------------------------------------------


def by_batch(rows: Examples, start, picks):
    """A gather of features and another of scores for every step."""
    for pick in picks:
        features = rows.features[pick]
        error = features @ start.T
        error -= rows.scores[pick]
        gradient = error.T @ features
        gradient /= len(pick)
        start = start - STEP * gradient
    return start


def by_fedopl(rows: Examples, start, picks):
    """One gather for many steps, and products without a ufunc's overhead: what is used."""
    stable = rows.curvature + rows.trace / picks.shape[1]
    return improve(start, rows, PLAN, None, picks, STEP * stable / PLAN.rate)


def side_by_side(rows: Examples, start, picks):
    """Features and scores in one matrix: one gather, and one product for the errors."""
    n_actions = len(start)
    wide = np.concatenate([start, -np.eye(n_actions)], axis=1)
    for chunk in chunks(picks):
        for row in rows.joined.take(chunk, axis=0):
            error = row.dot(wide.T)
            wide[:, :-n_actions] -= STEP / len(row) * error.T.dot(row[:, :-n_actions])
    return wide[:, :-n_actions]


def by_gram(rows: Examples, start, picks):
    """Every batch's Gram matrix first, all in one call: steps then take p² and not p·batch."""
    for chunk in chunks(picks):
        features, scores = rows.features.take(chunk, axis=0), rows.scores.take(chunk, axis=0)
        grams = features.transpose(0, 2, 1) @ features
        products = scores.transpose(0, 2, 1) @ features
        for gram, product in zip(grams, products, strict=True):
            move = start.dot(gram)
            move -= product
            move *= STEP / picks.shape[1]
            start = start - move
    return start


def by_blas(rows: Examples, start, picks):
    """BLAS without numpy between: scaling and subtraction inside the products."""
    columns = start.T.copy(order="F")
    for chunk in chunks(picks):
        gathered = rows.features.take(chunk, axis=0), rows.scores.take(chunk, axis=0)
        for features, scores in zip(*gathered, strict=True):
            across = features.T
            error = blas.dgemm(
                1.0, columns, across, beta=-1.0, c=scores.T, trans_a=1, overwrite_c=1
            )
            scale = -STEP / picks.shape[1]
            columns = blas.dgemm(
                scale, across, error, beta=1.0, c=columns, trans_b=1, overwrite_c=1
            )
    return columns.T


def in_single_precision(rows: Examples, start, picks):
    """Half the bytes; seven digits instead of sixteen."""
    start = start.astype(np.float32)
    for chunk in chunks(picks):
        gathered = rows.single[0].take(chunk, axis=0), rows.single[1].take(chunk, axis=0)
        for features, scores in zip(*gathered, strict=True):
            error = features.dot(start.T)
            error -= scores
            move = error.T.dot(features)
            move *= np.float32(STEP / picks.shape[1])
            start = start - move
    return start


def by_blocks(rows: Examples, start, picks):
    """Neighbours of a table that was shuffled once: nothing is gathered.

    The same rows come together in every pass, so a server could solve for a batch's sums.
    """
    batch = picks.shape[1]
    for first in picks[:, 0] % (len(rows.features) - batch):
        features = rows.features[first : first + batch]
        error = features.dot(start.T)
        error -= rows.scores[first : first + batch]
        move = error.T.dot(features)
        move *= STEP / batch
        start = start - move
    return start


def by_numba() -> Callable | None:
    """Machine code for the whole message, rows read where they are."""
    try:
        import numba
    except ImportError:
        return None

    @numba.njit(fastmath=True)
    def steps(features, scores, start, picks, step):
        current, move = start.copy(), np.empty_like(start)
        n_actions, width = start.shape
        for turn in range(picks.shape[0]):
            move[:] = 0.0
            for row in picks[turn]:
                for action in range(n_actions):
                    error = -scores[row, action]
                    for column in range(width):
                        error += features[row, column] * current[action, column]
                    for column in range(width):
                        move[action, column] += error * features[row, column]
            current -= step / picks.shape[1] * move
        return current

    return lambda rows, start, picks: steps(rows.features, rows.scores, start, picks, STEP)


def chunks(picks):
    """As many steps' picks at a time as are gathered together."""
    at_once = max(1, ROWS_AT_ONCE // picks.shape[1])
    return (picks[first : first + at_once] for first in range(0, len(picks), at_once))


WAYS: dict[str, Callable | None] = {
    "a gather for every batch": by_batch,
    "fedopl: one gather for many": by_fedopl,
    "features and scores in one matrix": side_by_side,
    "batch Grams": by_gram,
    "scipy.linalg.blas": by_blas,
    "single precision": in_single_precision,
    "numba": by_numba(),
    "blocks of one shuffled table": by_blocks,
}
EQUAL = 1e-4  # of single precision


def compare(n_rows: int, n_features: int, n_actions: int, batch: int, repeats: int) -> list[str]:
    """A table's rows for one size."""
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((n_rows, n_features))
    scores = rng.standard_normal((n_rows, n_actions))
    origin, unit = np.zeros(n_features + 1), np.ones(n_features + 1)
    rows = examples(contexts, scores, None, origin, unit)
    object.__setattr__(rows, "joined", np.concatenate([rows.features, rows.scores], axis=1))
    single = (rows.features.astype(np.float32), rows.scores.astype(np.float32))
    object.__setattr__(rows, "single", single)
    start = np.zeros((n_actions, n_features + 1))
    ways = {name: way for name, way in WAYS.items() if way is not None}
    same = rng.integers(0, n_rows, (N_STEPS, batch))
    for name, way in ways.items():  # compiles, and must agree
        found = way(rows, start, same)
        if name != "blocks of one shuffled table":
            np.testing.assert_allclose(found, by_batch(rows, start, same), atol=EQUAL)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            picks = rng.integers(0, n_rows, (N_STEPS, batch))
            begun = time.perf_counter()
            way(rows, start, picks)
            seconds[name].append(time.perf_counter() - begun)
    usual = statistics.median(seconds["a gather for every batch"])
    size = f"{n_rows:,} × {n_features} × {n_actions}"
    lines = []
    for name, taken in seconds.items():
        middle = statistics.median(taken)
        pace = N_STEPS * batch / middle / 1e6
        lines.append(
            f"| {size} | {batch} | {name} | {1e6 * middle:,.0f} | {1e6 * min(taken):,.0f} "
            f"| {pace:.2f} | {usual / middle:.2f}× |"
        )
    return lines


# --- one pass, beside Vowpal Wabbit -----------------------------------------------------------


def problem(n_rows: int):
    """Scores of logged rows, unseen rows, and a function that says what decisions lose there."""
    rng = np.random.default_rng(0)
    weights = np.zeros((4, 40))
    for action in range(4):
        weights[action, 10 * action : 10 * action + 10] = rng.standard_normal(10)
    contexts, actions = rng.standard_normal((n_rows, 40)), rng.integers(0, 4, n_rows)
    rewards = np.einsum("ij,ij->i", contexts, weights[actions]) + rng.standard_normal(n_rows)
    data = fedopl.LoggedData(contexts, actions, rewards)
    scores = fedopl.aipw_scores(data, fedopl.cross_fit(data, propensity="marginal")).values
    unseen = rng.standard_normal((50_000, 40))
    values = unseen @ weights.T

    def regret(decided):
        return float((values.max(axis=1) - values[np.arange(len(values)), decided]).mean())

    return contexts, scores, unseen, regret


def with_fedopl(contexts, scores, batch: int):
    """What one client and the server do in as many rounds as one pass takes.

    The server would choose by loss which rounds to leave out; here it is the first sixteenth.
    """
    plan = fedopl.TrainingPlan(batch_size=batch)
    rows = examples(contexts, scores, None, np.zeros(41), np.ones(41))
    batches, n_rounds = Batches(0, "client", ""), max(1, len(contexts) // (batch * N_STEPS))
    current, total, first = np.zeros((4, 41)), np.zeros((4, 41)), n_rounds // 16
    for turn in range(n_rounds):
        picks = batches.of_round(turn, len(contexts), plan)
        current = improve(current, rows, plan, None, picks, 1 / np.sqrt(1 + turn / 4))
        if turn >= first:
            total += current
    return total / (n_rounds - first)


def with_vowpal(contexts, scores, unseen):
    """Plain Python use: a text line for every row, `--csoaa 4`, learn; lines are not timed."""
    from vowpalwabbit import Workspace

    def line(row, costs=""):
        return f"{costs} | " + " ".join(f"{j}:{x:.6g}" for j, x in enumerate(row.tolist()))

    workspace, taken = Workspace("--csoaa 4 --quiet"), 0.0
    for row, score in zip(contexts, scores, strict=True):
        example = line(row, " ".join(f"{a}:{-s:.6g}" for a, s in enumerate(score.tolist(), 1)))
        begun = time.perf_counter()
        workspace.learn(example)
        taken += time.perf_counter() - begun
    return np.array([workspace.predict(line(row)) - 1 for row in unseen]), taken


def one_pass(n_rows: int) -> list[str]:
    """A table's rows for one pass over so many."""
    contexts, scores, unseen, regret = problem(n_rows)
    lines = []
    for batch in (8, 32, 128):
        taken = []
        for _ in range(5 if n_rows <= 100_000 else 3):
            begun = time.perf_counter()
            learned = with_fedopl(contexts, scores, batch)
            taken.append(time.perf_counter() - begun)
        middle = statistics.median(taken)
        decided = (unseen @ learned[:, :-1].T + learned[:, -1]).argmax(axis=1)
        lines.append(
            f"| {n_rows:,} | csoaa-sgd, batches of {batch} | {middle:.3f} "
            f"| {n_rows / middle:,.0f} | {regret(decided):.6f} |"
        )
    decided, seconds = with_vowpal(contexts, scores, unseen)
    lines.append(
        f"| {n_rows:,} | Vowpal Wabbit, Python | {seconds:.3f} | {n_rows / seconds:,.0f} "
        f"| {regret(decided):.6f} |"
    )
    return lines


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="without a million rows")
    quick = parser.parse_args().quick
    with threadpool_limits(1):
        print("| rows × features × actions | batch | way | µs | least | M rows/s | faster |")
        print("|---|---:|---|---:|---:|---:|---:|")
        for size in SIZES:
            if not quick or size[0] <= 100_000:
                print(*compare(*size), sep="\n", flush=True)
        print("\n| rows | learner, one pass | seconds | rows/s | regret |")
        print("|---:|---|---:|---:|---:|")
        for n_rows in (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000):
            print(*one_pass(n_rows), sep="\n", flush=True)
    if shutil.which("vw") is None:
        print("\nVowpal Wabbit's command line is not installed here.")


if __name__ == "__main__":
    main()
