"""Put finished case studies into their pages: tables and sentences inside, figures beside them.

    python examples/warfarin.py TABLE --out warfarin
    python experiments/case_pages.py warfarin

A folder has what a script of examples/ wrote. Its results are kept in examples/results/.
"""

import argparse
import json
import shutil
from pathlib import Path

from marked_pages import write_between

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "examples" / "results"


def main() -> None:
    """Copy and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", type=Path, nargs="+", help="what a script of examples/ wrote")
    for folder in parser.parse_args().folders:
        for path in sorted(folder.glob("*.svg")):
            shutil.copy(path, ROOT / "docs" / "figures" / path.name)
        for path in sorted(folder.glob("*.json")):
            shutil.copy(path, RESULTS / path.name)
            content = json.loads(path.read_text(encoding="utf-8"))
            for mark, lines in content["page"].items():
                write_between(ROOT / "docs" / f"{path.stem}.md", mark, lines)


if __name__ == "__main__":
    main()
