"""What outcome models are worth: those from sums, boosted trees that join them, and the truth.

    python experiments/outcome_models.py [--draws 4] [--rows 300 2000] [--worlds NAME ...]

Worlds are those of `fedopl.simulation.named_worlds`, propensities are known, and a quarter of the
rows is held out. By world, size and outcome model: the mean squared error of the outcome means over
all rows and actions, regret of the policy, half of the width of the interval of its gain over the
best constant arm, and seconds of CPU. In brackets, the mean difference from the first model on the
same draws, and its standard error.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

import fedopl
from fedopl.base.arrays import FloatArray
from fedopl.client.rows.chunks import Chunk
from fedopl.client.scoring.outcome import Outcomes, StudyOutcomes
from fedopl.results.value_tables import arm_name
from fedopl.simulation.named_worlds import shaped_world
from fedopl.simulation.shaped_worlds import ShapedWorld

WORLDS = ("linear", "smooth", "steps", "clients-differ", "xor")
WAYS = {"from sums": "ridge", "with boosting": "boosting", "true means": "ridge"}
NAMES = ("error", "regret", "half-width", "seconds")
N_TEST = 8_000
Rows = dict[str, fedopl.LoggedData]
asked_for = StudyOutcomes.by


def learned(world: ShapedWorld, rows: Rows, way: str) -> list[float]:
    """What comes out with these outcome models."""
    errors: list[float] = []

    def by(self: StudyOutcomes, models: FloatArray) -> Outcomes:
        (client,) = (name for name, data in rows.items() if data is self._rows.given)
        found = asked_for(self, models)
        return replace(found, of=compared(found.of, client))

    def compared(
        predicted: Callable[[Chunk], FloatArray], client: str
    ) -> Callable[[Chunk], FloatArray]:
        def of(chunk: Chunk) -> FloatArray:
            truth = world.mean_rewards(client, chunk.data.contexts)
            means = truth if way == "true means" else predicted(chunk)
            errors.append(float(((means - truth) ** 2).mean()))
            return means

        return of

    StudyOutcomes.by = by
    began = time.process_time()
    # Clients count by rows: what differs is the outcome models alone.
    by_rows = fedopl.Linear(precision="rows")
    plan = fedopl.NuisancePlan(outcome=WAYS[way])
    run = fedopl.learn(rows, policy=by_rows, nuisances=plan)
    seconds = time.process_time() - began
    low, high = run.gains.over(arm_name(run.best_arm)).interval()
    regret = world.regret(run.policy, N_TEST)
    return [statistics.mean(errors), regret, (high - low) / 2, seconds]


def measured(name: str, n_rows: int, draws: int) -> dict[str, list[list[float]]]:
    """By outcome model, what came out of each draw."""
    found: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for seed in range(draws):
        world = shaped_world(name, seed)
        rows = world.all_known(n_rows)
        for way, own in found.items():
            own.append(learned(world, rows, way))
    return found


def cell(own: list[float], first: list[float]) -> str:
    """A mean, and how far it is from the first one's."""
    apart = [one - other for one, other in zip(own, first, strict=True)]
    text = f"{statistics.mean(own):.4f}"
    if not any(apart) or len(apart) < 2:
        return text
    error = statistics.stdev(apart) / math.sqrt(len(apart))
    return f"{text} ({statistics.mean(apart):+.4f} ± {error:.4f})"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--rows", type=int, nargs="+", default=[300, 2_000])
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS))
    options = parser.parse_args()
    print(f"| rows | world | outcome models | {' | '.join(NAMES)} |\n|---:|---|---|{'---:|' * 4}")
    for n_rows in options.rows:
        for world in options.worlds:
            found = measured(world, n_rows, options.draws)
            first = np.transpose(found["from sums"]).tolist()
            for way, draws in found.items():
                columns = np.transpose(draws).tolist()
                cells = [cell(own, other) for own, other in zip(columns, first, strict=True)]
                cells[-1] = f"{statistics.mean(columns[-1]):.1f}"
                print(f"| {n_rows:,} | {world} | {way} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
