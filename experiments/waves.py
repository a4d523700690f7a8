"""What thresholds and waves bring.

    python experiments/waves.py [--draws 2] [--rows 2000] [--worlds NAME ...]

The table is of worlds of `fedopl.simulation.named_worlds`, by the mean regret over draws from
0 on, with three clients of so many rows and none held out. "Auto" is the basis that `learn` makes;
the other ways have its knots and products. "Smooth terms alone" has no thresholds, "width 2.5" is
200 waves that reach further than usual. "Seconds" is the processor time of "auto", and that with
waves as a multiple of it.
"""

import argparse
import statistics
import time

from threadpoolctl import threadpool_limits

import fedopl
from fedopl.policies.basis import Basis
from fedopl.simulation.named_worlds import SHAPED_WORLDS, shaped_world
from fedopl.simulation.shaped_worlds import ShapedWorld

WORLDS = ("deep", "smooth", "linear", "steps", "xor", "clients-differ")
WIDE = {"waves": 200, "wave_width": 2.5}
# By way, how its basis differs from that of "auto".
WAYS = {
    "smooth terms alone": {"screened_thresholds": 0},
    "auto": {},
    "auto with 200 waves": {"waves": 200},
    "with width 2.5": WIDE,
}
N_TEST = 20_000  # contexts of each client
Rows = dict[str, fedopl.LoggedData]


def learned(world: ShapedWorld, rows: Rows, **told: object) -> tuple[fedopl.Run, float, float]:
    """The run, its regret, and seconds of the processor."""
    began = time.process_time()
    run = fedopl.learn(rows, evaluation=0, **told)
    return run, world.regret(run.policy, N_TEST), time.process_time() - began


def once(name: str, n_rows: int, draw: int) -> tuple[list[float], list[float]]:
    """The regret by every way and by a network, and seconds without waves and with them."""
    world = shaped_world(name, draw)
    rows = world.all_logged(n_rows)
    run, *auto = learned(world, rows)
    own = run.study.basis.before_screening().model_dump()
    found = {"auto": auto}
    for way, less in WAYS.items():
        if less:
            found[way] = learned(world, rows, basis=Basis(**own | less))[1:]
    network = learned(world, rows, policy="neural")[1]
    regrets = [found[way][0] for way in WAYS]
    return [*regrets, network], [found[way][1] for way in ("auto", "auto with 200 waves")]


def table_of_regret(worlds: list[str], n_rows: int, draws: int) -> None:
    """Print the table."""
    print(f"| world | {' | '.join(WAYS)} | network | seconds |\n|---|{'---:|' * (len(WAYS) + 2)}")
    for name in worlds:
        drawn = [once(name, n_rows, draw) for draw in range(draws)]
        regrets, seconds = ([*zip(*own, strict=True)] for own in zip(*drawn, strict=True))
        cells = [f"{statistics.mean(own):.4f}" for own in regrets]
        alone, waves = (statistics.mean(own) for own in seconds)
        cells.append(f"{alone:.1f} (× {waves / alone:.2f})")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print the table, for the worlds that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--rows", type=int, default=2_000)
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(SHAPED_WORLDS))
    given = parser.parse_args()
    table_of_regret(given.worlds, given.rows, given.draws)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
