"""How typical the draw of patients is that `fedopl demo` shows.

The demo's hospitals with other patients, drawn anew: at how many of the small hospitals the interval
of what joining gains over learning alone lies above zero, and whether the personal policy is surely
better than the shared one at the hospital that differs.
"""

import argparse
import tempfile
from pathlib import Path

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
        over_alone = {row.client: row for row in record.gains.rows if row.against == LOCAL}
        above = [name for name in alike if over_alone[name].interval[0] > 0]
        moved = next(
            row for row in record.personal.rows if (row.against, row.client) == (record.chosen, ODD)
        )
        sure, odd = sure + len(above), odd + (moved.interval[0] > 0)
        ratios = ", ".join(
            f"{name} {over_alone[name].estimate.value / over_alone[name].estimate.standard_error:.1f}"
            for name in [*alike, ODD]
        )
        print(
            f"draw {draw}: {len(above)} of {len(alike)} above zero ({ratios} standard errors); "
            f"{ODD} personal over shared {moved.interval[0]:.2f} to {moved.interval[1]:.2f}; "
            f"{len(record.refusals)} refusals",
            flush=True,
        )
    print(
        f"over {wanted.draws} draws: {sure / wanted.draws:.1f} of {len(alike)} small hospitals surely "
        f"gain by joining; {ODD} surely by its personal policy in {odd} of {wanted.draws}"
    )


if __name__ == "__main__":
    main()
