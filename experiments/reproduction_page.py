"""Put a finished reproduction into docs/reproduction.md: figures beside it, verdicts inside.

fedopl reproduce all --draws 40 --out DIR
python experiments/reproduction_page.py DIR
"""

import argparse
import shutil
from pathlib import Path

from marked_pages import write_between

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Copy and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="what `fedopl reproduce --out` wrote")
    folder = parser.parse_args().folder
    figures = DOCS / "figures"
    figures.mkdir(exist_ok=True)
    for path in sorted(folder.glob("*.png")):
        shutil.copy(path, figures / path.name)
    for claims in sorted(folder.glob("claims-*.md")):
        lines = claims.read_text(encoding="utf-8").splitlines()
        write_between(DOCS / "reproduction.md", claims.stem, ["", *lines, ""])


if __name__ == "__main__":
    main()
