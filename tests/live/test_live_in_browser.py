"""The live pages in a real browser: as things happen, by keyboard, on a phone, heard by axe."""

import threading

import pytest

from browsing import DESK, PHONE, violations
from fedopl.client.client_file import read_client
from fedopl.client.door import Door
from fedopl.engines.folder_doors import door_of
from fedopl.live.client_page import ClientPage
from fedopl.live.page_server import PageServer
from fedopl.messages import codec
from fedopl.messages.bundle import unbundled
from fedopl.messages.learning.enrolment import Enrol, Enrolment
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.study.study_file import read_study
from tiny_study import write_tiny

# Whether all is inside the window.
FITS = "document.documentElement.scrollWidth <= window.innerWidth"


# --- a run ----------------------------------------------------------------------------------------


def test_a_run_is_shown_as_it_goes_and_turns_into_its_report(visit, served, finished, report):
    page, phone = visit(served.address), visit(served.address, PHONE, "dark")
    served.page.begin(tuple(sorted(finished.rows)), len(finished.rounds) + 1)
    page.wait_for_selector("#clients tbody tr >> nth=2")
    assert page.locator("#clients tbody td.words").all_inner_texts() == ["waiting"] * 3
    for place, latest in enumerate(finished.rounds):
        served.page.tell(latest)
        page.wait_for_selector(f"#exchanges tbody tr[data-key='{place}']")
    assert page.locator("#clients tbody td.words").all_inner_texts() == ["answered"] * 3
    n_rounds = len(finished.rounds)
    page.wait_for_selector(f"#bar[value='{n_rounds}']")
    assert page.inner_text("#done") == f"{n_rounds} of {n_rounds + 1} exchanges at most are done"
    page.wait_for_selector("#heard:has-text('answered')")
    for one in (page, phone):
        one.wait_for_selector(f"#bar[value='{n_rounds}']")
        assert one.evaluate(FITS)
        assert violations(one) == []
    served.page.finish(report)
    page.wait_for_url(served.address + "report")
    assert page.inner_text("h1") == "Tiny"
    assert page.evaluate(FITS)
    assert violations(page) == []
    assert served.end_was_read.wait(20)


def test_a_late_visitor_sees_all_and_one_after_the_end_the_report(visit, served, finished, report):
    served.page.begin(tuple(sorted(finished.rows)), len(finished.rounds))
    for latest in finished.rounds:
        served.page.tell(latest)
    page = visit(served.address)
    page.wait_for_selector(f"#exchanges tbody tr >> nth={len(finished.rounds) - 1}")
    served.page.finish(report)
    page.wait_for_url(served.address + "report")
    assert visit(served.address).url == served.address + "report"


def test_what_went_wrong_is_said_in_the_same_words(visit, served):
    page = visit(served.address)
    assert not page.is_visible("#failed")
    served.page.fail("Enrol: 1 of 3 clients gave an answer\n  <b>north</b>: no answer")
    page.wait_for_selector("#failed", state="visible")
    assert page.inner_text("#failure") == (
        "Enrol: 1 of 3 clients gave an answer\n  <b>north</b>: no answer"
    )
    assert violations(page) == []
    assert served.end_was_read.wait(20)


def test_a_page_says_when_the_program_has_gone(visit, run_page):
    with PageServer(run_page) as server:
        page = visit(server.address)
        run_page.begin(("north",), 1)
        page.wait_for_selector("#clients tbody tr")
    page.wait_for_selector("#connection:has-text('does not answer')")
    assert violations(page) == []


# --- a client -------------------------------------------------------------------------------------


