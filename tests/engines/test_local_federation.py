"""One real federation to which everything happens that can happen, and what is left of it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from watching import processes_of, wait_until

pytest.importorskip("flwr")

import fedopl
from fedopl.base.errors import FederationError
from fedopl.client.client_file import read_clients
from fedopl.demo.hospitals import three_hospitals
from fedopl.engines.flower.flower_study import write_flower_app
from fedopl.engines.flower.local_federation import (
    HOST,
    POLL_SECONDS,
    STOP_SECONDS,
    LocalFederation,
    node_arguments,
    program,
)
from fedopl.engines.in_process import InProcess
from fedopl.engines.network.certificates import make_certificates, make_client_key
from fedopl.engines.run import open_clients
from fedopl.messages.message import VERSION
from fedopl.results.files.run_folder import is_finished
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from fedopl.study.study_file import read_study

FEDOPL = Path(sys.executable).with_name("fedopl")
GOOD = ("north", "south", "west")
ODD = ("another-study", "another-version", "no-trust", "unknown-key", "never-comes")
DEADLINE, PATIENCE, SWEEP_SECONDS = 70, 240, 30

SETTINGS = """
[policy]
oracle = "csoaa-sgd"

[plan]
rounds = 2
local_steps = 5
batch_size = 64
"""
CLIENT_CODE = """
import sys
from pathlib import Path

if any("flwr-clientapp" in part for part in sys.orig_argv):
{body}
    Path({mark!r}).touch()
"""
ANOTHER_VERSION = """
    import fedopl.messages.message
    fedopl.messages.message.VERSION = 99
"""
NO_FITS = """
    from fedopl.client import workspace
    from fedopl.client.rows import study_rows
    from fedopl.client.scoring import outcome, scoring_pass

    def fitted_again(*_arguments, **_options):
        raise RuntimeError("it was fitted again")

    for module, names in (
        (study_rows, ("fold_sums",)),
        (workspace, ("fit_propensities", "means_of")),
        (outcome, ("predict",)),
        (scoring_pass, ("aipw_scores",)),
    ):
        for name in names:
            getattr(module, name)
            setattr(module, name, fitted_again)
