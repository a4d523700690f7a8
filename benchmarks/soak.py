"""Two hundred clients over HTTPS on 127.0.0.1, killed at random: nothing is lost.

Clients with keys and certificates of their own dial in over mutual TLS, from threads of one
process. They are killed at random: while they wait, when an answer is made and not posted, and when
it was posted. What a killed client had in memory is gone, but for its ledger and its store, which
stand for its disk; it starts again at once. The server is a process of its own. It is killed with
SIGKILL at random moments and started again on the same port, where it goes on from its journal.
Runs follow each other until the minutes are over. Each has to end with the policy and the values of
the undisturbed run in process, to the bit, and with an answer of every client on every trip.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import httpx
import numpy as np
from harness import Column, Options, Row, Table, options, tell, write

import fedopl
from fedopl.client.disclosure.ledger import MemoryLedger
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.disk.store import MemoryStore
from fedopl.client.door import Door
from fedopl.engines.flower.local_federation import free_port
from fedopl.engines.https.https_node import HttpsNode
from fedopl.engines.https.https_protocol import NEXT, client_context
from fedopl.engines.https.https_server import HttpsTransport
from fedopl.engines.in_process import InProcess
from fedopl.engines.network.certificates import make_certificates, make_client_certificate
from fedopl.messages.bundle import largest_bundle
from fedopl.messages.derived_sizes import largest_answer, largest_query
from fedopl.policies.policy import policy_json
from fedopl.results.record import Record
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange.journal import Journal
from fedopl.server.federation import run_study

HOST = "127.0.0.1"
MINUTES, CLIENTS, ROWS = 10.0, 200, 80
SERVER_LIVES = (1.0, 6.0)  # seconds after it listens, at random, until it is killed
SERVER_KILLS = 4  # of each run
CHANCE = 0.03  # of a client's death, at each of its steps
PATIENCE = 600.0
STUDY = fedopl.Study(
    actions=("a0", "a1", "a2"),
    features=("x0", "x1", "x2"),
    policy=fedopl.Linear(
        oracle="csoaa-sgd", training=fedopl.TrainingPlan(rounds=10, local_steps=4, batch_size=16)
    ),
    nuisances=fedopl.NuisancePlan(propensity="marginal", folds=2),
)


class KilledError(Exception):
    """The end of a client, wherever it is."""


class Mortal(HttpsNode):
    """A node that dies at random steps."""

    chances = random.Random()  # noqa: S311
    killed: ClassVar[Counter[str]] = Counter()

    def _perhaps_die(self, where: str) -> None:
        if self.chances.random() < CHANCE:
            self.killed[where] += 1
            raise KilledError(where)

    def _turn(self, http: httpx.Client) -> bool:
        if not self._unsent and self.chances.random() < CHANCE:
            with suppress(httpx.HTTPError):
                http.get(NEXT, timeout=self.chances.uniform(0.01, 0.5))
            self.killed["while it waited"] += 1
            raise KilledError
        return super()._turn(http)

    def _take(self, headers: httpx.Headers, content: bytes) -> None:
        super()._take(headers, content)
        self._perhaps_die("before it posted")

    def _post(self, http: httpx.Client) -> None:
        super()._post(http)
        self._perhaps_die("after it posted")


def names_of(n_clients: int) -> list[str]:
    """The clients' names."""
    return [f"client-{turn:03d}" for turn in range(n_clients)]


def rows_of(turn: int) -> fedopl.LoggedData:
    """A client's rows."""
    rng = np.random.default_rng(turn)
    contexts = rng.standard_normal((ROWS, 3))
    actions = rng.integers(0, 3, ROWS)
    rewards = actions * contexts[:, 0] + rng.standard_normal(ROWS)
    return fedopl.LoggedData(contexts, actions, rewards, action_names=["a0", "a1", "a2"])


def doors_of(n_clients: int) -> dict[str, Callable[[], Door]]:
    """What opens each client's door, again after every death, with its ledger and its store."""

    def opening(name: str, turn: int) -> Callable[[], Door]:
        data, store, ledger = rows_of(turn), MemoryStore(), MemoryLedger()
        return lambda: Door(name, data, STUDY, store=store, ledger=ledger, secret=SEED_ALONE)

    return {name: opening(name, turn) for turn, name in enumerate(names_of(n_clients))}


def text_of(record: Record) -> str:
    """Everything a run came to, exactly; an error where an answer is missing."""
    for latest in record.rounds:
        if latest.answered != latest.asked:
            raise AssertionError(f"{latest.query}: {latest.silent} did not answer")
    tables = (record.values.rows, record.gains.rows)
    return f"{policy_json(record.policy)}\n{tables!r}\n{len(record.rounds)}\n"


