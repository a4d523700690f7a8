"""Where a client's owner approves by hand, nothing leaves without that, whatever a server does."""

import threading
from dataclasses import replace

import numpy as np
import pytest

from fedopl.base.errors import OptionError, StorageError
from fedopl.client.client_file import read_client
from fedopl.client.disclosure import approvals as module
from fedopl.client.disclosure.approvals import Approvals, Question
from fedopl.client.door import Door
from fedopl.client.table.logged_data import LoggedData
from fedopl.engines.folder_doors import door_of
from fedopl.messages import codec
from fedopl.messages.bundle import bundled, unbundled
from fedopl.messages.derived_sizes import decoder_of
from fedopl.messages.learning.enrolment import Enrol, Enrolment
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.learning.term_screening import TakeFound
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.policies.basis import Basis
from fedopl.study.plans import NuisancePlan
from fedopl.study.screened_study import FoundTerms, after_screening
from fedopl.study.study import Study
from fedopl.study.study_file import read_study
from tiny_study import everything_in, fedopl, write_tiny

MOST_SECONDS = 30
SHA = "0" * 64


@pytest.fixture
def tiny(tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    tiny.settings().write_text('approve = "ask"\n' + tiny.settings().read_text())
    return tiny


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.01)


def door_to(tiny, within=float("inf")):
    client, (study, _) = read_client(tiny.settings()), read_study(tiny.study)
    rows = client.pinned(study, client.rows_for(study))
    door = door_of(study, client, rows, asker="somebody")
    door.approvals = replace(door.approvals, within=within)
    return door


def answers(door, *queries):
    content = bundled([codec.encode(query) for query in queries])
    return [door._decoder.decode(part) for part in unbundled(door.handle(content))]


def enrol(door, exchange=0):
    return Enrol(study=door.study.digest, exchange=exchange)


def sums(door, exchange=1):
    return SumOutcomes(study=door.study.digest, exchange=exchange)


def reasons(found):
    return [one.reason.name if isinstance(one, Refusal) else "" for one in found]


class Owner:
    """Decides on every question as it comes, in a thread, while its page is served."""

    def __init__(self, approvals, decide):
        self.approvals, self.decide, self.seen = approvals, decide, []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self):
        self._serving = self.approvals.serving()
        self._serving.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_error):
        self._ended.set()
        self._thread.join()
        self._serving.__exit__(None, None, None)

    def _watch(self):
        while not self._ended.wait(0.01):
            for one in self.approvals.waiting():
                if one.sha256 not in self.seen:
                    self.seen.append(one.sha256)
                    self.decide(self.approvals, one)


def approve(approvals, one):
    approvals.approve(one.sha256)


def refuse(approvals, one):
    approvals.refuse(one.sha256)


def test_without_a_page_nothing_is_answered_and_the_ledger_says_why(tiny):
    door = door_to(tiny)
    found = answers(door, enrol(door), sums(door))
    assert reasons(found) == ["NOT_APPROVED"] * 2
    entries = door.ledger.entries()
    assert [(one.reason, one.owner) for one in entries] == [
        ("NOT_APPROVED", "not approved: no page was served")
    ] * 2


def test_each_query_of_a_trip_is_decided_by_itself(tiny):
    door = door_to(tiny)
    approvals = door.approvals

    def decide(approvals, one):
        (approve if one.query == "Enrol" else refuse)(approvals, one)

    with Owner(approvals, decide):
        first, second = answers(door, enrol(door), sums(door))
    assert isinstance(first, Enrolment)
    assert second.reason is RefusalCode.NOT_APPROVED
    assert [one.owner for one in door.ledger.entries()] == ["approved by hand", "refused by hand"]
    header, _, *lines = fedopl("ledger", tiny.settings().parent).out.splitlines()
    assert header.endswith("owner")
    assert lines[0].endswith("approved by hand")
    assert lines[1].endswith("refused by hand")


