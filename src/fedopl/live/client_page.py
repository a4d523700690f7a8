"""A client's own page: the questions it got, its answers, and buttons to approve or refuse."""

import threading
from dataclasses import dataclass, field

from fedopl.base.errors import OptionError, StorageError
from fedopl.client.client_file import Client
from fedopl.client.disclosure.approvals import Approvals, Waiting
from fedopl.client.disclosure.ledger import UNLOCK, Entry, FileLedger, promised_in_all, summaries
from fedopl.live.page_server import Button, PageEvents, form_of
from fedopl.messages.refusal import in_words
from fedopl.messages.vocabulary import QUERY_NAMED
from fedopl.report.words.numbers import count, plural, size

LOOK_SECONDS = 0.3
MOST_ENTRIES = 500  # ledger entries shown at the start; `fedopl ledger` shows all
_RULES = {
    True: "Every question waits until you approve or refuse it.",
    False: "Questions within this client's limits are answered by themselves.",
}
_PAUSED = (
    "Paused: nothing is answered until you resume, approved or not. You can still refuse questions."
)


@dataclass
class ClientPage:
    """The page of one client. `look` reads the client's files and updates the page."""

    client: Client
    events: PageEvents = field(default_factory=PageEvents)
    has_failed: bool = False
    figures = (
        ("answers", "Answers"),
        ("refusals", "Refusals"),
        ("bytes", "Left this client"),
        ("privacy", "Privacy, over the lifetime of the rows"),
    )
    waiting_headers = tuple(
        (name, True)
        for name in ("Question", "The answer would hold", "Decide", "Asked by", "Study", "Since")
    )
    ledger_headers = (
        *((name, True) for name in ("When", "Question", "Outcome", "Decided", "Study", "Asked by")),
        ("Bytes", False),
    )

    def __post_init__(self) -> None:
        self._approvals: Approvals = self.client.approvals()
        self._ledger = FileLedger(self.client.ledger_path)
        self._entries: list[Entry] = []
        self._position = 0
        self._waiting: dict[str, Waiting] = {}
        self._was_paused: bool | None = None
        self._looking = threading.Lock()
        self.events.set_text("heard", "This page is up to date.")
        self.look()

    @property
    def name(self) -> str:
        """The client's name."""
        return self.client.name

    def html(self) -> str:
        """The page as HTML, before any event."""
        return form_of(self, "client_page.html.jinja")

    def report(self) -> str | None:
        """None: a client's page never becomes a report."""

    def act(self, action: str, value: str) -> bool:
        """Approve, refuse, pause or resume; False if the button no longer applies."""
        try:
            if action == "approve":
                self._approvals.approve(value)
            elif action == "refuse":
                self._approvals.refuse(value)
            elif action == "pause":
                self._approvals.pause()
            elif action == "resume":
                self._approvals.resume()
            else:
                return False
        except OptionError:
            return False  # the question was decided meanwhile, or does not exist
        self.look()
        return True

    def follow(self, ended: threading.Event) -> None:
        """Update the page every `LOOK_SECONDS`, until `ended` is set."""
        while not ended.wait(LOOK_SECONDS):
            try:
                self.look()
            except StorageError as error:  # the next look may succeed
                self.events.set_text("heard", f"{error}.")

    def look(self) -> None:
        """Read the client's files, and show what changed."""
        with self._looking:
            self._look_at_rule()
            self._look_at_waiting()
            self._look_at_ledger()

    def _look_at_rule(self) -> None:
        is_paused = self._approvals.is_paused
        if is_paused == self._was_paused:
            return
        self._was_paused = is_paused
        rule = _PAUSED if is_paused else _RULES[self._approvals.asks]
        self.events.set_text("rule", rule)
        self.events.show("resume", shown=is_paused)
        self.events.show("pause", shown=not is_paused)
        self.events.set_text("heard", rule)

    def _look_at_waiting(self) -> None:
        now = {one.sha256: one for one in self._approvals.waiting()}
        for sha256 in self._waiting.keys() - now.keys():
            self.events.drop_row("waiting", sha256)
        for sha256, one in now.items():
            if self._waiting.get(sha256) != one:
                self._put_waiting(one)
        if now.keys() != self._waiting.keys():
            verb = "waits" if len(now) == 1 else "wait"
            asked = (
                f"{plural(len(now), 'question')} {verb} for you." if now else "No question waits."
            )
            self.events.set_text("heard", asked)
        self._waiting = now

    def _put_waiting(self, one: Waiting) -> None:
        query = QUERY_NAMED.get(one.query)
        if query is None:
            return  # from another version of fedopl; this one could not answer it
        late = (
            "" if one.is_waited_for else "; nobody waits for it now, so this is for the next time"
        )
        since = f"{_at(one.since)}{late}"
        cells = [query.title, one.holds, None, one.to or "unknown", one.study_name, since]
        about = f"{query.title}, exchange {one.exchange + 1} of {one.study_name}"
        approve = Button(label="Approve", about=about, action="approve", value=one.sha256)
        refuse = Button(label="Refuse", about=about, action="refuse", value=one.sha256)
        buttons = (approve, refuse) if self._approvals.asks else (refuse,)
        self.events.put_row("waiting", one.sha256, cells, buttons)

    def _look_at_ledger(self) -> None:
        first = not self._position
        found, self._position = self._ledger.since(self._position)
        before = len(self._entries)
        self._entries += found
        for place, entry in list(enumerate(found, before))[-MOST_ENTRIES if first else 0 :]:
            self.events.put_row("ledger", str(place), _cells(entry))
        if found or not before:
            self._put_figures()

    def _put_figures(self) -> None:
        answers = [entry for entry in self._entries if entry.query != UNLOCK]
        refusals = sum(bool(entry.reason) for entry in answers)
        self.events.set_text("answers", count(len(answers) - refusals))
        self.events.set_text("refusals", count(refusals))
        self.events.set_text("bytes", size(sum(entry.n_bytes for entry in answers)))
        studies, limits = summaries(self._entries), self.client.settings.limits
        has_promise = any(study.privacy for study in studies)
        promised = (
            promised_in_all(studies, limits) if has_promise else "no study had differential privacy"
        )
        self.events.set_text("privacy", promised)


def _cells(entry: Entry) -> list[str]:
    """The cells of one ledger entry, in words."""
    if entry.query == UNLOCK:
        return [_at(entry.when), "–", "unlocked by its owner", "", entry.study_name, "", ""]
    query = QUERY_NAMED.get(entry.query)
    outcome = "answered"
    if entry.reason:
        told = f"refused ({entry.reason}): {in_words(entry.reason).why}"
        outcome = f"{told}; here: {in_words(entry.why).why}" if entry.why else told
    return [
        _at(entry.when),
        entry.query if query is None else query.title,
        outcome,
        entry.owner,
        entry.study_name,
        entry.to,
        size(entry.n_bytes),
    ]


def _at(when: str) -> str:
    """A time as text, without fractions of a second."""
    return f"{when[:10]} {when[11:19]} UTC"
