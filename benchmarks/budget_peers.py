"""`maq` on arrays in a folder: what `budgets.py` runs in that peer's own environment."""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from process import ABSENT


def gains(folder: Path) -> list[float]:
    """The gain at each budget, of this index, these costs and these scores."""
    from maq import MAQ

    arrays = np.load(folder / "rows.npz")
    fitted = MAQ().fit(arrays["index"], arrays["costs"], arrays["scores"])
    return [float(fitted.average_gain(budget)[0]) for budget in arrays["budgets"]]


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--measure", type=Path)
    try:
        print(json.dumps(gains(parser.parse_args().measure)))
    except ImportError as error:
        print(f"absent: {error}", file=sys.stderr)
        sys.exit(ABSENT)