def test_what_was_approved_stays_so_with_the_same_bytes_and_a_refusal_holds_once(tiny):
    door, query = door_to(tiny), None
    query = codec.encode(enrol(door))
    with Owner(door.approvals, refuse):
        assert reasons(answers(door, enrol(door))) == ["NOT_APPROVED"]
    with Owner(door.approvals, approve) as owner:
        first = door.handle(query)
        assert len(owner.seen) == 1  # it was asked again
    assert door_to(tiny).handle(query) == first  # without a page, and in another process
    assert reasons(answers(door, sums(door))) == ["NOT_APPROVED"]  # another was never approved


def test_nothing_waits_longer_than_it_may_and_can_be_approved_afterwards(tiny):
    door = door_to(tiny, within=0.1)
    with door.approvals.serving():
        assert reasons(answers(door, enrol(door))) == ["NOT_APPROVED"]
        assert door.ledger.entries()[-1].owner == "not approved in time"
        (late,) = door.approvals.waiting()
        door.approvals.approve(late.sha256)
        assert door.approvals.waiting() == []
        assert isinstance(answers(door, enrol(door))[0], Enrolment)


def test_a_page_that_ends_lets_nothing_through(tiny):
    door = door_to(tiny)
    asked = threading.Thread(target=answers, args=(door, enrol(door)))
    with door.approvals.serving():
        asked.start()
        while not door.approvals.waiting():
            assert asked.is_alive()
    asked.join(MOST_SECONDS)
    assert not asked.is_alive()
    assert door.ledger.entries()[-1].owner == "not approved: no page was served"


@pytest.mark.parametrize("asks", [True, False])
def test_while_paused_nothing_leaves_that_was_approved_either(tiny, asks):
    if not asks:
        tiny.settings().write_text(tiny.settings().read_text().replace("ask", "auto"))
    door, found = door_to(tiny), []
    if asks:
        with Owner(door.approvals, approve):
            answers(door, enrol(door))
    door.approvals.pause()
    assert reasons(answers(door_to(tiny), enrol(door))) == ["NOT_APPROVED"]  # nobody can resume
    asked = threading.Thread(target=lambda: found.extend(answers(door, enrol(door))))
    with door.approvals.serving():
        asked.start()
        asked.join(0.3)
        assert found == []
        assert asked.is_alive()
        door.approvals.resume()
        asked.join(MOST_SECONDS)
    assert isinstance(found[0], Enrolment)


def test_a_query_that_its_owner_was_not_shown_is_not_answered_later(tmp_path):
    """It can be understood only once the query after it, which travels with it, was looked at."""
    rng, names = np.random.default_rng(0), tuple(f"x{place}" for place in range(6))
    agreed = Study(
        actions=("a", "b"),
        features=names,
        basis=Basis(knots=dict.fromkeys(names, (-1.0, 0.0, 1.0)), screened_pairs=1),
        nuisances=NuisancePlan(propensity="marginal"),
        evaluation=0.25,
    )
    actions = rng.integers(0, 2, 500)
    data = LoggedData(
        rng.standard_normal((500, 6)), actions, rng.standard_normal(500), action_names=("a", "b")
    )
    approvals = Approvals(folder=tmp_path / "approvals", asks=True)
    door = Door("north", data, agreed, secret="of this test", approvals=approvals)
    after = after_screening(agreed, FoundTerms(pairs=(("x0", "x1"),)))
    own = {"study": after.digest}
    smuggled = SumOutcomes(exchange=0, **own)
    told = replace(TakeFound.of(after), exchange=1, **own)
    content = bundled([codec.encode(query) for query in (smuggled, told)])
    with Owner(approvals, approve) as owner:
        parts = unbundled(door.handle(content))
    found = [decoder_of(after).decode(part) for part in parts]
    assert len(owner.seen) == 1
    assert reasons(found) == ["NOT_APPROVED", ""]


