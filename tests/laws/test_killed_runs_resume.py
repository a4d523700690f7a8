import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import resumable_run

import fedopl
from fedopl.base.errors import FederationError, StorageError
from fedopl.client.disclosure.ledger import FileLedger
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.disk.store import FolderStore
from fedopl.client.door import Door
from fedopl.policies.policy import policy_json
from fedopl.results.files.table_files import diagnosis_json
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange.journal import Journal
from fedopl.server.federation import run_study
from fedopl.study.plans import NuisancePlan, TrainingPlan
from fedopl.study.policy_plans import Linear
from fedopl.study.study import Study
from tiny_study import write_tiny
from trips import Counted, Tampered, n_trips

NAMES = ("east", "north", "south")
ORACLES = ("csoaa-exact", "csoaa-sgd", "wap", "direct")
SCRIPT = Path(resumable_run.__file__)


PLAN = TrainingPlan(rounds=3, local_steps=4, batch_size=16)


def study_of(*, oracle="csoaa-sgd", plan=PLAN, **changes):
    options = {
        "actions": ("a0", "a1", "a2"),
        "features": ("x0", "x1", "x2"),
        "nuisances": NuisancePlan(propensity="marginal", outcome="ols", folds=2),
        "policy": Linear(oracle=oracle, training=plan),
    }
    return Study(**{**options, **changes})


@pytest.fixture
def transport(draw, tmp_path):
    """A function that makes a transport to new doors, as a new process would."""

    def _transport(study, limits=None, **options):
        doors = {
            name: Door(
                name,
                draw(90 + 20 * turn, seed=turn, n_features=3),
                study,
                limits=(limits or {}).get(name, Limits.open()),
                store=FolderStore(tmp_path / "stores" / name),
                ledger=FileLedger(tmp_path / "ledgers" / name),
                secret=SEED_ALONE,
            )
            for turn, name in enumerate(NAMES)
        }
        return Counted(doors, **options)

    return _transport


def everything(run):
    found = diagnosis_json(run.diagnosis) if run.diagnosis else ""
    return (policy_json(run.policy), str(run), run.rounds, run.mixture, run.rows, found)


