"""What share of lines and branches the tests reach, room by room.

    python experiments/coverage_by_room.py [--missing ROOM ...]

Reads `coverage.json`, which `make coverage` leaves behind. Ends with 1 where a room of `GUARDED`,
whose code stands between rows and the world, is below `GOAL`. `--missing` lists what is not reached
there, file by file.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

GUARDED = ("client", "messages", "server")
GOAL = 97.0  # per cent
PARTS = ("num_statements", "covered_lines", "num_branches", "covered_branches")


def main() -> int:
    """Print the table, and say whether a guarded room has gaps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--missing", nargs="+", metavar="ROOM", default=[])
    parser.add_argument("--file", type=Path, default=Path("coverage.json"))
    options = parser.parse_args()
    files = json.loads(options.file.read_text(encoding="utf-8"))["files"]
    rooms = by_room(files)
    print(f"{'room':<16}{'lines':>8}{'branches':>10}{'reached':>10}")
    for room, counts in [*sorted(rooms.items()), ("all", sum(rooms.values(), Counter()))]:
        numbers = f"{counts['num_statements']:>8,}{counts['num_branches']:>10,}"
        print(f"{room:<16}{numbers}{reached(counts):>9.1f}%")
    for path, found in sorted(files.items()):
        if room_of(path) in options.missing and missing(found):
            print(f"{path}: {missing(found)}")
    short = [room for room in GUARDED if reached(rooms[room]) < GOAL]
    if short:
        print(f"below {GOAL:g} %: {', '.join(short)}")
    return 1 if short else 0


def room_of(path: str) -> str:
    """The room that a file of src/fedopl is in; those beside the rooms are in `fedopl`."""
    parts = Path(path).parts
    room, *inside = parts[parts.index("fedopl") + 1 :]
    return room if inside else "fedopl"


def by_room(files: dict[str, Any]) -> dict[str, Counter[str]]:
    """Lines and branches of each room, and how many of them were reached."""
    rooms: dict[str, Counter[str]] = {}
    for path, found in files.items():
        counts = Counter({part: found["summary"][part] for part in PARTS})
        rooms[room_of(path)] = rooms.get(room_of(path), Counter()) + counts
    return rooms


def reached(counts: Counter[str]) -> float:
    """Of lines and branches together, in per cent."""
    total = counts["num_statements"] + counts["num_branches"]
    covered = counts["covered_lines"] + counts["covered_branches"]
    return 100 * covered / total if total else 100.0


def missing(found: dict[str, Any]) -> str:
    """The lines, and the branches from line to line, that were not reached."""
    lines = set(found["missing_lines"])
    branches = [
        f"{start}→{'end' if end < 0 else end}"
        for start, end in found["missing_branches"]
        if start not in lines
    ]
    return ", ".join([*map(str, sorted(lines)), *branches])


if __name__ == "__main__":
    sys.exit(main())
