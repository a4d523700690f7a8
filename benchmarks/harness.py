"""What all benchmarks share: turns, spread, memory, the machine, and where results go.

A script has a table of methods, runs them in turns, and passes rows of plain numbers to `write`.
The rows are stored in `results/NAME.json`, with the command, the date and the machine. `readme.py`
makes the page from those files and from the scripts' docstrings.
"""

import argparse
import datetime
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from process import ABSENT

from fedopl.base.files import write_atomically

HERE = Path(__file__).parent
RESULTS = HERE / "results"
PEERS = Path(os.environ.get("PEERS", HERE.parent / ".venv-peers"))
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
TURNS = 5
PACKAGES = ("fedopl", "numpy", "scipy", "scikit-learn", "pyarrow", "numba", "flwr")
OF_PEERS = ("vowpalwabbit", "scikit-learn", "econml", "obp", "contextualbandits", "pystreed")

Row = dict[str, Any]


class Options(NamedTuple):
    """What every script can be told."""

    quick: bool
    most: int | None  # rows or clients
    out: Path
    measure: list[str]  # in a process of its own: what to measure there
    chosen: dict[str, tuple[Any, ...]]  # a script's own flags; empty where nothing was said

    def sizes(self, full: tuple[int, ...], quick: tuple[int, ...]) -> tuple[int, ...]:
        """Those to measure."""
        most = self.most or max(full)
        return quick if self.quick else tuple(size for size in full if size <= most)

    def turns(self, turns: int = 5) -> int:
        """How often."""
        return 1 if self.quick else turns

    @property
    def said(self) -> str:
        """What the command line said of it."""
        most = "" if self.most is None else f" --most {self.most}"
        chosen = (
            f" --{flag} {shlex.join(map(str, values))}"
            for flag, values in self.chosen.items()
            if values
        )
        return f"{' --quick' * self.quick}{most}{''.join(chosen)}"


class AbsentError(Exception):
    """A peer is not here; the text says why."""


@dataclass(frozen=True)
class Column:
    """A title, how a cell is made from a row's numbers, and whether it reads as text."""

    title: str
    cell: str
    text: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of plain numbers, and how they are shown; a `note` says why some are missing."""

    columns: tuple[Column, ...]
    rows: list[Row]


# --- time -----------------------------------------------------------------------------------------


class Timed(NamedTuple):
    """Seconds of every turn, by the clock and of the processor, and what came of the last."""

    seconds: list[float]
    cpu: list[float]
    result: Any


def in_turns(methods: Mapping[str, Callable[[], Any]], turns: int = TURNS) -> dict[str, Timed]:
    """Run all methods in turns, so that noise hits all alike; one turn before warms up."""
    found = {name: Timed([], [], None) for name in methods}
    for turn in range(turns + 1):
        for name, method in methods.items():
            cpu, clock = time.process_time(), time.perf_counter()
            result = method()
            clock, cpu = time.perf_counter() - clock, time.process_time() - cpu
            seconds = [*found[name].seconds, clock] if turn else []
            found[name] = Timed(seconds, [*found[name].cpu, cpu] if turn else [], result)
    return found


def spread(values: Iterable[float], prefix: str = "") -> Row:
    """Median, least and most, and of how many."""
    values = list(values)
    return {
        f"{prefix}median": statistics.median(values),
        f"{prefix}least": min(values),
        f"{prefix}most": max(values),
        f"{prefix}repeats": len(values),
    }


# --- processes of their own -----------------------------------------------------------------------


def tell(script: str, *what: object) -> None:
    """Say what is being measured, for whoever waits."""
    print(f"{time.strftime('%X')} {Path(script).stem}:", *what, file=sys.stderr, flush=True)


def in_child(script: str, *arguments: str, python: str | Path = "", **environment: str) -> Any:
    """What `script --measure arguments` prints as JSON, in a fresh process on one thread."""
    command = [str(python or sys.executable), script, "--measure", *arguments]
    tell(script, *(argument for argument in arguments if not Path(argument).is_dir()))
    done = subprocess.run(
        command,
        env={**os.environ, **ONE_THREAD, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == ABSENT:
        raise AbsentError(done.stderr.strip().splitlines()[-1])
    if done.returncode:
        raise RuntimeError(f"{Path(script).name} {arguments}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def peer_python(peer: str) -> Path:
    """The interpreter of a peer's own environment, made by `make peers`."""
    python = PEERS / peer / "bin" / "python"
    reason = PEERS / f"{peer}.absent"
    if reason.exists():
        raise AbsentError(reason.read_text(encoding="utf-8").strip())
    if not python.exists():
        raise AbsentError("absent: not installed (make peers)")
    return python


