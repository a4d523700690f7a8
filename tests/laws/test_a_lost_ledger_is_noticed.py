"""A ledger that was lost, or replaced by an older or another one, gives no budget back.

The client's private store knows its head, so that nothing is answered and the owner reads why.
"""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.cli.run_summary import _refusals
from fedopl.client.disclosure.ledger import FileLedger, summaries
from fedopl.client.disk.store import FolderStore
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.messages import codec
from fedopl.messages.derived_sizes import decoder_of
from fedopl.messages.private.noised_sums import SumPrivately
from fedopl.messages.refusal import Refusal
from fedopl.results.files.run_folder import load_record, save_record
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange.journal import Journal
from fedopl.server.federation import run_study
from fedopl.study.private.private_setting import PrivateSetting
from tiny_study import write_tiny

pytestmark = pytest.mark.usefixtures("without_figures")

STUDY = fedopl.Study(
    actions=("a", "b"),
    features=("x0", "x1"),
    privacy=fedopl.PrivacyPlan(
        epsilon=1.0, outcome=(-3, 3), ranges=dict.fromkeys(("x0", "x1"), (-2.0, 2.0))
    ),
    declared=fedopl.Declared(overlap=0.3),
)
LIMITS = fedopl.Limits(epsilon=1.6)  # for two such studies, and no third


def study(number):
    return STUDY.model_copy(update={"seed": number})


def door_in(folder, number=0, limits=LIMITS):
    rng = np.random.default_rng(0)
    data = fedopl.LoggedData(
        rng.normal(size=(200, 2)),
        rng.integers(2, size=200),
        rng.normal(size=200),
        np.full(200, 0.5),
        action_names=STUDY.actions,
    )
    kept = {"store": FolderStore(folder / "scores"), "ledger": FileLedger(folder / "ledger.jsonl")}
    return Door("north", data, study(number), limits=limits, secret="s" * 32, **kept)


def asked(door):
    """The name of the answer, or the reason why there is none."""
    content = door.handle(codec.encode(SumPrivately(study=door.study.digest)))
    answer = decoder_of(door.study).decode(content)
    return answer.reason.name if isinstance(answer, Refusal) else type(answer).__name__


def spent(folder):
    """A client that has spent what its owner allows, in two studies; its ledger after the first."""
    assert asked(door_in(folder, 0)) == "NoisedSums"
    after_one = (folder / "ledger.jsonl").read_bytes()
    assert asked(door_in(folder, 1)) == "NoisedSums"
    assert asked(door_in(folder, 2)) == "PRIVACY_SPENT"
    return after_one


def cut_in_half(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2].rpartition(b"\n")[0] + b"\n")


