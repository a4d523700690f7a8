"""The cost of a real federation: the same study in process, and over Flower on this machine.

Three made-up hospitals run in one process, and with a SuperLink and three SuperNodes on the same
cores, with TLS and keys. They learn by the exact solver and by five rounds of local steps. The
results are the same, byte for byte. A round trip over Flower is a poll every three seconds and a
new process at every client, with all its imports. Clients on machines of their own do not share
cores. Seconds are medians of five runs, in turns.
"""

import shutil
import tempfile
import time
from pathlib import Path

from harness import Column, Options, Row, Table, options, spread, tell, write

import fedopl
from fedopl.client.client_file import read_clients
from fedopl.demo.three_hospitals import three_hospitals
from fedopl.engines.flower_up import run_over_flower
from fedopl.results.record import Record

ROUNDS = 5
PLAN = f"""
[policy]
oracle = "csoaa-sgd"

[plan]
rounds = {ROUNDS}
"""
STUDIES = {"csoaa-exact": "", f"csoaa-sgd, {ROUNDS} rounds": PLAN}


IN_PROCESS, FLOWER = "in process", "Flower, 127.0.0.1"


def once(name: str, settings: str) -> dict[str, Row]:
    """The study in process, and over Flower, once each."""
    tell(__file__, name)
    with tempfile.TemporaryDirectory() as folder:
        study = three_hospitals().write(Path(folder) / "hospitals")
        study.write_text(study.read_text() + settings)
        again = shutil.copytree(study.parent, Path(folder) / "again") / study.name
        plain, over = Path(folder) / "plain", Path(folder) / "over flower"
        start = time.perf_counter()
        record: Record = fedopl.run(study, study.parent / "clients", out=plain)
        found = {IN_PROCESS: {"seconds": time.perf_counter() - start, **sizes(record)}}
        record, started, seconds = learned_over_flower(again, over)
        found[FLOWER] = {"seconds": seconds, "start": started, **sizes(record)}
        if (plain / "policy.json").read_bytes() != (over / "policy.json").read_bytes():
            raise AssertionError(f"{name}: another policy over Flower than in process")
    return found


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


def sizes(record: Record) -> Row:
    """Exchanges, trips and bytes of a run, per client."""
    n_clients = len(record.mixture)
    return {
        "exchanges": len(record.rounds),
        "trips": record.rounds[-1].trip + 1,
        "sent_kb": sum(latest.bytes_received for latest in record.rounds) / n_clients / 1024,
        "received_kb": sum(latest.bytes_sent for latest in record.rounds) / n_clients / 1024,
    }


COLUMNS = (
    Column("study", "{study}", text=True),
    Column("engine", "{engine}", text=True),
    Column("exchanges", "{exchanges}"),
    Column("trips", "{trips}"),
    Column("a client sends", "{sent_kb:.1f} KB"),
    Column("it receives", "{received_kb:.1f} KB"),
    Column("start, s", "{start:.0f}"),
    Column("run, s", "{median:.1f}"),
    Column("least – most", "{least:.1f} – {most:.1f}", text=True),
    Column("a trip, s", "{trip:.2f}"),
)


def main(given: Options) -> None:
    """Measure and write."""
    names = list(STUDIES)[:1] if given.quick else list(STUDIES)
    runs = [{name: once(name, STUDIES[name]) for name in names} for _ in range(given.turns())]
    rows = []
    for name in names:
        for engine in (IN_PROCESS, FLOWER):
            done = [run[name][engine] for run in runs]
            row = {"study": name, "engine": engine, **done[0], **spread(d["seconds"] for d in done)}
            rows.append(row | {"trip": row["median"] / row["trips"]})
    write(__file__, given, Table(COLUMNS, rows))


if __name__ == "__main__":
    main(options(__doc__))