def serve(keys: str, journal: str, port: str, result: str) -> None:
    """The server's process: it runs the study, or goes on with it, and writes the result."""
    largest = largest_bundle(largest_answer(STUDY))
    with HttpsTransport(Path(keys), (HOST, int(port)), deadline=120.0, largest=largest) as road:
        road.wait_for_all(120.0)
        record = run_study(Conversation(STUDY, road, Journal(Path(journal))))
        Path(result).write_text(text_of(record))
        road.end()


def live(url: str, keys: Path, name: str, opened: Callable[[], Door]) -> None:
    """One client: it lives until it is killed or the run is over, and is started again."""
    context, largest = client_context(keys, name), largest_bundle(largest_query(STUDY))
    while True:
        with suppress(KilledError):
            door = opened()
            answer = lambda asked, _within, door=door: door.handle(asked)  # noqa: E731
            Mortal(url, context, answer, largest, PATIENCE, lambda _text: None).run()
            return


def disturbed(
    keys: Path, folder: Path, n_clients: int, chances: random.Random, most_kills: int
) -> Row:
    """One run with kills; the result is in the folder."""
    port, started, n_killed = free_port(), time.monotonic(), 0
    Mortal.killed.clear()
    threads = [
        threading.Thread(
            target=live, args=(f"https://{HOST}:{port}", keys, name, opened), daemon=True
        )
        for name, opened in doors_of(n_clients).items()
    ]
    for thread in threads:
        thread.start()
    command = [sys.executable, __file__, "--measure", str(keys), str(folder / "journal")]
    is_over = False
    while not is_over:  # not even if the result is there: a server killed then has told nobody
        server = subprocess.Popen([*command, str(port), str(folder / "result")])
        try:
            if n_killed < most_kills:
                wait_until_it_listens(server, port)
                server.wait(chances.uniform(*SERVER_LIVES))
            else:
                server.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.kill(server.pid, signal.SIGKILL)
            server.wait()
            n_killed += 1
            continue
        if server.returncode:
            raise AssertionError(f"the server ended with {server.returncode}")
        is_over = True
    for thread in threads:
        thread.join(60.0)
    if any(thread.is_alive() for thread in threads):
        raise AssertionError("a client did not hear that the run is over")
    trips = len(list((folder / "journal").glob("*.bin")))
    return {"seconds": time.monotonic() - started, "server": n_killed, "trips": trips} | {
        where: Mortal.killed[where] for where in KILLS
    }


def wait_until_it_listens(server: subprocess.Popen[bytes], port: int) -> None:
    """Until somebody can connect there."""
    while server.poll() is None:
        with suppress(OSError):
            socket.create_connection((HOST, port), 1.0).close()
            return
        time.sleep(0.1)


KILLS = ("while it waited", "before it posted", "after it posted")
COLUMNS = (
    Column("clients", "{clients}"),
    Column("runs", "{runs}"),
    Column("trips", "{trips}"),
    Column("minutes", "{minutes:.1f}"),
    Column("server killed", "{server}"),
    *(Column(f"client killed {where}", f"{{{where}}}") for where in KILLS),
    Column("answers lost", "{lost}"),
    Column("results that differ", "{differ}"),
)


def main(given: Options) -> None:
    """Run until the minutes are over, and write."""
    (minutes,) = given.chosen["minutes"] or (MINUTES,)
    n_clients = given.most or (20 if given.quick else CLIENTS)
    most_kills = 1 if given.quick else SERVER_KILLS
    end = time.monotonic() + 60 * (0.1 if given.quick else minutes)
    started, chances, runs = time.monotonic(), random.Random(0), []  # noqa: S311
    Mortal.chances = random.Random(1)  # noqa: S311
    doors = {name: opened() for name, opened in doors_of(n_clients).items()}
    expected = text_of(run_study(Conversation(STUDY, InProcess(doors))))
    with tempfile.TemporaryDirectory() as temporary:
        keys = Path(temporary) / "keys"
        make_certificates(keys, [HOST])
        for name in names_of(n_clients):
            make_client_certificate(keys, name)
        while not runs or time.monotonic() < end:
            folder = Path(temporary) / f"run-{len(runs)}"
            folder.mkdir()
            runs.append(disturbed(keys, folder, n_clients, chances, most_kills))
            tell(__file__, str(runs[-1]))
            if (folder / "result").read_text() != expected:
                raise AssertionError("another result than undisturbed")
    counted = ("server", "trips", *KILLS)
    row: Row = {name: sum(run[name] for run in runs) for name in counted}
    row |= {"clients": n_clients, "runs": len(runs), "lost": 0, "differ": 0}
    row["minutes"] = (time.monotonic() - started) / 60
    write(__file__, given, Table(COLUMNS, [row]))


if __name__ == "__main__":
    asked = options(__doc__, minutes=float)
    if asked.measure:
        serve(*asked.measure)
    else:
        main(asked)