def content_of(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.bin"))}


def trip_files(count):
    """The journal's files after as many trips."""
    return [f"trip-{trip:05d}.bin" for trip in range(count)]


STUDIES = {
    **{oracle: study_of(oracle=oracle) for oracle in ORACLES},
    "finite": study_of(policy="finite"),
    "tree": study_of(policy=fedopl.Tree(depth=3, bins=8)),
    "local nuisances": study_of(
        nuisances=NuisancePlan(propensity="marginal", folds=2, kind="local")
    ),
    "minimax": study_of(oracle="csoaa-exact", mixture={"kind": "minimax", "steps": 3}),
    "path": study_of(oracle="csoaa-exact", mixture={"kind": "path", "toward": "north"}),
    "diagnosed": study_of(oracle="csoaa-exact", joining=True),
}
every_study = pytest.mark.parametrize("study", STUDIES.values(), ids=STUDIES)
QUICK = ("csoaa-exact", "csoaa-sgd", "finite", "tree")
every_study_some_slow = pytest.mark.parametrize(
    "study",
    [
        pytest.param(study, id=name, marks=() if name in QUICK else pytest.mark.slow_law)
        for name, study in STUDIES.items()
    ],
)


@every_study
def test_a_journal_changes_nothing(transport, tmp_path, study):
    plain = run_study(Conversation(study, transport(study)))
    assert everything(
        run_study(Conversation(study, transport(study), Journal(tmp_path / "j")))
    ) == everything(plain)
    assert len(content_of(tmp_path / "j")) == n_trips(plain.rounds)


@every_study
def test_a_finished_run_is_replayed_without_asking_anybody(transport, tmp_path, study):
    first = run_study(Conversation(study, transport(study), Journal(tmp_path / "j")))
    before = content_of(tmp_path / "j")
    again = transport(study)
    assert everything(run_study(Conversation(study, again, Journal(tmp_path / "j")))) == everything(
        first
    )
    assert again.trips == 0
    assert content_of(tmp_path / "j") == before


@every_study_some_slow
def test_a_run_that_stopped_anywhere_goes_on_from_there_to_the_same_end(transport, tmp_path, study):
    whole = run_study(Conversation(study, transport(study)))
    trips = n_trips(whole.rounds)
    for stop in range(trips):
        if 4 < stop < trips - 1:
            continue
        journal = tmp_path / f"stopped at {stop}"
        with pytest.raises(KeyboardInterrupt):
            run_study(Conversation(study, transport(study, breaks_at=stop), Journal(journal)))
        again = transport(study)
        assert everything(run_study(Conversation(study, again, Journal(journal)))) == everything(
            whole
        )
        assert again.trips == trips - stop


def test_a_run_can_stop_and_go_on_more_than_once(transport, tmp_path):
    study = study_of(plan=TrainingPlan(rounds=6, local_steps=4, batch_size=16))
    whole = run_study(Conversation(study, transport(study)))
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            run_study(Conversation(study, transport(study, breaks_at=2), Journal(tmp_path / "j")))
    again = transport(study)
    assert everything(run_study(Conversation(study, again, Journal(tmp_path / "j")))) == everything(
        whole
    )
    assert again.trips == n_trips(whole.rounds) - 6 > 0


# --- runs that lost their quorum ----------------------------------------------------------------


def limited(**limits):
    """Limits that two of three clients set, so that too few answer."""
    return dict.fromkeys(("north", "south"), Limits.open().model_copy(update=limits))


# A study, what two clients forbid, the query where it fails, and how many trips are kept.
LOST = {
    "enrolment": (study_of(), limited(minimum_rows=1000), "Enrol", 0),
    "candidates": (study_of(policy="finite"), limited(values=False), "Value", 2),
}


@pytest.mark.parametrize(("study", "limits", "query", "kept"), LOST.values(), ids=LOST)
def test_a_run_that_lost_its_quorum_goes_on_once_clients_raise_their_limits(
    transport, tmp_path, study, limits, query, kept
):
    for trips in (kept + 1, 1):
        lost = transport(study, limits)
        with pytest.raises(FederationError, match=f"{query}: 1 of 3 clients"):
            run_study(Conversation(study, lost, Journal(tmp_path / "j")))
        assert lost.trips == trips
        assert list(content_of(tmp_path / "j")) == trip_files(kept)
    raised = transport(study)
    run = run_study(Conversation(study, raised, Journal(tmp_path / "j")))
    whole = run_study(Conversation(study, transport(study), Journal(tmp_path / "whole")))
    assert everything(run) == everything(whole)
    assert raised.trips == n_trips(whole.rounds) - kept
    assert content_of(tmp_path / "j") == content_of(tmp_path / "whole")


# An exchange, and how many trips come before its own.
@pytest.mark.parametrize(("exchange", "kept"), [(0, 0), (2, 1), (4, 3)])
def test_a_run_whose_clients_fell_silent_goes_on_once_they_are_back(
    transport, tmp_path, exchange, kept
):
    study = study_of()
    deaf = Tampered(transport(study).doors, {exchange: lambda trip: []})
    with pytest.raises(FederationError, match="0 of 3 clients"):
        run_study(Conversation(study, deaf, Journal(tmp_path / "j")))
    assert list(content_of(tmp_path / "j")) == trip_files(kept)
    back = transport(study)
    run = run_study(Conversation(study, back, Journal(tmp_path / "j")))
    assert everything(run) == everything(run_study(Conversation(study, transport(study))))
    assert back.trips == n_trips(run.rounds) - kept


def test_a_call_that_lost_its_quorum_goes_on_with_other_limits(draw, tmp_path):
    clients = {name: draw(600, seed=turn) for turn, name in enumerate(NAMES)}
    options = {
        "policy": "finite",
        "nuisances": NuisancePlan(propensity="marginal"),
        "running": fedopl.Running(journal=tmp_path),
    }
    with pytest.raises(FederationError, match="Value: 0 of 3 clients"):
        fedopl.learn(clients, basis="linear", limits=Limits(values=False), **options)
    assert list(content_of(tmp_path)) == trip_files(2)
    run = fedopl.learn(clients, basis="linear", limits=Limits(), **options)
    assert run.refusals == ()
    plain = fedopl.learn(clients, basis="linear", limits=Limits(), **{**options, "running": None})
    assert everything(run) == everything(plain)


# --- journals that are not what was written -----------------------------------------------------


def flip(position):
    def _flip(content):
        at = position % len(content)
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]

    return _flip


