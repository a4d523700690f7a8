"""Regret with differential privacy, for fedopl and for other private learners on the same loss.

The world: ten features, X ~ N(0, I), or correlated by 0.9^|i − j|; four actions, linear outcomes
with slopes of length one, intercepts of deviation 0.5 and noise of deviation 1; softmax logging
that is each client's own, with propensities of 0.05 or more, which are known. Regret is the true
one, on 20,000 fresh contexts, the mean over draws of the world; "±" is its standard error. The best
constant arm has about 0.7. δ is one in a million, and each client adds noise of its own. The
exception is "noise on the total": there answers are added up under masks, and one client may
collude.

"fedopl" is `fedopl.learn(clients, basis="linear", privacy=PrivacyPlan(...), evaluation=0)` with
ranges of ±2 for features and ±4.5 for outcomes; by default it takes 4 steps. All peers are linear
as well: AdaSSP (Wang 2018), DP-GD, DP-SGD with Poisson samples and DP-FedAvg, in
`privacy_peers.py`, on the same rows with features bounded the same way. Step sizes and bounds of
the last three are the best of four for each cell, chosen in hindsight, which is impossible with
real rows. fedopl's are the same in all cells, but were chosen as well: among some fifty variants of
steps, bounds and shares that were tried in this world, on draws that are measured here. On 24 other
draws with 3 × 1,000 rows it lost .14, .040, .012 and .010, and before that choice .19, .051, .014
and .011. Sampled steps are accounted by the distribution of privacy losses, all else by Gaussian
differential privacy. "None" is ε = 50 for fedopl, and no noise for the peers.

`--sizes` (rows a client), `--methods` and `--draws` choose.
"""

import math
import statistics
from typing import Any, NamedTuple

import numpy as np
from harness import Column, Options, Row, Table, options, tell, write
from privacy_peers import PEERS, Budget, bounded
from threadpoolctl import threadpool_limits

import fedopl
from fedopl.base.seeds import generator_for

N_FEATURES, N_TEST, DELTA = 10, 20_000, 1e-6
ACTIONS = ("a", "b", "c", "d")
FEATURES = tuple(f"x{place}" for place in range(N_FEATURES))
RANGES = dict.fromkeys(FEATURES, (-2.0, 2.0))
OUTCOMES = (-4.5, 4.5)
NONE = 50.0  # an ε with hardly any noise
EPSILONS = (0.5, 1.0, 4.0, NONE)
OURS: dict[str, dict[str, Any]] = {
    "fedopl": {},
    "fedopl, 2 steps": {"steps": 2},
    "fedopl, 12 steps": {"steps": 12},
    "fedopl, noise on the total": {"aggregation": "secure"},
}

READING = """
With 3 × 1,000 rows and ε ≤ 1 gradients lose about half as much as fedopl, with numbers chosen in
hindsight; at ε = 4 there is no difference beyond the errors. With 3 × 10,000 rows gradients and
fedopl differ by little more than the errors, and AdaSSP loses more wherever there is noise. Of 20
clients with 2,000 rows DP-GD and DP-SGD lose half as much at ε = 0.5; beyond it they lose less by
one or two errors, without noise, too. Twelve steps instead of four are not clearly better where
features are round, and worse at ε ≤ 1 where they are correlated, so the default stays. Why
gradients win is not known: exact squares of features did not close the gap. Without noise least
squares (AdaSSP's) have the smallest mean everywhere, with 20 clients within the errors; gradients
do not get to the end where features are correlated. With noise on the total, 20 clients lose at
ε = 1 what they lose without noise; no peer has that, so each has noise of every client there.
"""


class Cell(NamedTuple):
    """Clients, rows of each, and how features go together."""

    clients: int
    rows: int
    correlation: float = 0.0

    def __str__(self) -> str:
        correlated = ", correlated" if self.correlation else ""
        return f"{self.clients} × {self.rows:,}{correlated}"


CELLS = (Cell(3, 1_000), Cell(3, 10_000), Cell(20, 2_000), Cell(3, 1_000, 0.9))
COLUMNS = (
    Column("rows", "{size}", text=True),
    Column("method", "{method}", text=True),
    *(
        Column("none" if epsilon == NONE else f"ε = {epsilon:g}", f"{{{key}:~2}} ± {{{key}±:~1}}")
        for epsilon, key in ((one, f"at {one:g}".replace(".", "_")) for one in EPSILONS)
    ),
)


