"""How typical the draw of patients is that `fedopl demo` shows.

    python experiments/demo_draws.py [--draws 20] [--first 1]

The demo's hospitals with other patients, drawn anew: at how many of the small hospitals the
interval of what joining gains over learning alone lies above zero, and whether the personal policy
is surely best at the hospital that differs. Both are judged as the demo and its report judge them.
"""

import argparse
import tempfile
from pathlib import Path

from fedopl.analysis.advice import LEVEL, three_ways
from fedopl.demo.hospitals import ODD, SMALL, hospitals
from fedopl.engines.run import run
from fedopl.results.value_tables import LOCAL


def main() -> None:
    """Print a line for each draw, and the shares over all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--first", type=int, default=1)
    wanted = parser.parse_args()
    alike = [name for name in SMALL if name != ODD]
    sure = odd = 0
    for draw in range(wanted.first, wanted.first + wanted.draws):
        with tempfile.TemporaryDirectory() as folder:
            study = hospitals(draw).write(Path(folder))
            record = run(study, Path(folder) / "clients", out=Path(folder) / "run")
        gains = {row.client: row for row in record.gains.rows if row.against == LOCAL}
        above = [name for name in alike if gains[name].interval[0] > 0]
        own = three_ways(record)[ODD]
        low, high = own.personal_over_shared.interval(LEVEL)
        sure, odd = sure + len(above), odd + (own.decision == "personal")
        found = {name: gains[name].estimate for name in (*alike, ODD)}
        ratios = ", ".join(
            f"{name} {gain.value / gain.standard_error:.1f}" for name, gain in found.items()
        )
        print(
            f"draw {draw}: {len(above)} of {len(alike)} above zero ({ratios} standard errors); "
            f"{ODD} personal over shared {low:.2f} to {high:.2f}, best: {own.decision}; "
            f"{len(record.refusals)} refusals",
            flush=True,
        )
    print(
        f"over {wanted.draws} draws: {sure / wanted.draws:.1f} of {len(alike)} small hospitals "
        f"surely gain by joining; the personal policy is surely best for {ODD} in {odd} of them"
    )


if __name__ == "__main__":
    main()
