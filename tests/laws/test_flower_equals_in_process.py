"""Law 1, over a real SuperLink and three SuperNodes: one federation, looked at from all sides."""

import json
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import fedopl
from fedopl.demo.hospitals import three_hospitals
from watching import processes_of, sockets_of

pytest.importorskip("flwr")

FEDOPL = Path(sys.executable).with_name("fedopl")
NAMES = ("north", "south", "west")
MOST_SECONDS = 240
SECRET = "dc365e79d41cfae1c3c0d969319ae62165b81b1815a86c32bbc6c64cbdf2311b"


@dataclass
class Watched:
    """A finished run, and what was seen while it ran."""

    study: Path
    out: Path
    code: int
    said: str
    sockets: set = field(default_factory=set)
    most_processes: int = 0
    events: list = field(default_factory=list)  # of the page that --serve serves
    report: bytes = b""  # what that page turned into

    @property
    def clients(self):
        return self.study.parent / "clients"

    def at_the_server(self):
        """Every file that the server's side wrote or was given."""
        own = {f"node-{name}.log" for name in NAMES} | {f"{name}.key" for name in NAMES}
        files = [path for path in self.out.rglob("*") if path.is_file() and path.name not in own]
        assert any(path.name == "superlink.log" for path in files)
        assert any(path.suffix == ".bin" for path in files)
        return files


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    folder = tmp_path_factory.mktemp("federation")
    study = three_hospitals().write(folder / "three hospitals")
    settings = study.parent / "clients/north/client.toml"
    with_secret, n_replaced = re.subn('secret = ".*"', f'secret = "{SECRET}"', settings.read_text())
    assert n_replaced == 1
    settings.write_text(with_secret)
    shutil.copytree(study.parent, folder / "untouched")
    out = folder / "run"
    command = [FEDOPL, "flower", "up", study, "--clients", study.parent / "clients", "--out", out]
    with (folder / "said").open("w") as said:
        process = subprocess.Popen(
            [*command, "--json", "--serve"], stdout=said, stderr=subprocess.STDOUT
        )
        seen = Watched(study, out, -1, "")
        reader = threading.Thread(target=follow, args=(process, folder / "said", seen))
        reader.start()
        try:
            watch(process, seen)
        finally:
            process.terminate()
            process.wait(60)
            reader.join()
    seen.code, seen.said = process.returncode, (folder / "said").read_text()
    return seen


def follow(process, said, seen):
    """Read the page of the run to its end, and then the report, so that the command ends."""
    while not (found := re.search(r"http://\S+/", said.read_text())):
        if process.poll() is not None:
            return
        time.sleep(0.2)
    with suppress(OSError), urllib.request.urlopen(f"{found[0]}events", timeout=60) as stream:
        for line in stream:
            if line.startswith(b"data: "):
                seen.events.append(json.loads(line[6:]))
                if seen.events[-1]["kind"] == "go":
                    break
        with urllib.request.urlopen(f"{found[0]}report", timeout=60) as page:
            seen.report = page.read()


def watch(process, seen):
    end = time.monotonic() + MOST_SECONDS
    while process.poll() is None and time.monotonic() < end:
        running = processes_of(seen.out / "flower")
        seen.sockets |= sockets_of(running)
        seen.most_processes = max(seen.most_processes, len(running))
        time.sleep(0.5)


def test_the_command_ends_well_and_says_so_in_json(watched):
    assert watched.code == 0, watched.said
    content = json.loads(watched.said[watched.said.index("{") :])
    assert Path(content["report"]).is_file()
    assert set(content["mixture"]) == set(NAMES)


def test_flower_and_in_process_learn_the_same_policy_bit_for_bit(watched, tmp_path):
    untouched = watched.out.with_name("untouched")
    run = fedopl.run(untouched / "study.toml", untouched / "clients", out=tmp_path)
    for name in ("policy.json", "values.csv", "gains.csv", "study.json", "sums.npz"):
        assert (watched.out / name).read_bytes() == (tmp_path / name).read_bytes(), name
    over_flower = fedopl.load_run(watched.out)
    assert over_flower.rounds == run.rounds


def test_the_page_shows_every_exchange_that_the_record_holds_and_turns_into_the_report(watched):
    assert watched.report == (watched.out / "report.html").read_bytes()
    rows = [event for event in watched.events if event.get("id") == "exchanges"]
    rounds = fedopl.load_run(watched.out).rounds
    assert {int(event["key"]) for event in rows} == {one.exchange for one in rounds}
    assert not (watched.out / "progress.jsonl").exists()


def test_an_exact_study_takes_three_trips(watched):
    record = fedopl.load_run(watched.out)
    assert record.study.linear.oracle == "csoaa-exact"
    assert record.rounds[-1].trip + 1 == 3
    assert len(list((watched.out / "exchanges").glob("trip-*"))) == 3


def test_nothing_is_left_running(watched):
    assert watched.most_processes >= 1 + len(NAMES)
    assert processes_of(watched.out / "flower") == {}


def test_nobody_listens_to_or_speaks_with_another_machine(watched):
    assert any(socket.listens for socket in watched.sockets)
    assert {socket.here for socket in watched.sockets} == {"127.0.0.1"}
    assert {s.there for s in watched.sockets if not s.listens} == {"127.0.0.1"}


def test_nothing_of_a_clients_file_reaches_the_server(watched):
    private = [SECRET, "client.toml", str(watched.clients), "discharges", "export.csv"]
    private += ["age_years", "egfr", "household", "home30", "minimum_cell = 10"]
    for path in watched.at_the_server():
        content = path.read_bytes()
        assert not [word for word in private if word.encode() in content], path


def test_what_left_each_client_is_in_its_own_ledger(watched):
    rounds = fedopl.load_run(watched.out).rounds
    for name in NAMES:
        lines = (watched.clients / name / "ledger.jsonl").read_text().splitlines()
        entries = [json.loads(line) for line in lines]
        assert [entry["exchange"] for entry in entries] == [r.exchange for r in rounds]
        assert [entry["n_bytes"] for entry in entries] == [r.received[name] for r in rounds]