ATTACKS = {
    "deleted": lambda path, _: path.unlink(),
    "emptied": lambda path, _: path.write_bytes(b""),
    "an older backup": lambda path, after_one: path.write_bytes(after_one),
    "changed by hand": lambda path, _: path.write_bytes(
        path.read_bytes().replace(b'"privacy": 0.2', b'"privacy": 0.0')
    ),
    "gone on elsewhere": lambda path, after_one: path.write_bytes(path.read_bytes() + after_one),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_lost_or_older_or_changed_ledger_gives_nothing_back(attack, tmp_path):
    after_one, path = spent(tmp_path), tmp_path / "ledger.jsonl"
    whole = path.read_bytes()
    open_before = door_in(tmp_path, 2)
    ATTACKS[attack](path, after_one)
    assert path.exists() is False or path.read_bytes() != whole
    for door in (open_before, door_in(tmp_path, 2), door_in(tmp_path, 0)):
        with pytest.raises(fedopl.StorageError) as refused:
            door.check_history()
        (line,) = str(refused.value).splitlines()
        assert line.startswith(f"{path}: expected entries up to number 3, of which the private")
        assert line.endswith("nothing is answered before you restore it as it was last")
        assert asked(door) == "FAILED"
    path.write_bytes(whole)
    assert asked(door_in(tmp_path, 0)) == "NoisedSums"
    assert asked(door_in(tmp_path, 2)) == "PRIVACY_SPENT"


def test_a_ledger_copied_from_another_client_is_not_taken_for_its_own(tmp_path):
    spent(tmp_path)
    other = tmp_path / "other"
    assert asked(door_in(other, 7)) == "NoisedSums"
    shutil.copy(other / "ledger.jsonl", tmp_path / "ledger.jsonl")
    assert asked(door_in(tmp_path, 2)) == "FAILED"


def test_a_store_older_than_the_ledger_is_noticed_too(tmp_path):
    assert asked(door_in(tmp_path, 0)) == "NoisedSums"
    shutil.copytree(tmp_path / "scores", tmp_path / "backup")
    for number in (1, 2):
        asked(door_in(tmp_path, number))
    shutil.rmtree(tmp_path / "scores")
    shutil.move(tmp_path / "backup", tmp_path / "scores")
    with pytest.raises(fedopl.StorageError, match=r"up to number 1, .* came 3"):
        door_in(tmp_path, 0).check_history()


# --- killed at any moment -------------------------------------------------------------------------


class KilledError(BaseException):
    """In place of a signal that nothing can catch."""


def half_a_line(ledger, line):
    with ledger.path.open("ab") as file:
        file.write(line[: len(line) // 2])


MOMENTS = {
    "before the store": (FolderStore, "put", None, 2),
    "between the two": (FileLedger, "append_line", None, 3),
    "within the line": (FileLedger, "append_line", half_a_line, 3),
    "after both": (FileLedger, "append_line", FileLedger.append_line, 3),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_client_that_was_killed_goes_on_and_has_paid_for_what_it_stored(
    moment, tmp_path, monkeypatch
):
    where, name, before, n_entries = MOMENTS[moment]
    for number in (0, 1):
        asked(door_in(tmp_path, number, fedopl.Limits(epsilon=5.0)))
    door = door_in(tmp_path, 2, fedopl.Limits(epsilon=5.0))
    honest = getattr(where, name)

    def end(*given):
        if before:
            (honest if before is honest else before)(*given)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(where, name, end)
        with pytest.raises(KilledError):
            asked(door)
    again = door_in(tmp_path, 2, fedopl.Limits(epsilon=5.0))
    again.check_history()
    with again.ledger.locked():
        assert len(again.ledger.entries()) == n_entries == again.ledger.position
    assert asked(again) == "NoisedSums"
    again.check_history()
    paid = summaries(again.ledger.entries())
    assert [one.privacy for one in paid] == 3 * [PrivateSetting(STUDY).lifetime[0]]


# --- ledgers of version 0.2.0 ---------------------------------------------------------------------

MU = PrivateSetting(STUDY).lifetime[0]
OLD = {
    "when": "2025-01-01T00:00:00.000+00:00",
    "study": "ab" * 32,
    "exchange": 1,
    "query": "SumPrivately",
    "answer": "NoisedSums",
    "reason": "",
    "shapes": {"squares": [2, 3, 3]},
    "norms": {"squares": 1.0},
    "n_bytes": 100,
    "sha256": "cd" * 32,
    "query_sha256": "ef" * 32,
}
UNLOCK = {**OLD, "query": "unlock", "answer": "unlock", "sha256": "", "query_sha256": ""}


def old_ledger(folder, *entries):
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(entry) + "\n" for entry in entries]
    (folder / "ledger.jsonl").write_text("".join(lines))


def test_amounts_of_ledgers_of_earlier_versions_count(tmp_path):
    gone = {"query": "NoLongerAsked", "kept": "said by an earlier version alone", "privacy": MU}
    one = {**OLD, "privacy": MU}
    two = {**OLD, **gone, "study": "ba" * 32, "query_sha256": "fe" * 32, "agreed": "", "amount": 3}
    old_ledger(tmp_path, one, UNLOCK)
    assert asked(door_in(tmp_path)) == "NoisedSums"  # two such studies are within the limit
    old_ledger(tmp_path / "more", one, UNLOCK, two)
    assert asked(door_in(tmp_path / "more")) == "PRIVACY_SPENT"  # and three are not


def test_a_ledger_that_the_store_knows_nothing_of_is_taken_as_it_is_once(tmp_path):
    old_ledger(tmp_path, OLD, UNLOCK)
    old = (tmp_path / "ledger.jsonl").read_bytes()
    for number in (0, 1):
        assert asked(door_in(tmp_path, number)) == "NoisedSums"
    door_in(tmp_path).check_history()
    (tmp_path / "ledger.jsonl").write_bytes(old)
    assert asked(door_in(tmp_path)) == "FAILED"


# --- as its owner sees it -------------------------------------------------------------------------


def test_a_run_and_a_check_name_the_ledger_that_was_lost(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny = write_tiny(tmp_path / "tiny", names=("north", "south"))
    assert tiny.run().code == 0
    path = tiny.clients / "north" / "ledger.jsonl"
    kept = path.read_bytes()
    path.unlink()
    tiny.edit('name = "Tiny"', 'name = "Another"')  # which no store knows anything of
    for done in (tiny.check(), tiny.run("--out", "another")):
        assert done.code == 1
        said = " ".join(done.text.split())
        assert f"{path}: expected entries up to number" in said
        assert "came 0: it was lost" in said
    path.write_bytes(kept)
    assert tiny.check().code == 0


# --- a whole folder that was restored -------------------------------------------------------------


def doors_of(folder):
    return {name: named(folder / name, name) for name in ("east", "north", "west")}


def named(folder, name):
    door = door_in(folder)
    data = door._space.rows.given
    kept = {"store": FolderStore(folder / "scores"), "ledger": FileLedger(folder / "ledger.jsonl")}
    return Door(name, data, STUDY, limits=LIMITS, secret=f"{name}".ljust(32), **kept)


class Restored(InProcess):
    """North's whole folder is put back to what it was after this trip, before another one."""

    def __init__(self, folder, after=0, before=2):
        super().__init__(doors_of(folder))
        self.folder, self.after, self.before, self.trip = folder, after, before, -1

    def exchange(self, queries):
        self.trip += 1
        if self.trip == self.before:
            shutil.rmtree(self.folder / "north")
            shutil.copytree(self.folder / "backup", self.folder / "north")
            self.doors = doors_of(self.folder)
        yield from super().exchange(queries)
        if self.trip == self.after:
            shutil.copytree(self.folder / "north", self.folder / "backup")


def test_the_server_names_a_client_whose_whole_folder_was_restored(tmp_path):
    journals = [Journal(tmp_path / name) for name in ("journal", "other")]
    everybody = InProcess(doors_of(tmp_path / "plain"))
    plain = run_study(Conversation(STUDY, everybody, journals[0]))
    assert plain.went_back == ()
    found = run_study(Conversation(STUDY, Restored(tmp_path / "restored"), journals[1]))
    ((exchange, name, n_entries),) = found.went_back
    assert name == "north"
    assert n_entries > 0
    assert found.rounds[exchange].trip == 2
    # Nothing else of the result changes, and no byte of the journal.
    assert [replace(one, went_back={}) for one in found.rounds] == list(plain.rounds)
    assert "north: its ledger went back by" in _refusals(found)
    for path in (tmp_path / "journal").glob("trip-*"):
        assert path.read_bytes() == (tmp_path / "other" / path.name).read_bytes()
    save_record(found, tmp_path / "run")
    assert load_record(tmp_path / "run").went_back == found.went_back


def test_a_resumed_run_remembers_how_far_ledgers_were(tmp_path, monkeypatch):
    """Killed after its second trip, it goes on when north was put back to after the first."""
    folder, honest = tmp_path / "journal", Journal.keep

    def keep(journal, trip, queries, replies):
        if trip == 2:
            raise KilledError
        honest(journal, trip, queries, replies)

    begun = Conversation(STUDY, Restored(tmp_path, before=9), Journal(folder))
    with monkeypatch.context() as patched:
        patched.setattr(Journal, "keep", keep)
        with pytest.raises(KilledError):
            run_study(begun)
    # The next trip is its first one after that.
    resumed = Restored(tmp_path, after=9, before=0)
    found = run_study(Conversation(STUDY, resumed, Journal(folder)))
    assert [name for _, name, _ in found.went_back] == ["north"]
    everybody = InProcess(doors_of(tmp_path))
    again = run_study(Conversation(STUDY, everybody, Journal(folder)))
    assert again.rounds == found.rounds