def test_nobody_is_bothered_with_what_is_refused_anyway(tiny):
    door = door_to(tiny)
    other = Enrol(study=bytes(codec.DIGEST_BYTES), exchange=0)
    with Owner(door.approvals, approve) as owner:
        assert reasons(answers(door, other)) == ["WRONG_STUDY"]
        (nonsense,) = unbundled(door.handle(b"nonsense"))
    assert door._decoder.decode(nonsense).reason is RefusalCode.MALFORMED
    assert owner.seen == []


def test_where_approvals_cannot_be_kept_nothing_is_answered(tiny, tmp_path):
    door, elsewhere = door_to(tiny), tmp_path / "elsewhere"
    elsewhere.mkdir()
    door.approvals.folder.symlink_to(elsewhere)
    assert reasons(answers(door, enrol(door))) == ["NOT_APPROVED"]
    with pytest.raises(StorageError, match="symbolic link"), door.approvals.serving():
        pass
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("odd", ["../../evil", "", SHA, "..", "/etc/passwd", SHA + ".approved"])
def test_what_a_page_sends_is_never_made_a_path(tmp_path, odd):
    approvals = Approvals(folder=tmp_path / "approvals", asks=True)
    for decide in (approvals.approve, approvals.refuse):
        with pytest.raises(OptionError, match="no such question waits"):
            decide(odd)
    assert list(tmp_path.iterdir()) == []


def test_a_broken_file_is_no_question(tmp_path):
    approvals = Approvals(folder=tmp_path, asks=True, asker="x")
    (tmp_path / f"{SHA}.waiting").write_text('{"sha256": "../evil", "query"')
    (tmp_path / "other.waiting").write_text('["a"]')
    assert approvals.waiting() == []
    approvals.decided(
        [Question(sha256=SHA, query="Enrol", exchange=0, study_name="Tiny", holds="")]
    )
    assert [one.sha256 for one in approvals.waiting()] == [SHA]


def test_two_pages_of_one_client_cannot_be_served(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_TAKE_SECONDS", 0.1)
    approvals = Approvals(folder=tmp_path, asks=True)
    with (
        approvals.serving(),
        pytest.raises(StorageError, match="the page of this client is already served"),
        approvals.serving(),
    ):
        pass
    assert not approvals.is_served


def test_a_run_says_what_to_start_before_anybody_is_asked(tiny):
    before = everything_in(tiny.clients)
    done = tiny.run()
    assert done.code == 1
    north = tiny.clients / "north"
    assert f"{tiny.settings()}, line 1" in done.err
    assert 'approve = "ask", and no page is served' in done.err
    assert f"fedopl node {north} --serve" in done.err
    assert everything_in(tiny.clients) == before


def test_a_rehearsal_asks_nobody_as_nothing_leaves(tiny):
    assert fedopl("preview", tiny.study, tiny.clients / "north").code == 0
    assert not read_client(tiny.settings()).approvals().folder.exists()


def test_a_whole_run_waits_for_its_owner_and_gives_the_same_result(tiny, tmp_path):
    alike = write_tiny(tmp_path / "alike")
    assert alike.run().code == 0
    with Owner(read_client(tiny.settings()).approvals(), approve) as owner:
        done = tiny.run()
    assert (done.code, done.err) == (0, "")
    assert len(owner.seen) >= 4
    for name in ("policy.json", "values.csv", "rounds.jsonl"):
        assert (tiny.out / name).read_bytes() == (alike.out / name).read_bytes(), name


def test_a_refusal_by_hand_is_said_in_words_where_the_run_ends(tiny):
    with Owner(read_client(tiny.settings()).approvals(), refuse):
        tiny.study.write_text("quorum = 1.0\n" + tiny.study.read_text())
        done = tiny.run()
    assert done.code == 1
    assert "north refused (NOT_APPROVED): its owner approves questions by hand" in done.err
    assert "fedopl node --serve" in done.err