class Asked:
    """Queries that are put to a door in a thread, as a node would, and what it answers."""

    def __init__(self, door: Door, *exchanges: int) -> None:
        queries = [Enrol(study=door.study.digest, exchange=one) for one in exchanges]
        self._answers: dict[int, object] = {}
        self._threads = [
            threading.Thread(target=self._ask, args=(door, query), daemon=True) for query in queries
        ]
        for thread in self._threads:
            thread.start()

    def _ask(self, door, query):
        (answer,) = unbundled(door.handle(codec.encode(query)))
        self._answers[query.exchange] = door._decoder.decode(answer)

    def answers(self):
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()
        return self._answers

    @property
    def is_waiting(self):
        return not self._answers


@pytest.fixture(params=["ask"])
def owner(request, tmp_path):
    """A client whose owner's page is served, its door, and its page."""
    tiny = write_tiny(tmp_path / "tiny")
    if request.param == "ask":
        settings = tiny.settings()
        settings.write_text(f'approve = "ask"\n{settings.read_text()}')
    client, (study, _) = read_client(tiny.settings()), read_study(tiny.study)
    rows = client.pinned(study, client.rows_for(study))
    door = door_of(study, client, rows, asker="Flower run 7")
    ended, page = threading.Event(), ClientPage(client)
    following = threading.Thread(target=page.follow, args=(ended,))
    with client.approvals().serving(), PageServer(page) as server:
        following.start()
        yield server, door
        ended.set()
        following.join()


def tab_to(page, label):
    """Press Tab until this button has the focus."""
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == label:
            return
    raise AssertionError(f"no Tab leads to {label}")


@pytest.mark.parametrize(("viewport", "scheme"), [(DESK, "light"), (PHONE, "dark")])
def test_an_owner_approves_and_refuses_by_keyboard(visit, owner, viewport, scheme):
    server, door = owner
    page = visit(server.address, viewport, scheme)
    asked = Asked(door, 0, 1)
    page.wait_for_selector("#waiting tbody tr >> nth=1")
    assert "Flower run 7" in page.inner_text("#waiting tbody tr >> nth=0")
    assert page.evaluate(FITS)
    assert violations(page) == []
    assert asked.is_waiting
    rows = page.locator("#waiting tbody tr")
    first = "exchange 1" in rows.nth(0).locator("button").nth(0).get_attribute("aria-label")
    tab_to(page, "Approve")
    page.keyboard.press("Enter")
    page.wait_for_selector("#waiting tbody tr >> nth=1", state="detached")
    # The focus goes to the question that is left.
    assert page.evaluate("document.activeElement.textContent") == "Approve"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#waiting tbody tr", state="detached")
    found = asked.answers()
    approved, refused = (0, 1) if first else (1, 0)
    assert isinstance(found[approved], Enrolment)
    assert isinstance(found[refused], Refusal)
    assert found[refused].reason is RefusalCode.NOT_APPROVED
    page.wait_for_selector("#ledger tbody tr >> nth=1")
    told = page.locator("#ledger tbody").inner_text()
    assert "approved by hand" in told
    assert "refused (NOT_APPROVED)" in told
    assert page.inner_text("#answers") == page.inner_text("#refusals") == "1"
    assert page.evaluate(FITS)
    assert violations(page) == []


@pytest.mark.parametrize("owner", ["auto"], indirect=True)
def test_an_owner_pauses_and_resumes_a_client_that_answers_by_itself(visit, owner):
    server, door = owner
    page = visit(server.address)
    page.wait_for_selector("#rule:has-text('answered by themselves')")
    tab_to(page, "Pause all answers")
    page.keyboard.press("Enter")
    page.wait_for_selector("#rule:has-text('Paused')")
    asked = Asked(door, 0)
    page.wait_for_selector("#waiting tbody tr")
    assert page.locator("#waiting button").all_inner_texts() == ["Refuse"]
    assert violations(page) == []
    assert asked.is_waiting
    tab_to(page, "Resume")
    page.keyboard.press("Enter")
    assert isinstance(asked.answers()[0], Enrolment)
    page.wait_for_selector("#waiting tbody tr", state="detached")
    page.wait_for_selector("#ledger tbody tr:has-text('answered')")
