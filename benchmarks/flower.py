"""What a real federation costs: the same study in process, and over Flower on this machine.

    python benchmarks/flower.py [--write]

The three hospitals of `fedopl demo`, learned by the exact solver and by five rounds of local steps;
in process, and by a SuperLink and three SuperNodes with TLS and keys. Both learn the same bytes.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import fedopl
from fedopl.client.client_file import read_clients
from fedopl.demo.hospitals import hospitals
from fedopl.engines.flower_up import run_over_flower
from fedopl.files import write_between
from fedopl.server.record import Record

ROUNDS = 5
PLAN = f"""
[policy]
oracle = "csoaa-sgd"

[plan]
rounds = {ROUNDS}
"""
STUDIES = {"csoaa-exact": "", f"csoaa-sgd, {ROUNDS} rounds": PLAN}


def compared(name: str, settings: str) -> list[str]:
    """Two rows of the table: the study in process, and over Flower."""
    with tempfile.TemporaryDirectory() as folder:
        study = hospitals().write(Path(folder) / "hospitals")
        study.write_text(study.read_text() + settings)
        again = shutil.copytree(study.parent, Path(folder) / "again") / study.name
        plain, over = Path(folder) / "plain", Path(folder) / "over flower"
        start = time.perf_counter()
        record: Record = fedopl.run(study, study.parent / "clients", out=plain)
        seconds = time.perf_counter() - start
        rows = [row(name, "in process", record, 0.0, seconds)]
        record, started, seconds = learned_over_flower(again, over)
        rows.append(row(name, "Flower, 127.0.0.1", record, started, seconds))
        if (plain / "policy.json").read_bytes() != (over / "policy.json").read_bytes():
            raise AssertionError(f"{name}: another policy over Flower than in process")
    return rows


def learned_over_flower(study: Path, out: Path) -> tuple[Record, float, float]:
    """The record, the seconds until everybody was started, and those of the run."""
    told = []
    record = run_over_flower(
        study,
        read_clients(study.parent / "clients"),
        out=out,
        arrival=120.0,
        deadline=120.0,
        tell=lambda _text: told.append(time.perf_counter()),
    )
    starting, submitted, *_, stopped = told
    return record, submitted - starting, stopped - submitted


def row(name: str, engine: str, record: Record, started: float, seconds: float) -> str:
    """One row of the table."""
    n_clients, n_trips = len(record.mixture), record.rounds[-1].trip + 1
    received = sum(latest.bytes_received for latest in record.rounds) / n_clients / 1024
    sent = sum(latest.bytes_sent for latest in record.rounds) / n_clients / 1024
    start = f"{started:.0f}" if started else ""
    return (
        f"| {name} | {engine} | {len(record.rounds)} | {n_trips} | {received:.1f} KB | "
        f"{sent:.1f} KB | {start} | {seconds:.1f} | {seconds / n_trips:.2f} |"
    )


def table() -> list[str]:
    """The table as Markdown."""
    head = "study | engine | exchanges | trips | a client sends | it receives | start, s | run, s"
    rows = [line for name, settings in STUDIES.items() for line in compared(name, settings)]
    return [f"| {head} | a trip, s |", "|---|---|---:|---:|---:|---:|---:|---:|---:|", *rows]


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="update benchmarks/README.md")
    options = parser.parse_args()
    lines = table()
    print("\n".join(lines))
    if options.write:
        write_between(Path(__file__).with_name("README.md"), "flower", lines)


if __name__ == "__main__":
    main()