DAMAGE = {
    "empty": lambda content: b"",
    "cut to a line": lambda content: content.split(b"\n")[0],
    "cut in half": lambda content: content[: len(content) // 2],
    "cut by one": lambda content: content[:-1],
    "longer": lambda content: content + b"\0",
    "another hash": flip(0),
    "another header": flip(100),
    "another number": flip(-3),
    "not text": lambda content: b"\xff\xfe" + content[2:],
    "a pickle": lambda content: b"\x80\x04K\x01.",
}


@pytest.mark.parametrize("trip", [0, 1, -1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_journal_is_noticed_and_left_as_it_is(transport, tmp_path, damage, trip):
    study = study_of(oracle="csoaa-exact")
    run_study(Conversation(study, transport(study), Journal(tmp_path / "j")))
    path = sorted((tmp_path / "j").glob("*.bin"))[trip]
    path.write_bytes(damage(path.read_bytes()))
    before = content_of(tmp_path / "j")
    again = transport(study)
    with pytest.raises(StorageError, match=r"was changed or cut off .* delete it") as caught:
        run_study(Conversation(study, again, Journal(tmp_path / "j")))
    assert str(path) in str(caught.value)
    assert again.trips == 0
    assert content_of(tmp_path / "j") == before


def test_what_the_error_advises_works(transport, tmp_path):
    study = study_of()
    whole = run_study(Conversation(study, transport(study), Journal(tmp_path / "j")))
    files = sorted((tmp_path / "j").glob("*.bin"))
    files[3].write_bytes(b"damaged")
    with pytest.raises(StorageError, match="delete it and all later ones"):
        run_study(Conversation(study, transport(study), Journal(tmp_path / "j")))
    for path in files[3:]:
        path.unlink()
    assert everything(
        run_study(Conversation(study, transport(study), Journal(tmp_path / "j")))
    ) == everything(whole)


OTHERS = {
    "another seed": study_of(seed=1),
    "another oracle": study_of(oracle="wap"),
    "another name": study_of(name="other"),
    "another plan": study_of(plan=TrainingPlan(rounds=4, local_steps=4, batch_size=16)),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_a_journal_of_another_study_is_refused_and_left_as_it_is(transport, tmp_path, other):
    study = study_of()
    run_study(Conversation(study, transport(study), Journal(tmp_path / "j")))
    before = content_of(tmp_path / "j")
    again = transport(other)
    with pytest.raises(StorageError, match=r"belongs to another run .* an empty folder"):
        run_study(Conversation(other, again, Journal(tmp_path / "j")))
    assert again.trips == 0
    assert content_of(tmp_path / "j") == before


def test_trips_in_another_order_are_refused(transport, tmp_path):
    study = study_of()
    run_study(Conversation(study, transport(study), Journal(tmp_path / "j")))
    third, fourth = sorted((tmp_path / "j").glob("*.bin"))[3:5]
    third.write_bytes(fourth.read_bytes())
    with pytest.raises(StorageError, match="belongs to another run"):
        run_study(Conversation(study, transport(study), Journal(tmp_path / "j")))


def test_a_journal_of_other_clients_is_refused(transport, tmp_path):
    study = study_of()
    run_study(Conversation(study, transport(study), Journal(tmp_path / "j")))
    fewer = transport(study)
    del fewer.doors["north"]
    with pytest.raises(StorageError, match="belongs to another run"):
        run_study(Conversation(study, fewer, Journal(tmp_path / "j")))


def test_a_journal_that_cannot_be_written_is_said_so(transport, tmp_path):
    (tmp_path / "file").write_text("mine")
    study = study_of()
    with pytest.raises(StorageError, match="cannot be written"):
        run_study(Conversation(study, transport(study), Journal(tmp_path / "file")))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_trip_that_is_a_folder_is_said_so(transport, tmp_path):
    (tmp_path / "j" / "trip-00000.bin").mkdir(parents=True)
    study = study_of()
    with pytest.raises(StorageError, match="cannot be read"):
        run_study(Conversation(study, transport(study), Journal(tmp_path / "j")))


# --- processes that die -------------------------------------------------------------------------


def ran(how, oracle, folder, **environment):
    return subprocess.run(
        [sys.executable, SCRIPT, how, oracle, folder],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def ended(how, oracle, folder):
    """What comes of a run in this process, and its journal."""
    run = resumable_run.finished(how, oracle, folder)
    return resumable_run.text_of(run), content_of(folder / "journal")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A function that runs to the end, without a break."""
    return cache(lambda how, oracle: ended(how, oracle, tmp_path_factory.mktemp("whole")))


# Three clients answer each trip: 1 is in the middle of enrolment, 4 of scores, 7 of values where
# the oracle is exact, 13 of a round of training.
@pytest.mark.parametrize(
    ("how", "oracle", "after", "kept"),
    [
        ("stores", "csoaa-sgd", 13, 4),
        pytest.param("learn", "csoaa-exact", 1, 0, marks=pytest.mark.slow_law),
        ("learn", "csoaa-exact", 4, 1),
        pytest.param("learn", "csoaa-exact", 7, 2, marks=pytest.mark.slow_law),
        pytest.param("learn", "csoaa-sgd", 13, 4, marks=pytest.mark.slow_law),
    ],
)
def test_a_killed_run_called_again_ends_with_the_same_bytes(
    tmp_path, whole, how, oracle, after, kept
):
    folder = tmp_path / "killed"
    killed = ran(how, oracle, folder, KILL_AFTER=str(after))
    assert killed.returncode == -signal.SIGKILL
    assert not (folder / "result").exists()
    assert list(content_of(folder / "journal")) == trip_files(kept)
    assert ended(how, oracle, folder) == whole(how, oracle)


@pytest.mark.parametrize(
    ("after", "kept"),
    [pytest.param(0, 0, marks=pytest.mark.slow_law), (7, 2)],
    ids=["first trip", "last trip"],
)
def test_a_full_disk_is_said_so_leaves_the_journal_whole_and_the_run_can_go_on(
    tmp_path, whole, after, kept
):
    expected, files = whole("stores", "csoaa-exact")
    names = list(files)
    assert len(files[names[kept]]) > 1500
    folder = tmp_path / "full"
    ran("stores", "csoaa-exact", folder, KILL_AFTER=str(after))
    full = ran("stores", "csoaa-exact", folder, LARGEST_FILE="1500")
    assert full.returncode == 1
    assert full.stderr.startswith("StorageError: ")
    assert f"{names[kept]}: cannot be written: File too large" in full.stderr
    assert "what was there before is untouched" in full.stderr
    assert content_of(folder / "journal") == {name: files[name] for name in names[:kept]}
    assert ended("stores", "csoaa-exact", folder) == (expected, files)


# --- the command, killed --------------------------------------------------------------------------

RESULTS = ("policy.json", "values.csv", "gains.csv", "rounds.jsonl", "study.json")


def killed_command(tiny, after):
    arguments = ["run", tiny.study, "--clients", tiny.clients, "--out", tiny.out]
    return subprocess.run(
        [sys.executable, SCRIPT, "command", *map(str, arguments)],
        env={**os.environ, "KILL_AFTER": str(after)},
        capture_output=True,
        text=True,
    )


def small_study(folder):
    tiny = write_tiny(folder)
    tiny.add('[policy]\noracle = "csoaa-sgd"\n[plan]\nrounds = 6\n')
    return tiny


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    tiny = small_study(tmp_path_factory.mktemp("undisturbed") / "tiny")
    done = tiny.run()
    assert done.code == 0, done.err
    return {name: (tiny.out / name).read_bytes() for name in RESULTS}


# Three clients answer each trip: 1 is in the middle of enrolment, 4 of scores, 17 of rounds, 25 of
# values.
@pytest.mark.parametrize(
    "after", [pytest.param(after, marks=pytest.mark.slow_law) for after in (1, 4, 25)] + [17]
)
def test_a_killed_command_that_resumes_ends_with_the_same_files(tmp_path, undisturbed, after):
    tiny = small_study(tmp_path / "tiny")
    assert killed_command(tiny, after).returncode == -signal.SIGKILL
    assert not (tiny.out / "run.json").exists()
    ledger = tiny.clients / "north" / "ledger.jsonl"
    ledger.write_bytes(ledger.read_bytes() + b'{"when": "cut o')
    done = tiny.run("--resume")
    assert done.code == 0, done.err
    assert {name: (tiny.out / name).read_bytes() for name in RESULTS} == undisturbed


def test_a_command_that_lost_its_quorum_resumes_once_clients_raise_their_limits(
    tmp_path, undisturbed
):
    tiny = small_study(tmp_path / "tiny")
    for name in ("north", "south"):
        tiny.add("[limits]\nminimum_rows = 10000\n", tiny.settings(name))
    for more in ([], ["--resume"]):
        lost = tiny.run(*more)
        assert lost.code != 0
        assert "north refused (TOO_FEW_ROWS)" in " ".join(lost.err.split())
        assert not (tiny.out / "run.json").exists()
    for name in ("north", "south"):
        tiny.edit("minimum_rows = 10000", "minimum_rows = 30", tiny.settings(name))
    done = tiny.run("--resume")
    assert done.code == 0, done.err
    assert {name: (tiny.out / name).read_bytes() for name in RESULTS} == undisturbed