class World:
    """One draw: what actions are worth, what clients logged, and contexts to test on."""

    def __init__(self, cell: Cell, draw: int) -> None:
        rng = generator_for(draw, purpose="private world")
        places = np.arange(N_FEATURES)
        spread = cell.correlation ** np.abs(np.subtract.outer(places, places))
        self.root = np.linalg.cholesky(spread)
        slopes = rng.normal(size=(len(ACTIONS), N_FEATURES))
        self.slopes = slopes / np.linalg.norm(slopes, axis=1, keepdims=True)
        self.levels = rng.normal(0, 0.5, len(ACTIONS))
        self.clients = [self._logged(cell.rows, rng) for _ in range(cell.clients)]
        self.fresh = rng.normal(size=(N_TEST, N_FEATURES)) @ self.root.T

    def _logged(self, n_rows: int, rng: np.random.Generator) -> fedopl.LoggedData:
        contexts = rng.normal(size=(n_rows, N_FEATURES)) @ self.root.T
        odds = np.exp(contexts @ rng.normal(0, 0.5, self.slopes.shape).T)
        chances = np.maximum(odds / odds.sum(axis=1, keepdims=True), 0.05)
        chances /= chances.sum(axis=1, keepdims=True)
        actions = (chances.cumsum(axis=1) > rng.random((n_rows, 1))).argmax(axis=1)
        every = np.arange(n_rows)
        means = contexts @ self.slopes.T + self.levels
        return fedopl.LoggedData(
            contexts,
            actions,
            means[every, actions] + rng.normal(size=n_rows),
            chances[every, actions],
            action_names=ACTIONS,
            feature_names=FEATURES,
        )

    def regret(self, decided: np.ndarray) -> float:
        """What these decisions on fresh contexts lose."""
        means = self.fresh @ self.slopes.T + self.levels
        return float((means.max(axis=1) - means[np.arange(N_TEST), decided]).mean())

    def regret_of(self, parameters: np.ndarray) -> float:
        """What the linear policy of these parameters loses."""
        wide = np.column_stack([self.fresh, np.ones(N_TEST)])
        return self.regret((wide @ parameters.T).argmax(axis=1))


def ours(world: World, epsilon: float, draw: int, method: str) -> list[float]:
    """The regret of fedopl."""
    run = fedopl.learn(
        {f"client {place}": own for place, own in enumerate(world.clients)},
        privacy=fedopl.PrivacyPlan(
            epsilon=epsilon, delta=DELTA, outcome=OUTCOMES, ranges=RANGES, **OURS[method]
        ),
        basis="linear",
        declared=fedopl.Declared(overlap=0.04),
        evaluation=0,
        running=fedopl.Running(secret=f"draw {draw}"),
    )
    return [world.regret(run.policy.decide(world.fresh))]


def theirs(world: World, epsilon: float, draw: int, method: str) -> list[float]:
    """The regret of a peer, with each of the numbers that it leaves open."""
    learner, open_numbers = PEERS[method]
    rows = [bounded(own.contexts, own.actions, own.rewards) for own in world.clients]
    budget = Budget(math.inf if epsilon == NONE else epsilon, DELTA)
    return [
        world.regret_of(learner(rows, len(ACTIONS), budget, np.random.default_rng(draw), numbers))
        for numbers in open_numbers
    ]


def measure(cell: Cell, method: str, epsilons: tuple[float, ...], draws: int) -> Row:
    """One method on all draws of a cell; the best of its numbers for every ε."""
    row: Row = {"size": str(cell), "method": method}
    for epsilon in epsilons:
        found = []
        for draw in range(draws):
            world = World(cell, draw)
            with threadpool_limits(1):
                found.append((ours if method in OURS else theirs)(world, epsilon, draw, method))
        best = min(zip(*found, strict=True), key=statistics.mean)
        key = f"at {epsilon:g}".replace(".", "_")
        row[key] = statistics.mean(best)
        row[f"{key}±"] = statistics.stdev(best) / math.sqrt(draws)
    tell(__file__, *row.values())
    return row


def main(given: Options) -> None:
    """Measure and write."""
    (draws,) = given.chosen["draws"] or (2 if given.quick else 12,)
    sizes = given.chosen["sizes"]
    cells = [cell for cell in CELLS if not sizes or cell.rows in sizes]
    methods = given.chosen["methods"] or (*OURS, *PEERS)
    epsilons = EPSILONS
    if given.quick:
        cells, methods, epsilons = [Cell(3, 200)], ("fedopl", *list(PEERS)[:2]), (4.0, NONE)
    rows = [measure(cell, method, epsilons, draws) for cell in cells for method in methods]
    write(__file__, given, Table(COLUMNS, rows))


if __name__ == "__main__":
    main(options(__doc__, sizes=int, methods=(*OURS, *PEERS), draws=int))
