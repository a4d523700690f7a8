"""Ways to take the steps of `csoaa-sgd`: numpy, BLAS called directly, numba, and the one in use.

The same steps (20 of them, as in one message) are taken by each way in turns, in one process. Each
time has a draw of its own, since rows that the previous one had just read would be in a cache. All
ways must agree before any is timed. Ways that are slower, or faster at one end only, are here and
not in `fedopl.client.local.local_steps`, as a record that they were tried.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from harness import Column, Options, Row, Table, in_child, options, spread, write
from scipy.linalg import blas

import fedopl
from fedopl.client.local.local_steps import Examples, examples, improve
from fedopl.client.rows.chunks import ScoredRows

N_STEPS = 20
STEP = 0.01
PLAN = fedopl.TrainingPlan(local_steps=N_STEPS, average="rounds")  # ends, as all ways have
ROWS_AT_ONCE = 8192
# Rows, features, actions, rows of a batch, and how often each way is timed.
Size = tuple[int, int, int, int, int]
SIZES: tuple[Size, ...] = (
    (200, 10, 3, 32, 101),
    (1_000, 10, 3, 128, 51),
    (1_000_000, 40, 4, 128, 21),
    (1_000_000, 40, 4, 1024, 9),
    (1_000_000, 40, 4, 4096, 5),
    (50_000, 200, 100, 128, 5),
)
QUICK: tuple[Size, ...] = ((200, 10, 3, 32, 1),)
COLUMNS = (
    Column("rows × features × actions", "{rows:,} × {features} × {actions}", text=True),
    Column("batch", "{batch:,}"),
    Column("way", "{way}", text=True),
    Column("µs for 20 steps", "{median:,.0f}"),
    Column("least – most", "{least:,.0f} – {most:,.0f}", text=True),
    Column("million rows per second", "{rate:~3}"),
    Column("times a gather for every batch", "{times:.2f}×"),
)
READING = """
Nothing wins clearly at both ends. Numba's loop is two to four times as fast where clients are small
and up to three times slower where actions are many; whoever lacks it would get other last digits.
BLAS called directly saves up to a tenth of large steps and a fifth of small ones, where no row has
a weight and no score is missing. Single precision saves up to a half and keeps half the digits.
Blocks of a table that was shuffled once need no gather, but the same rows come together in every
pass, so that a server could solve for their sums.
"""
USUAL, BLOCKS = "a gather for every batch", "blocks of one shuffled table"


@dataclass(frozen=True, eq=False)
class Prepared:
    """The rows as each way wants them."""

    rows: Examples
    joined: np.ndarray  # features and scores side by side
    single: tuple[np.ndarray, np.ndarray]  # features and scores with half their digits


# --- ways to take the same steps --------------------------------------------------------------


def by_batch(given: Prepared, start, picks):
    """A gather of features and another of scores for every step."""
    for pick in picks:
        features = given.rows.features[pick]
        error = features @ start.T
        error -= given.rows.scores[pick]
        gradient = error.T @ features
        gradient /= len(pick)
        start = start - STEP * gradient
    return start


def by_fedopl(given: Prepared, start, picks):
    """One gather for many steps, and products without a ufunc's overhead: what is used."""
    stable = given.rows.curvature + given.rows.trace / picks.shape[1]
    return improve(start, given.rows, PLAN, picks, STEP * stable / PLAN.rate)


def side_by_side(given: Prepared, start, picks):
    """Features and scores in one matrix: one gather, and one product for the errors."""
    n_actions = len(start)
    wide = np.concatenate([start, -np.eye(n_actions)], axis=1)
    for chunk in chunks(picks):
        for row in given.joined.take(chunk, axis=0):
            error = row.dot(wide.T)
            wide[:, :-n_actions] -= STEP / len(row) * error.T.dot(row[:, :-n_actions])
    return wide[:, :-n_actions]


def by_gram(given: Prepared, start, picks):
    """Every batch's Gram matrix first, all in one call: steps then take p² and not p·batch."""
    for chunk in chunks(picks):
        features, scores = gathered(given.rows.features, given.rows.scores, chunk)
        grams = features.transpose(0, 2, 1) @ features
        products = scores.transpose(0, 2, 1) @ features
        for gram, product in zip(grams, products, strict=True):
            move = start.dot(gram)
            move -= product
            move *= STEP / picks.shape[1]
            start = start - move
    return start