# --- the machine ----------------------------------------------------------------------------------


def machine() -> Row:
    """What a reader needs to know of it; no names."""
    import numpy as np

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(pages / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "blas": f"{blas['name']} {blas['version']}",
        "load": round(os.getloadavg()[0], 1),
        "packages": {name: _version(name) for name in PACKAGES if _version(name)},
    }


def _processor() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    if found := re.search(r"^model name\s*:\s*(.+)$", text, re.M):
        return found[1]
    try:  # ARM says its parts by number there, and lscpu knows their names
        listed = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout  # noqa: S607
    except (OSError, subprocess.CalledProcessError):
        return platform.machine()
    found = re.search(r"^Model name:\s*(.+)$", listed, re.M)
    return found[1] if found else platform.machine()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def peer_versions() -> dict[str, str]:
    """The version of every peer, or why it is absent."""
    code = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"
    found = {}
    for peer in OF_PEERS:
        try:
            python = sys.executable if peer == "scikit-learn" else str(peer_python(peer))
        except AbsentError as absent:
            found[peer] = str(absent)
            continue
        done = subprocess.run(
            [python, "-c", code, peer], capture_output=True, text=True, check=False
        )
        found[peer] = done.stdout.strip() or "absent: broken environment"
    return found | {"policytree": _of_policytree()}


def _of_policytree() -> str:
    """Its version, from R."""
    try:
        done = subprocess.run(
            ["Rscript", "-e", 'cat(format(packageVersion("policytree")))'],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "absent: not installed"
    return done.stdout


# --- in and out -----------------------------------------------------------------------------------


def options(doc: str, **own: tuple[str, ...] | type) -> Options:
    """The command line that all scripts share, and a script's own flags.

    Each of those takes one or more of some texts, or values of a type.
    """
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="sizes that take seconds, to try it")
    parser.add_argument("--most", type=int, metavar="N", help="no sizes above this")
    parser.add_argument("--out", type=Path, default=RESULTS, help="a folder for the results")
    parser.add_argument("--measure", nargs="+", default=[], help=argparse.SUPPRESS)
    for flag, what in own.items():
        kind = {"type": what}
        if isinstance(what, tuple):
            kind = {"type": type(what[0]), "choices": what}
        parser.add_argument(f"--{flag}", nargs="+", default=[], **kind)
    given = parser.parse_args()
    chosen = {flag: tuple(getattr(given, flag)) for flag in own}
    return Options(given.quick, given.most, given.out, given.measure, chosen)


def command_of(script: str, given: Options) -> str:
    """What makes these results again."""
    return f"python benchmarks/{Path(script).stem}.py{given.said}"


def kept_rows(script: str, given: Options, table: int = 0) -> list[Row]:
    """The rows of a table as it was measured before, with the command that did; or none."""
    path = given.out / f"{Path(script).stem}.json"
    if not path.exists():
        return []
    content = json.loads(path.read_text("utf-8"))
    return [{"command": content["command"]} | row for row in content["tables"][table]["rows"]]


def write(script: str, given: Options, *tables: Table, peers: bool = False) -> None:
    """Print the tables, and keep them with the commands, the date and the machine.

    Rows that other commands measured before have these commands.
    """
    name, this = Path(script).stem, command_of(script, given)
    rows = [row for table in tables for row in table.rows]
    if any("command" in row for row in rows):
        for row in rows:
            row.setdefault("command", this)
    others = [row["command"] for row in rows if row.get("command", this) != this]
    content: Row = {
        "command": "\n    ".join(dict.fromkeys([*others, this])),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine() | ({"peers": peer_versions()} if peers else {}),
        "tables": [asdict(table) for table in tables],
    }
    path = given.out / f"{name}.json"
    write_atomically(path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
    from readme import table_lines  # what is printed is what the page will have

    for table in content["tables"]:
        print(*table_lines(table), "", sep="\n")
