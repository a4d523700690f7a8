"""What a real federation costs: the same study in process, over HTTPS and over Flower.

Three made-up hospitals in one process; with a server, which is this process, and three nodes that
dial in over HTTPS, each a process of its own; and with a SuperLink and three SuperNodes. All share
the cores of this machine, and all but the first use TLS and keys. The study is learned by the exact
solver, and what is learned is the same, byte for byte. *Start* is until everybody is there, which
is mostly imports. *Run* is from then to the written record. Over HTTPS a trip is two requests on a
connection that is open. Over Flower, a node looks for messages every three seconds, which is
Flower's and cannot be set, and starts a process for each: a fork of one that has imported Flower
and fedopl. Of the start, the imports of the SuperLink, of three SuperNodes and of what each of them
starts are Flower's. Seconds are medians of the turns; the ratio is to HTTPS in the same turns.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import Column, Options, Row, Table, options, spread, tell, write

import fedopl
from fedopl.client.client_file import read_clients
from fedopl.demo.hospitals import three_hospitals
from fedopl.engines.flower.flower_study import run_over_flower
from fedopl.engines.flower.local_federation import free_port
from fedopl.engines.https.https_server import HttpsTransport, run_over_https
from fedopl.engines.network.certificates import make_certificates, make_client_certificate
from fedopl.results.record import Record

HOST, NAMES = "127.0.0.1", ("north", "south", "west")
IN_PROCESS, HTTPS, FLOWER = "in process", "HTTPS, 127.0.0.1", "Flower, 127.0.0.1"
NODE = "from fedopl.cli.app import main; main()"
PATIENCE = 120.0


def once() -> dict[str, Row]:
    """The study in process, over HTTPS and over Flower, once each."""
    found: dict[str, Row] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        written = three_hospitals().write(folder / "hospitals")
        policies = set()
        for engine, learned in ENGINES.items():
            tell(__file__, engine)
            study = Path(shutil.copytree(written.parent, folder / engine[:5])) / written.name
            record, started, seconds = learned(study, study.parent / "run")
            found[engine] = {"seconds": seconds, **sizes(record)}
            found[engine] |= {} if started is None else {"start": started}
            policies.add((study.parent / "run" / "policy.json").read_bytes())
        if len(policies) > 1:
            raise AssertionError("another policy over a network than in process")
    return found


def in_process(study: Path, out: Path) -> tuple[Record, float | None, float]:
    """The record, and the seconds of the run."""
    start = time.perf_counter()
    record: Record = fedopl.run(study, study.parent / "clients", out=out)
    return record, None, time.perf_counter() - start


def over_https(study: Path, out: Path) -> tuple[Record, float | None, float]:
    """The record, the seconds until everybody was there, and those of the run."""
    keys, port = study.parent / "keys", free_port()
    make_certificates(keys, [HOST])
    for name in NAMES:
        make_client_certificate(keys, name)
    start = time.perf_counter()
    there: list[float] = []
    waiting = HttpsTransport.wait_for_all

    def noted(self: HttpsTransport, seconds: float) -> None:
        waiting(self, seconds)
        there.append(time.perf_counter())

    command = [sys.executable, "-c", NODE, "node"]
    nodes = [
        subprocess.Popen(
            [
                *(*command, str(study.parent / "clients" / name)),
                *("--server", f"https://{HOST}:{port}"),
                *("--study", str(study), "--certificates", str(keys)),
            ],
            stderr=subprocess.DEVNULL,
        )
        for name in NAMES
    ]
    HttpsTransport.wait_for_all = noted  # type: ignore[method-assign]
    try:
        listen = f"{HOST}:{port}"
        record = run_over_https(study, certificates=keys, listen=listen, out=out)
        done = time.perf_counter()
    finally:
        HttpsTransport.wait_for_all = waiting  # type: ignore[method-assign]
        for node in nodes:
            node.wait(PATIENCE)
    return record, there[0] - start, done - there[0]


def over_flower(study: Path, out: Path) -> tuple[Record, float | None, float]:
    """The record, the seconds until everybody was started, and those of the run."""
    told = []
    record = run_over_flower(
        study,
        read_clients(study.parent / "clients"),
        out=out,
        tell=lambda _text: told.append(time.perf_counter()),
    )
    starting, submitted, *_, stopped = told
    return record, submitted - starting, stopped - submitted


ENGINES = {IN_PROCESS: in_process, HTTPS: over_https, FLOWER: over_flower}


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
    Column("transport", "{engine}", text=True),
    Column("exchanges", "{exchanges}"),
    Column("trips", "{trips}"),
    Column("a client sends", "{sent_kb:.1f} KB"),
    Column("it receives", "{received_kb:.1f} KB"),
    Column("start, s", "{start:.1f}"),
    Column("run, s", "{median:.2f}"),
    Column("least – most", "{least:.2f} – {most:.2f}", text=True),
    Column("a trip, s", "{trip:.2f}"),
    Column("run, of HTTPS", "{ratio:.2f}×"),
)


def main(given: Options) -> None:
    """Measure and write."""
    (turns,) = given.chosen["turns"] or (given.turns(3),)
    runs = [once() for _ in range(turns)]
    rows = []
    for engine in ENGINES:
        done = [run[engine] for run in runs]
        row = {"engine": engine, **done[0], **spread(d["seconds"] for d in done)}
        rows.append(row | {"trip": row["median"] / row["trips"]})
    for row in rows:
        row["ratio"] = row["median"] / rows[1]["median"]
    write(__file__, given, Table(COLUMNS, rows))


if __name__ == "__main__":
    main(options(__doc__, turns=int))