"""


class BreakableFederation(LocalFederation):
    """A federation whose parts can be killed, ended, and started with something else."""

    own_environment = None

    def _environment(self):
        usual, own = super()._environment(), self.own_environment
        if own is None or self._programs is None:
            return usual | (own or {})
        # Forks have imported what they need, so a change of PYTHONPATH comes too late for them.
        path = usual["PATH"].removeprefix(f"{self._programs.folder}{os.pathsep}")
        return {**usual, "PATH": path, **own}

    def start_node(self, name, *, study=None, ca=None, **environment):
        """With an `environment` of its own, it starts Flower's programs anew for every message."""
        ca, key = ca or self.keys / "ca.crt", self.keys / f"{name}.key"
        own = (self.clients[name], study or self.study)
        arguments = node_arguments(f"{HOST}:{self.port}", ca, key, *own)
        self.own_environment = environment or None
        supernode = (program if environment else self._program)("flower-supernode")
        with self._log(f"node-{name}") as log:
            self._start(f"node-{name}", [supernode, *arguments], log)
        self.own_environment = None

    def kill(self, part):
        """Kill one part with all its descendants, as a power cut would."""
        process = self._processes.pop(part)
        for pid in [process.pid, *self.descendants_of(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        end = time.monotonic() + STOP_SECONDS
        while self.fork_of(process.pid) is not None and time.monotonic() < end:
            time.sleep(POLL_SECONDS / 10)
        self._tell_watcher(f"-{process.pid}")

    def end(self, part):
        """Stop one part gracefully."""
        process = self._processes.pop(part)
        process.terminate()
        process.wait(STOP_SECONDS)
        self._tell_watcher(f"-{process.pid}")

    def fork_of(self, pid):
        return None if self._programs is None else self._programs.fork_of(pid)

    def descendants_of(self, pid):
        """All descendants of a process, and the forks that it and they asked for."""
        fork = self.fork_of(pid)
        children = [] if fork is None else [fork]
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            with suppress(OSError):
                children += map(int, path.read_text().split())
        return [*children, *(one for child in children for one in self.descendants_of(child))]


@dataclass
class Story:
    """The folders of the federation, and what was seen on the way."""

    folder: Path
    federation: BreakableFederation | None = None
    when_the_link_was_down: str = ""
    scores: dict = field(default_factory=dict)
    left_running: dict = field(default_factory=dict)

    @property
    def study(self):
        return self.folder / "federated" / "study.toml"

    @property
    def clients(self):
        return self.folder / "federated" / "clients"

    @property
    def out(self):
        return self.folder / "run"

    @property
    def record(self):
        return fedopl.load_run(self.out)

    def log(self, name):
        return (self.folder / "flower" / "logs" / f"node-{name}.log").read_text()

    def wait_for_trip(self, number):
        path = self.out / "exchanges" / f"trip-{number - 1:05d}.bin"
        wait_until(path.exists, PATIENCE, f"trip {number}")

    def stored_scores(self):
        return {
            path: (path.stat().st_mtime_ns, path.read_bytes())
            for name in GOOD
            for path in (self.clients / name / "scores").iterdir()
        }


def write_study(folder):
    """Three hospitals that take rounds; whoever is odd has the rows of west."""
    study = three_hospitals().write(folder)
    text = study.read_text().replace("seed = 1", "seed = 1\nquorum = 0.25")
    text = text.replace("share = 0.3", "share = 0\ndescribe = false").replace("values = true", "")
    study.write_text(text + SETTINGS)
    (folder / "another.toml").write_text(study.read_text().replace("seed = 1", "seed = 2"))
    for name in ODD:
        shutil.copytree(folder / "clients/west", folder / "clients" / name)
    return study


def code_for_clients(folder, body):
    """An environment in which a node's ClientApp is changed; nothing in the package is."""
    folder.mkdir()
    text = CLIENT_CODE.format(body=body, mark=str(folder / "was here"))
    (folder / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def start_the_odd(story):
    federation, keys = story.federation, story.federation.keys
    for name in ODD[:-1]:
        make_client_key(keys, name)
        if name != "unknown-key":
            federation.register(name)
    make_certificates(story.folder / "other keys", ["127.0.0.1"])
    version = code_for_clients(story.folder / "version", ANOTHER_VERSION)
    federation.start_node("another-study", study=story.study.with_name("another.toml"))
    federation.start_node("another-version", **version)
    federation.start_node("no-trust", ca=story.folder / "other keys" / "ca.crt")
    federation.start_node("unknown-key")


def cut_the_power(story, run):
    """The link and all nodes are gone; what Flower says then."""
    federation = story.federation
    federation.kill("superlink")
    with pytest.raises(FederationError) as down:
        federation.status(run)
    story.when_the_link_was_down = str(down.value)
    for name in (*GOOD, *ODD[:2]):
        federation.kill(f"node-{name}")


def start_again(story):
    """The link and the nodes, which may not fit anything any more."""
    environment = code_for_clients(story.folder / "no fits", NO_FITS)
    story.federation.start_superlink()
    for name in GOOD:
        story.federation.register(name)
        story.federation.start_node(name, **environment)
    return environment


def restart_while_it_answers(story, name, environment):
    heard = story.log(name).count("Receiving")
    wait_until(lambda: story.log(name).count("Receiving") > heard, PATIENCE, f"{name} is asked")
    story.federation.end(f"node-{name}")
    story.federation.start_node(name, **environment)


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    told = Story(tmp_path_factory.mktemp("story"))
    study = write_study(told.folder / "federated")
    shutil.copytree(study.parent, told.folder / "untouched")
    app = told.folder / "app"
    write_flower_app(app, study, [*GOOD, *ODD], out=told.out, arrival=1, deadline=DEADLINE)
    folders = {name: told.clients / name for name in GOOD}
    with BreakableFederation(told.folder / "flower", folders, study) as federation:
        told.federation = federation
        folders.update({name: told.clients / name for name in ODD})
        start_the_odd(told)
        run = federation.run(app)
        told.wait_for_trip(2)
        told.scores = told.stored_scores()
        cut_the_power(told, run)
        environment = start_again(told)
        federation.run(app)
        restart_while_it_answers(told, "south", environment)
        told.wait_for_trip(3)
        federation.kill("node-west")
        wait_until(lambda: is_finished(told.out), PATIENCE, "the end")
    told.left_running = processes_of(told.folder / "flower")
    return told


def rounds_of(story):
    return {latest.exchange: latest for latest in story.record.rounds}


@pytest.mark.slow_law
def test_a_node_with_another_study_is_rejected_by_name(story):
    assert rounds_of(story)[0].rejected["another-study"] == "answers for another study"


@pytest.mark.slow_law
def test_a_node_that_speaks_another_version_is_rejected_by_name(story):
    assert (story.folder / "version" / "was here").exists()
    assert rounds_of(story)[0].rejected["another-version"] == f"expected version {VERSION}, came 99"


@pytest.mark.slow_law
def test_a_node_with_an_unknown_key_is_not_let_in(story):
    assert "unknown-key" in rounds_of(story)[0].silent
    assert "Failed to activate SuperNode" in story.log("unknown-key")


@pytest.mark.slow_law
def test_a_node_that_trusts_another_authority_does_not_connect(story):
    assert "no-trust" in rounds_of(story)[0].silent
    assert "CERTIFICATE_VERIFY_FAILED" in story.log("no-trust")


@pytest.mark.slow_law
def test_a_client_that_never_comes_is_waited_for_until_the_deadline_and_recorded(story):
    assert rounds_of(story)[0].silent == ("never-comes", "no-trust", "unknown-key")


@pytest.mark.slow_law
def test_the_others_go_on_without_whoever_did_not_enrol(story):
    assert rounds_of(story)[0].answered == GOOD
    assert {latest.asked for latest in story.record.rounds[2:]} == {GOOD}


@pytest.mark.slow_law
def test_a_link_that_is_down_is_an_error_and_not_a_wait(story):
    assert "Connection to the SuperLink is unavailable" in story.when_the_link_was_down


@pytest.mark.slow_law
def test_a_run_goes_on_from_its_journal_with_another_link(story):
    assert [latest.query for latest in story.record.rounds] == [
        "Enrol",
        "SumOutcomes",
        "SumScores",
        "ImprovePolicy",
        "ImprovePolicy",
        "Value",
    ]
    assert len(list((story.out / "exchanges").glob("trip-*"))) == 5


@pytest.mark.slow_law
def test_a_node_that_is_started_anew_while_it_answers_is_asked_again(story):
    assert story.log("south").count("SuperNode ID") == 3
    assert "south" in rounds_of(story)[3].answered


@pytest.mark.slow_law
def test_later_messages_find_the_scores_and_nobody_fits_again(story):
    assert (story.folder / "no fits" / "was here").exists()
    assert rounds_of(story)[3].answered == GOOD
    assert "it was fitted again" not in "".join(map(story.log, GOOD))
    # Beside them lies what was asked first of each round; what all rows value is added to them.
    assert set(story.scores) <= set(story.stored_scores())
    assert {path.parent.parent.name for path in story.scores} == set(GOOD)


@pytest.mark.slow_law
def test_a_node_killed_in_the_middle_is_recorded_and_the_quorum_goes_on(story):
    assert rounds_of(story)[4].silent == ("west",)
    assert rounds_of(story)[4].answered == ("north", "south")


class AsItWent(InProcess):
    """Doors in this process, of which some are closed when they were silent in the story."""

    def __init__(self, doors, record):
        super().__init__(doors)
        self.answered = {latest.trip: latest.answered for latest in record.rounds}
        self.trip = 0

    @property
    def clients(self):
        return tuple(sorted([*GOOD, *ODD]))

    def exchange(self, queries):
        there = self.answered[self.trip]
        self.trip += 1
        return super().exchange({name: queries[name] for name in there})


@pytest.mark.slow_law
def test_after_all_that_the_policy_is_the_one_learned_in_process_bit_for_bit(story, tmp_path):
    untouched = story.folder / "untouched"
    agreed, _ = read_study(untouched / "study.toml")
    _, doors = open_clients(agreed, read_clients(untouched / "clients"))
    record = run_study(Conversation(agreed, AsItWent(doors, story.record)))
    record.policy.save(tmp_path / "policy.json")
    assert (story.out / "policy.json").read_bytes() == (tmp_path / "policy.json").read_bytes()
    assert [latest.loss for latest in record.rounds] == [r.loss for r in story.record.rounds]


@pytest.mark.slow_law
def test_nothing_is_left_running_of_what_was_started_killed_and_started_again(story):
    assert story.left_running == {}


def up(study, out, *more):
    command = [FEDOPL, "flower", "up", study, "--clients", study.parent / "clients", "--out", out]
    return subprocess.Popen(
        [*command, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


@pytest.fixture
def small(tmp_path):
    study = three_hospitals().write(tmp_path / "small")
    study.write_text(study.read_text().replace("seed = 1", "seed = 1\nquorum = 1.0"))
    shutil.rmtree(study.parent / "clients" / "north")
    return study


@pytest.mark.slow_law
def test_the_exit_code_tells_that_the_quorum_was_lost_and_there_is_no_report(small, tmp_path):
    (small.parent / "clients/west/export.csv").unlink()
    process = up(small, tmp_path / "run")
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, said
    assert "1 of 2 clients gave an answer that can be used" in said
    assert "west refused (FAILED)" in said
    assert "export.csv" not in said
    assert not (tmp_path / "run" / "report.html").exists()
    assert not (tmp_path / "run" / "run.json").exists()
    assert processes_of(tmp_path / "run" / "flower") == {}


# A closed terminal (SIGHUP) is to the command what SIGTERM is: tests/cli/test_signals.py.
ENDINGS = {"SIGTERM": 143, "SIGINT": 130, "SIGKILL": -9}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        pytest.param(name, code, marks=() if name == "SIGKILL" else pytest.mark.slow_law)
        for name, code in ENDINGS.items()
    ],
)
def test_a_command_that_ends_takes_its_federation_with_it_however_it_ends(
    small, tmp_path, name, code
):
    process, flower = up(small, tmp_path / "run"), tmp_path / "run" / "flower"
    try:
        wait_until(lambda: len(processes_of(flower)) > 2, PATIENCE, "a node and a link")
        process.send_signal(signal.Signals[name])
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, said
        assert ("--resume" in said) == (name == "SIGINT"), said
        wait_until(lambda: not processes_of(flower), SWEEP_SECONDS, "they are gone, too")
    finally:
        process.kill()
        process.communicate()
        for pid in processes_of(flower):
            os.kill(pid, signal.SIGKILL)
