"""Law 1 over HTTPS: the same bytes as in one process, whoever is killed on the way."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import fedopl
from fedopl.base.errors import FederationError
from fedopl.client.client_file import read_client
from fedopl.engines.flower.local_federation import free_port
from fedopl.engines.https.https_server import run_over_https
from fedopl.engines.network.remote_doors import RemoteDoors
from fedopl.server.exchange.journal import Journal
from fedopl.study.study_file import read_study
from https_federation import HOST, SOON, in_threads, make_keys, nodes_of
from tiny_study import NAMES, Tiny, rows, write_csv, write_tiny
from watching import wait_until

pytestmark = pytest.mark.usefixtures("without_figures")

SCREENED = """
[basis]
screened_pairs = 1
knots = { age = [50, 60, 70], severity = [1, 2, 3] }
"""
SPLITS = "\n[evaluation]\nsplits = 2\n"
TREE = '\n[policy]\nkind = "tree"\n\n[tree]\ndepth = 2\nbins = 8\n'
# Times are those of one run alone, and over a network no server has the clients' ledgers.
OF_ONE_RUN = {"run.json", "report.html", "ledger.jsonl"}


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("keys"), NAMES)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("law") / "tiny")


@pytest.fixture(scope="module")
def in_process(tiny):
    return results_in_process(tiny)


def results_in_process(tiny):
    again = copied(tiny, tiny.folder.with_name("in-process"))
    fedopl.run(again.study, again.clients, out=again.out)
    return results_of(again.out)


def copied(tiny, folder):
    return Tiny(Path(shutil.copytree(tiny.folder, folder)))


def results_of(out):
    return {
        path.name: path.read_bytes()
        for path in out.iterdir()
        if path.is_file() and path.name not in OF_ONE_RUN
    }


def served(tiny, keys, port, *, resume=False, **options):
    return run_over_https(
        tiny.study,
        certificates=keys,
        listen=f"{HOST}:{port}",
        out=tiny.out,
        resume=resume,
        **{"arrival": SOON, "deadline": SOON, **options},
    )


def test_every_file_has_the_bytes_of_a_run_in_process(tiny, keys, in_process, tmp_path):
    own, port = copied(tiny, tmp_path / "tiny"), free_port()
    told = []
    with in_threads(*nodes_of(own, keys, f"https://{HOST}:{port}", NAMES)):
        served(own, keys, port, tell=told.append)
    assert results_of(own.out) == in_process
    assert told == [f"https://{HOST}:{port}: waiting for north, south, west"]


@pytest.mark.parametrize("more", [SCREENED, SPLITS], ids=["screened", "two splits"])
def test_studies_that_become_others_have_the_same_bytes(tiny, keys, tmp_path, more):
    own, port = copied(tiny, tmp_path / "tiny"), free_port()
    own.add(more)
    for seed, name in enumerate(NAMES):
        write_csv(own.table(name), rows(n_rows=600, seed=seed))
    expected = results_in_process(own)
    with in_threads(*nodes_of(own, keys, f"https://{HOST}:{port}", NAMES)):
        served(own, keys, port)
    assert results_of(own.out) == expected


@pytest.mark.parametrize("more", ["", TREE], ids=["linear", "tree"])
def test_a_node_that_is_started_anew_at_every_question_changes_nothing(
    tiny, keys, in_process, tmp_path, monkeypatch, more
):
    """As after every kill, and as Flower does: it reads its files again, and forgets all else."""
    own, port = copied(tiny, tmp_path / "tiny"), free_port()
    own.add(more)
    expected = results_in_process(own) if more else in_process

    def forgetful(self, content, _within):
        client, (agreed, _) = read_client(self.client.path), read_study(own.study)
        new = RemoteDoors(client, agreed, self.asker, print)
        return new._door_for(content).handle(content)

    monkeypatch.setattr(RemoteDoors, "handle", forgetful)
    with in_threads(*nodes_of(own, keys, f"https://{HOST}:{port}", NAMES)):
        served(own, keys, port)
    assert results_of(own.out) == expected


class KilledError(Exception):
    """Stands for SIGKILL, in a test that is one process."""


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.slow_law)])
def test_a_server_killed_around_each_trip_goes_on_with_the_same_clients(
    tiny, keys, in_process, tmp_path, monkeypatch, when
):
    own, port = copied(tiny, tmp_path / "tiny"), free_port()
    whole, kept = Journal.keep, []

    def dies(self, trip, queries, replies):
        if when == "after":
            whole(self, trip, queries, replies)
        if trip not in kept:  # once each
            kept.append(trip)
            raise KilledError
        whole(self, trip, queries, replies)

    monkeypatch.setattr(Journal, "keep", dies)
    n_killed = 0
    with in_threads(*nodes_of(own, keys, f"https://{HOST}:{port}", NAMES)):
        while True:
            try:
                served(own, keys, port, resume=n_killed > 0)
                break
            except KilledError:
                n_killed += 1
    assert n_killed == len(kept) > 1
    assert results_of(own.out) == in_process


def test_who_never_comes_is_missed_and_the_others_go_on(tiny, keys, tmp_path):
    own, port = copied(tiny, tmp_path / "tiny"), free_port()
    with in_threads(*nodes_of(own, keys, f"https://{HOST}:{port}", NAMES[:2])):
        record = served(own, keys, port, arrival=1.5, deadline=3.0)
    assert record.rounds[0].silent == ("west",)
    assert sorted(record.mixture) == ["north", "south"]


def test_a_run_that_failed_is_not_over_for_its_clients(tiny, keys, tmp_path):
    """It may be gone on with, so they wait for that, as long as their patience lasts."""
    own, port = copied(tiny, tmp_path / "tiny"), free_port()
    (lonely,) = nodes_of(own, keys, f"https://{HOST}:{port}", ["north"], patience=1)
    given_up = []

    def until_given_up():
        with pytest.raises(FederationError) as error:
            lonely()
        given_up.append(str(error.value))

    with in_threads(until_given_up), pytest.raises(FederationError, match="west: no answer"):
        served(own, keys, port, arrival=1.0, deadline=1.0)
    assert "west: no answer" in (own.out / "failed.txt").read_text()
    assert "no answer for 1 s" in given_up[0]


@pytest.mark.slow_law
def test_the_command_killed_mid_run_goes_on(tiny, keys, in_process, tmp_path):
    """Real processes and signals: the server is killed after its first trip."""
    own, port = copied(tiny, tmp_path / "tiny"), free_port()
    start = "from fedopl.cli.app import main; main()"
    command = [
        *(sys.executable, "-c", start, "server", own.study, "--out", own.out),
        *("--listen", f"{HOST}:{port}", "--certificates", keys, "--json"),
    ]
    with in_threads(*nodes_of(own, keys, f"https://{HOST}:{port}", NAMES, patience=60)):
        first = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
        try:
            wait_until(lambda: list(own.out.rglob("trip-*.bin")), 60, "the first trip")
        finally:
            first.send_signal(signal.SIGKILL)
            first.wait()
        done = subprocess.run(
            [*map(str, command), "--resume"],
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
    assert done.returncode == 0, done.stderr
    assert results_of(own.out) == in_process
