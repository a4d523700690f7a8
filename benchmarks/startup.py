"""Seconds until the program is ready: importing fedopl, its command line, and peers.

Each is a new process, warm from the disk, in turns. "Imports" is the sum of `python -X importtime`
for the module, without the interpreter's own start.

Flower starts `flwr-clientapp` at a client for every message. It imports Flower, then fedopl, then
what models are fitted with. `fedopl node` and `fedopl flower up` have it started as a fork of a
process that has imported all this. With `--help` it ends as soon as Flower is there.
"""

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from environments import MODULES
from harness import AbsentError, Column, Options, Row, Table, options, peer_python, spread, write

from fedopl.engines.flower.warm_programs import CLIENT_APP_MODULES, WarmPrograms, can_fork
from fedopl.engines.network.early_imports import MODULES_FOR_PROPENSITIES, MODULES_FOR_SOLVING

OURS = {
    "python, nothing imported": "pass",
    "import fedopl": "import fedopl",
    "import numpy": "import numpy",
    "fedopl.learn, first touched": "import fedopl; fedopl.learn",
    "fedopl.read_logged, first touched": "import fedopl; fedopl.read_logged",
    "import sklearn.linear_model": "import sklearn.linear_model",
    "a Flower client's part of fedopl": f"import {', '.join(CLIENT_APP_MODULES)}",
    "what models are fitted with": (
        f"import {', '.join([*MODULES_FOR_SOLVING, *MODULES_FOR_PROPENSITIES])}"
    ),
}
PEERS = ("vowpalwabbit", "contextualbandits", "obp", "econml")
HELP = "fedopl --help"
TURNS, QUICK = 11, 1
COLUMNS = (
    Column("what", "{what}", text=True),
    Column("seconds", "{median:.3f}"),
    Column("least – most", "{least:.3f} – {most:.3f}", text=True),
    Column("imports, s", "{imports:.3f}"),
)


def flower_commands(opened: ExitStack) -> dict[str, list[str]]:
    """Flower's program for messages, by itself and as a fork of one that has imported it."""
    own = Path(sys.executable).with_name("flwr-clientapp")
    if not (own.exists() and can_fork()):
        return {}
    forked = opened.enter_context(WarmPrograms([own], CLIENT_APP_MODULES, dict(os.environ)))
    return {
        "flwr-clientapp --help": [str(own), "--help"],
        "the same, forked": [str(forked.folder / own.name), "--help"],
    }


def commands(quick: bool, opened: ExitStack) -> tuple[dict[str, list[str]], dict[str, str]]:
    """What to start, by name, and who is absent."""
    program = Path(sys.executable).with_name("fedopl")
    start = [str(program)] if program.exists() else [sys.executable, "-c", _MAIN]
    found = {name: [sys.executable, "-c", code] for name, code in OURS.items()}
    found[HELP] = [*start, "--help"]
    found |= flower_commands(opened)
    absent = {}
    for peer in () if quick else PEERS:
        name = f"import {MODULES[peer]}"
        try:
            found[name] = [str(peer_python(peer)), "-c", name]
        except AbsentError as error:
            absent[name] = str(error)
    return found, absent


_MAIN = "from fedopl.cli.app import main; main()"


def started(command: list[str]) -> float:
    """Seconds of one process."""
    start = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True)
    return time.perf_counter() - start


def imports(command: list[str]) -> float | None:
    """Seconds that `-X importtime` counts for modules that the code imports."""
    if command[1] != "-c" or command[2] == "pass":
        return None
    python, *rest = command
    done = subprocess.run(
        [python, "-X", "importtime", *rest], capture_output=True, text=True, check=True
    )
    # "self | cumulative | name": names at the left margin come from the code; `site` is the start.
    lines = re.findall(r"^import time:\s+\d+ \|\s+(\d+) \| (\S+)$", done.stderr, re.M)
    names = [name for _, name in lines]
    own = lines[names.index("site") + 1 :] if "site" in names else lines
    return sum(int(spent) for spent, _ in own) / 1e6


def measure(quick: bool) -> list[Row]:
    """All of them in turns."""
    turns = QUICK if quick else TURNS
    with ExitStack() as opened:
        found, absent = commands(quick, opened)
        seconds: dict[str, list[float]] = {name: [] for name in found}
        for turn in range(turns + 1):
            for name, command in found.items():
                spent = started(command)
                if turn:
                    seconds[name].append(spent)
    rows: list[Row] = []
    for name, values in seconds.items():
        spent = imports(found[name])
        rows.append({"what": name} | spread(values) | ({} if spent is None else {"imports": spent}))
    return [*rows, *({"what": name, "note": note} for name, note in absent.items())]


def main(given: Options) -> None:
    """Measure and write."""
    write(__file__, given, Table(COLUMNS, measure(given.quick)), peers=not given.quick)


if __name__ == "__main__":
    main(options(__doc__))
