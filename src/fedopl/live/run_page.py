"""The live page of a run: its exchanges as they happen, and in the end its report."""

from fedopl.live.page_server import PageEvents, form_of
from fedopl.messages.refusal import RefusalCode, in_words
from fedopl.messages.vocabulary import QUERY_NAMED
from fedopl.report.words.numbers import count, listed, plural, size
from fedopl.results.round import Round, SoFar
from fedopl.study.study import Study

MOST_CLIENT_ROWS = 200  # clients that have a row of their own
_PRIVACY = "Privacy spent"
_PAID = (
    "The study promises ε = {epsilon:g} at δ = {delta:g}. A client pays for all of it with its "
    "first answer, as its ledger says; further answers of the study cost no more."
)


class RunPage:
    """The page of one run. It knows the study from the start, and the clients from `begin` on."""

    def __init__(self, study: Study) -> None:
        self.study, self.title = study, study.name
        self.events = PageEvents()
        self.has_failed = False
        self._so_far, self._report = SoFar(), ""
        self._shown: dict[str, list[str]] = {}
        self._clients: tuple[str, ...] = ()
        self._n_expected = 0

    # --- what the template shows ---------------------------------------------------------------

    @property
    def figures(self) -> list[tuple[str, str]]:
        """The element and the name of each figure on the page."""
        named = [
            ("sent", "Sent to clients"),
            ("received", "Received from clients"),
            ("value", "Value, estimated"),
            ("loss", "Loss"),
        ]
        return [*named, ("privacy", _PRIVACY)] if self.study.privacy else named

    @property
    def privacy_note(self) -> str:
        """What differential privacy costs in this study; empty without differential privacy."""
        plan = self.study.privacy
        return "" if plan is None else _PAID.format(epsilon=plan.epsilon, delta=plan.delta)

    @property
    def client_headers(self) -> list[tuple[str, bool]]:
        """The headers of the table of clients, and whether each column holds words."""
        privacy = [(_PRIVACY, False)] if self.study.privacy else []
        return [
            ("Client", True),
            ("State", True),
            ("Answers", False),
            ("Received", False),
            *privacy,
        ]

    @property
    def exchange_headers(self) -> list[tuple[str, bool]]:
        """The headers of the table of exchanges, and whether each column holds words."""
        words = [("Question", True), ("Answers", True)]
        numbers = ["Sent", "Received", "Loss", "Value"]
        return [*words, *((name, False) for name in numbers)]

    def html(self) -> str:
        """The page as HTML, before any event."""
        return form_of(self, "run_page.html.jinja")

    def report(self) -> str | None:
        """The report, once the run is over."""
        return self._report or None

    def act(self, _action: str, _value: str) -> bool:
        """Always False: this page has no buttons."""
        return False

    # --- what happens --------------------------------------------------------------------------

    def begin(self, clients: tuple[str, ...], n_expected: int) -> None:
        """Show the clients, and how many exchanges there may be at most."""
        self._clients, self._n_expected = clients, n_expected
        for name in clients[:MOST_CLIENT_ROWS]:
            self._put_client(name)
        if len(clients) > MOST_CLIENT_ROWS:
            hidden = f"and {count(len(clients) - MOST_CLIENT_ROWS)} more"
            cells = [hidden, "in the report", "", "", *([""] if self.study.privacy else [])]
            self.events.put_row("clients", "", cells)
        self.events.set_text("heard", f"{plural(len(clients), 'client')} will be asked.")
        self._put_figures()

    def note(self, text: str) -> None:
        """Show a message about something other than an exchange."""
        self.events.set_text("heard", f"{text[:1].upper()}{text[1:]}.")

    def tell(self, latest: Round) -> None:
        """Show an exchange, or its loss and value once they are known."""
        self._so_far.tell(latest)
        self._put_exchange(latest)
        for name in self._clients[:MOST_CLIENT_ROWS]:
            self._put_client(name)
        self._put_figures()
        title = QUERY_NAMED[latest.query].title
        answered = f"{count(len(latest.answered))} of {count(len(latest.asked))} answered"
        self.events.set_text("heard", f"{title}: {answered}.")

    def fail(self, why: str) -> None:
        """Show that the run ended without a result, with the same words as the terminal."""
        self.events.set_text("failure", why)
        self.events.show("failed", shown=True)
        self.has_failed = True
        self.events.set_text("heard", "The run ended without a result.")

    def finish(self, report: str) -> None:
        """Replace the page with the report."""
        self._report = report
        self.events.set_text("heard", "The run is finished. This page turns into the report.")
        self.events.go_to("report")

    def _put_figures(self) -> None:
        rounds, so_far = self._so_far.rounds.values(), self._so_far
        done = len(rounds)
        expected = f"{count(done)} of {plural(self._n_expected, 'exchange')} at most"
        self.events.set_text("done", f"{expected} {'is' if done == 1 else 'are'} done")
        self.events.set_bar("bar", done, max(self._n_expected, done, 1))
        self.events.set_text("sent", size(sum(one.bytes_sent for one in rounds)))
        self.events.set_text("received", size(sum(one.bytes_received for one in rounds)))
        self.events.set_text("value", _number(so_far.last("value")))
        self.events.set_text("loss", _number(so_far.last("loss")))
        if self.study.privacy:
            paid = sum(self._has_paid(name) for name in self._clients)
            spent = f"ε = {self.study.privacy.epsilon:g} at {plural(paid, 'client')}"
            self.events.set_text("privacy", spent if paid else "nothing yet")

    def _put_client(self, name: str) -> None:
        own = self._so_far.client(name)
        state = "waiting" if own.last is None else _state_in(own.last, name)
        cells = [name, state, count(own.answers), size(own.n_bytes)]
        if self.study.privacy:
            paid = f"ε = {self.study.privacy.epsilon:g}" if self._has_paid(name) else "nothing yet"
            cells.append(paid)
        if self._shown.get(name) != cells:
            self._shown[name] = cells
            self.events.put_row("clients", name, cells)

    def _has_paid(self, name: str) -> bool:
        """Whether the client gave an answer or failed to, which may cost as much privacy."""
        failed, rounds = RefusalCode.FAILED.name, self._so_far.rounds.values()
        return any(name in one.answered or one.refused.get(name) == failed for one in rounds)

    def _put_exchange(self, latest: Round) -> None:
        others = {
            "refused": [f"{name} ({code})" for name, code in sorted(latest.refused.items())],
            "rejected": sorted(latest.rejected),
            "no answer": list(latest.silent),
        }
        answers = [f"{count(len(latest.answered))} of {count(len(latest.asked))}"]
        answers += [f"{what}: {listed(names)}" for what, names in others.items() if names]
        cells = [
            f"{latest.exchange + 1}. {QUERY_NAMED[latest.query].title}",
            "; ".join(answers),
            size(latest.bytes_sent),
            size(latest.bytes_received),
            _number(latest.loss),
            _number(latest.value),
        ]
        self.events.put_row("exchanges", str(latest.exchange), cells)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def _state_in(latest: Round, name: str) -> str:
    """The outcome of the last question to a client, in words."""
    title = QUERY_NAMED[latest.query].title
    if name in latest.refused:
        return f"refused “{title}”: {in_words(latest.refused[name]).why}"
    if name in latest.rejected:
        return f"its answer to “{title}” was rejected: {latest.rejected[name]}"
    return f"no answer to “{title}”" if name in latest.silent else "answered"