def by_blas(given: Prepared, start, picks):
    """BLAS without numpy between: scaling and subtraction inside the products."""
    columns = start.T.copy(order="F")
    for chunk in chunks(picks):
        batches = gathered(given.rows.features, given.rows.scores, chunk)
        for features, scores in zip(*batches, strict=True):
            across = features.T
            error = blas.dgemm(
                1.0, columns, across, beta=-1.0, c=scores.T, trans_a=1, overwrite_c=1
            )
            scale = -STEP / picks.shape[1]
            columns = blas.dgemm(
                scale, across, error, beta=1.0, c=columns, trans_b=1, overwrite_c=1
            )
    return columns.T


def in_single_precision(given: Prepared, start, picks):
    """Half the bytes; seven digits instead of sixteen."""
    start = start.astype(np.float32)
    for chunk in chunks(picks):
        for features, scores in zip(*gathered(*given.single, chunk), strict=True):
            error = features.dot(start.T)
            error -= scores
            move = error.T.dot(features)
            move *= np.float32(STEP / picks.shape[1])
            start = start - move
    return start


def by_blocks(given: Prepared, start, picks):
    """Neighbours of a table that was shuffled once: nothing is gathered.

    The same rows come together in every pass, so a server could solve for a batch's sums.
    """
    batch = picks.shape[1]
    for first in picks[:, 0] % (len(given.rows.features) - batch):
        features = given.rows.features[first : first + batch]
        error = features.dot(start.T)
        error -= given.rows.scores[first : first + batch]
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

    return lambda given, start, picks: steps(
        given.rows.features, given.rows.scores, start, picks, STEP
    )


def gathered(features, scores, picks):
    """Both of these rows, batch by batch."""
    return features.take(picks, axis=0), scores.take(picks, axis=0)


def chunks(picks):
    """As many steps' picks at a time as are gathered together."""
    at_once = max(1, ROWS_AT_ONCE // picks.shape[1])
    return (picks[first : first + at_once] for first in range(0, len(picks), at_once))


WAYS: dict[str, Callable | None] = {
    USUAL: by_batch,
    "fedopl: one gather for many": by_fedopl,
    "features and scores in one matrix": side_by_side,
    "batch Grams": by_gram,
    "scipy.linalg.blas": by_blas,
    "single precision": in_single_precision,
    "numba": by_numba(),
    BLOCKS: by_blocks,
}
EQUAL = 1e-4  # of single precision


def prepared(n_rows: int, n_features: int, n_actions: int) -> Prepared:
    """Rows and scores that are drawn."""
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((n_rows, n_features))
    scores = rng.standard_normal((n_rows, n_actions))
    origin, unit = np.zeros(n_features + 1), np.ones(n_features + 1)
    rows = examples(ScoredRows(contexts=contexts, scores=scores, weights=None), origin, unit)
    return Prepared(
        rows=rows,
        joined=np.concatenate([rows.features, rows.scores], axis=1),
        single=(rows.features.astype(np.float32), rows.scores.astype(np.float32)),
    )


def measure_here(n_rows: int, n_features: int, n_actions: int, batch: int, turns: int) -> Row:
    """In a process of its own: seconds of every way that is here, in turns."""
    given, start = prepared(n_rows, n_features, n_actions), np.zeros((n_actions, n_features + 1))
    ways = {name: way for name, way in WAYS.items() if way is not None}
    rng = np.random.default_rng(1)
    same = rng.integers(0, n_rows, (N_STEPS, batch))
    for name, way in ways.items():  # compiles, and must agree
        found = way(given, start, same)
        if name != BLOCKS:
            np.testing.assert_allclose(found, by_batch(given, start, same), atol=EQUAL)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            picks = rng.integers(0, n_rows, (N_STEPS, batch))
            begun = time.perf_counter()
            way(given, start, picks)
            seconds[name].append(time.perf_counter() - begun)
    return seconds


def measure(size: Size) -> list[Row]:
    """A table's rows for one size."""
    n_rows, n_features, n_actions, batch, _ = size
    seconds = in_child(__file__, *map(str, size))
    usual = spread(seconds[USUAL])["median"]
    found = []
    for way in WAYS:
        row: Row = {"rows": n_rows, "features": n_features, "actions": n_actions}
        row |= {"batch": batch, "way": way}
        if way not in seconds:
            found.append(row | {"note": "absent: not installed"})
            continue
        row |= spread(1e6 * taken for taken in seconds[way])
        rate = N_STEPS * batch / row["median"]
        found.append(row | {"rate": rate, "times": 1e6 * usual / row["median"]})
    return found


def main(given: Options) -> None:
    """Measure and write."""
    if given.measure:
        print(json.dumps(measure_here(*map(int, given.measure))))
        return
    sizes = QUICK if given.quick else SIZES
    write(__file__, given, Table(COLUMNS, [row for size in sizes for row in measure(size)]))


if __name__ == "__main__":
    main(options(__doc__))
