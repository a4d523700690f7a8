"""What one lying client of ten comes to: every false answer of `lies.py`, a run each.

    python experiments/lying_client.py [--rows 1000] [--only TEXT] [--write]

Ten clients alike, whose truth is known. For each lie: whether it was rejected by name, named in a
caution or used without a word; on how many contexts the policy decides otherwise than without it;
and what the policy truly gains over the best constant arm, beside what the run claims. `--write`
puts the table into docs/lying-clients.md.
"""

import argparse
from pathlib import Path

import lies
import numpy as np
from marked_pages import write_between
from small_worlds import World, alike_world

import fedopl
from fedopl.base.tables import text_table
from fedopl.report.cautions import cautions
from fedopl.results.record import Record
from fedopl.results.value_tables import arm_name

PAGE = Path(__file__).parents[1] / "docs" / "lying-clients.md"
HEADERS = ["lie", "said of it", "decisions changed", "true gain", "gain claimed"]
QUICK = fedopl.NuisancePlan(propensity="marginal")


def said_of(record: Record, liar: str) -> str:
    """What a reader is told of the liar, the gravest first."""
    if any(name == liar and "rejected" in why for _, name, why in record.refusals):
        return "rejected"
    if any(liar in caution.what for caution in cautions(record)):
        return "caution"
    return "nothing"


def true_gain(world: World, record: Record) -> float:
    """The gain over the truly best constant arm, at all clients alike."""
    client = world.clients[0]
    contexts = world.contexts(client, 20_000, np.random.default_rng(1))
    means = world.mean_rewards(client, contexts)
    chosen = record.policy.decide(contexts)
    return float(means[np.arange(len(means)), chosen].mean() - means.mean(axis=0).max())


def row_of(name: str, world: World, record: Record, honest: Record) -> list[str]:
    """One line of the table."""
    contexts = np.random.default_rng(0).standard_normal((20_000, len(world.feature_names)))
    differ = record.policy.decide(contexts) != honest.policy.decide(contexts)
    claimed = record.gains.over(arm_name(record.best_arm))
    return [
        name,
        said_of(record, world.clients[0]),
        f"{differ.mean():.0%}",
        f"{true_gain(world, record):+.2f}",
        f"{claimed.value:+.2f} ± {1.96 * claimed.standard_error:.2f}",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--only", default="")
    parser.add_argument("--write", action="store_true")
    chosen = parser.parse_args()
    world = alike_world(10, seed=3)
    clients = {name: world.logged(name, chosen.rows) for name in world.clients}
    rows, true_runs = [], {}
    for name, lie in lies.LIES.items():
        if chosen.only not in name:
            continue
        settings = {"nuisances": QUICK, **lie.options}
        key = str(lie.options)
        if key not in true_runs:
            true_runs[key] = fedopl.learn(clients, basis="linear", limits="guarded", **settings)
        record = lies.run_with(lie, clients, world.clients[0], nuisances=QUICK)
        rows.append(row_of(name, world, record, true_runs[key]))
    print(text_table(HEADERS, rows))
    if chosen.write:
        lines = [HEADERS, ["---"] * len(HEADERS), *rows]
        write_between(PAGE, "lies", [f"| {' | '.join(cells)} |" for cells in lines])


if __name__ == "__main__":
    main()
