"""Asks clients, checks every answer, and records every refusal and rejection by name."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from fedopl.base.errors import FederationError, WireError
from fedopl.messages import codec
from fedopl.messages.bundle import bundled
from fedopl.messages.combining import combined
from fedopl.messages.message import Asked, Query
from fedopl.messages.refusal import Refusal, in_words
from fedopl.results.round import Round
from fedopl.server.exchange.answers import (
    AmongSources,
    Answer,
    AnswerReader,
    Answers,
    KeptMessages,
    Place,
    Replies,
    ReplyPart,
    Transport,
)
from fedopl.server.exchange.cross_checks import CrossChecks, outlying_steps
from fedopl.server.exchange.journal import Journal, LedgerHeads
from fedopl.study.mixture import Weights, renormalised
from fedopl.study.study import Study

# What a share of clients, times how many there are, may be off by.
_ROUNDING = 1e-9
# With more clients, most answers are kept in a file, even if each client's own answer is needed.
FEW_CLIENTS = 1_000
# Replies are checked together up to so many bytes, which stay in a core's cache.
BYTES_CHECKED_TOGETHER = 1 << 15
# An error lists the reasons of at most this many clients.
MOST_REASONS = 10

Progress = Callable[["Round"], None]


@dataclass
class Conversation:
    """The run's exchanges, one after the other."""

    study: Study
    transport: Transport
    journal: Journal = field(default_factory=Journal)
    progress: Progress | None = None
    rounds: list[Round] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.study.target is not None:
            self.transport = AmongSources(self.transport, self.study.target.client)
        self._heads = LedgerHeads(self.journal.folder)
        self.go_on_as(self.study)

    def go_on_as(self, study: Study) -> None:
        """From now on, ask about this study."""
        self.study = study
        self._reader, self._digest = AnswerReader(study), study.digest
        self.checks = CrossChecks(study)

    def each(self, query: Query[Answer], clients: Iterable[str]) -> Answers[Answer]:
        """Every client's own answer to this query, by name and in sorted order."""
        _check_asked(query, Asked.EACH)
        (answers,) = self.together(clients, query)
        return answers

    def total(self, query: Query[Answer], weights: Weights) -> Answer:
        """The total of the answers, combined as their fields declare; a quorum must answer.

        `weights` has the agreed weight of each client to ask. Answers are added up one at a time,
        in the order of names. So no client's answer stays in memory, and the order of arrival does
        not change the result.
        """
        _check_asked(query, Asked.TOTAL)
        answers: Answers[Answer] = self.together(weights, query)[0]
        self.require_quorum(answers)
        return combined(answers, renormalised(weights, answers.keys()))

    def together(
        self, clients: Iterable[str], /, *queries: Query[Any] | Mapping[str, Query[Any]]
    ) -> tuple[Answers[Any], ...]:
        """The answers to several queries, sent to the same clients in one round trip.

        A query may also differ by client. Then all clients' queries have the same kind and size.
        """
        first, asked = len(self.rounds), tuple(sorted(clients))
        stamped, encoded, own = [], [], {}
        for place, query in enumerate(queries):
            each = query if isinstance(query, Mapping) else {"everybody": query}
            sent = {name: self._stamped(one, first + place) for name, one in sorted(each.items())}
            written = {name: codec.encode(one) for name, one in sent.items()}
            any_of_them = next(iter(sent))
            stamped.append(sent[any_of_them])
            encoded.append(written[any_of_them])
            if isinstance(query, Mapping):
                own[place] = written
        content = dict.fromkeys(asked, bundled(encoded))
        if own:
            for name in asked:
                parts = [own[k][name] if k in own else one for k, one in enumerate(encoded)]
                content[name] = bundled(parts)
        replies = self._replies(self._next_trip, content)
        return self._sorted_out(stamped, encoded, asked, replies)

    def apart(self, queries: Mapping[str, Query[Answer]]) -> Answers[Answer]:
        """The answers to a different query for each client, all of one kind and size."""
        (answers,) = self.together(queries, queries)
        return answers

    def _stamped(self, query: Query[Answer], exchange: int) -> Query[Answer]:
        return replace(query, study=self._digest, exchange=exchange)

    def encoded(self, query: Query[Any], exchange: int) -> bytes:
        """The bytes of this query as sent to all clients in this exchange."""
        return codec.encode(self._stamped(query, exchange))

    @property
    def _next_trip(self) -> int:
        return self.rounds[-1].trip + 1 if self.rounds else 0

    def _sorted_out(
        self,
        stamped: Sequence[Query[Any]],
        encoded: Sequence[bytes],
        asked: tuple[str, ...],
        replies: Replies,
    ) -> tuple[Answers[Any], ...]:
        """The answers to each query of a round trip; also records all exchanges."""
        trip, found = self._next_trip, []
        for place, (query, content) in enumerate(zip(stamped, encoded, strict=True)):
            own = ReplyPart(replies, place, len(stamped))
            answers, latest = self._sort_out(query, asked, own, len(content))
            went_back = {} if place else self._heads.went_back(trip)
            self.rounds.append(replace(latest, trip=trip, went_back=went_back))
            # A step much longer than others' would move the policy too far.
            outlying = outlying_steps(query, answers, self.checks.rows)
            found.append(self.reject(answers, outlying) if outlying else answers)
            if self.progress:
                self.progress(self.rounds[-1])
        return tuple(found)

    def _replies(self, trip: int, queries: dict[str, bytes]) -> Replies:
        replayed = self.journal.replay(trip, queries)
        if replayed is not None:
            return replayed
        replies = Replies.arriving(self.transport.exchange(queries))
        self.journal.keep(trip, queries, replies)
        self._heads.note(trip, replies.heads)
        return replies

    def _sort_out(
        self, query: Query[Answer], asked: tuple[str, ...], replies: ReplyPart, query_bytes: int
    ) -> tuple[Answers[Answer], Round]:
        held: dict[str, Answer | Callable[[], Answer]] = {}
        many = KeptMessages(self._digest, query.exchange) if len(asked) > FEW_CLIENTS else None
        faults: dict[str, str] = {}
        not_read = _NotRead()
        for some in _in_groups(self._read(query, asked, replies, not_read)):
            messages = {place.name: message for place, message in some}
            faults |= self.checks.faults_in(query, messages)
            for place, message in some:
                if place.name in faults:
                    continue
                if query.asked is Asked.TOTAL:
                    held[place.name] = partial(self._again, replies, place)
                else:
                    held[place.name] = many.keeping(message) if many else message
        latest = Round(
            exchange=query.exchange,
            trip=0,
            query=type(query).__name__,
            asked=asked,
            answered=tuple(held),
            refused=not_read.refused,
            rejected={**not_read.rejected, **faults},
            silent=tuple(name for name in asked if name not in not_read.received),
            bytes_sent=query_bytes * len(asked),
            received=dict(not_read.received),
        )
        answers = Answers(query.exchange, held)
        self.checks.remember(query, answers)
        return answers, latest

    def _read(
        self, query: Query[Answer], asked: tuple[str, ...], replies: ReplyPart, beside: "_NotRead"
    ) -> Iterator[tuple[Place, Answer]]:
        """The answers among the replies; what else there is, is noted beside them."""
        times, expecting = replies.whole.times(), set(asked)
        for place, content in replies:
            name = place.name
            beside.received[name] += len(content)
            if name not in expecting:
                beside.rejected[name] = "was not asked"
            elif times[name] > 1:  # the server cannot know which one is genuine
                beside.rejected[name] = f"answered {times[name]} times"
            else:
                try:
                    message = self._reader.read(query, content)
                except WireError as error:
                    beside.rejected[name] = str(error)
                    continue
                if isinstance(message, Refusal):
                    beside.refused[name] = message.reason.name
                else:
                    yield place, message

    def _again(self, replies: ReplyPart, place: Place) -> Any:
        """An answer that was checked before and not kept."""
        return self._reader.again(replies.read(place))

    def measure(
        self, exchange: int, *, loss: float | None = None, value: float | None = None
    ) -> None:
        """Record the loss and the value that an exchange led to."""
        self.rounds[exchange] = replace(self.rounds[exchange], loss=loss, value=value)
        if self.progress:
            self.progress(self.rounds[exchange])

    def drop(
        self, answers: Answers[Answer], fault_in: Callable[[str, Answer], str | None]
    ) -> Answers[Answer]:
        """The answers without a fault; others are rejected. A fault may depend on the client."""
        found = {name: fault_in(name, answer) for name, answer in answers.items()}
        return self.reject(answers, {name: fault for name, fault in found.items() if fault})

    def reject(self, answers: Answers[Answer], faults: Mapping[str, str]) -> Answers[Answer]:
        """The answers without those of these clients; records why each was rejected."""
        known = self.rounds[answers.exchange]
        self.rounds[answers.exchange] = replace(
            known,
            answered=tuple(name for name in known.answered if name not in faults),
            rejected={**known.rejected, **faults},
        )
        return answers.without(faults)

    def has_quorum(self, answers: Answers[Answer]) -> bool:
        """Whether enough clients gave an answer, by the study's quorum."""
        return len(answers) >= _fewest(self.study.quorum, len(self.transport.clients))

    def require_quorum(
        self, answers: Answers[Answer], *, of: int | None = None, share: float | None = None
    ) -> Answers[Answer]:
        """The answers, if enough clients gave one; otherwise an error.

        By default, this is the study's quorum, as a share of all clients.
        """
        n_clients = len(self.transport.clients) if of is None else of
        share = self.study.quorum if share is None else share
        if len(answers) < _fewest(share, n_clients):
            latest = self.rounds[answers.exchange]
            # A resumed run asks again: clients that failed now may answer then.
            self.journal.forget(latest.trip)
            reasons = [
                f"{name} refused ({code}): {in_words(code).why}. {in_words(code).remedy}"
                for name, code in sorted(latest.refused.items())
            ]
            reasons += [f"{name}: {why}" for name, why in sorted(latest.rejected.items())]
            reasons += [f"{name}: no answer" for name in latest.silent]
            needed = f"; the quorum is {share:.0%}" if share else ""
            listed = "".join(f"\n  {reason}" for reason in reasons[:MOST_REASONS])
            listed += "\n  …" if len(reasons) > MOST_REASONS else ""
            raise FederationError(
                f"{latest.query}: {len(answers)} of {n_clients} clients gave an answer that can be "
                f"used{needed}{listed}"
            )
        return answers


def _fewest(share: float, n_clients: int) -> float:
    """How many of so many clients are this share of them, at least one."""
    return max(1, share * n_clients - _ROUNDING)


@dataclass
class _NotRead:
    """What there is in replies to one query besides answers, by name; and the bytes of each."""

    received: Counter[str] = field(default_factory=Counter)
    refused: dict[str, str] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)


def _in_groups(
    answers: Iterable[tuple[Place, Answer]],
) -> Iterator[list[tuple[Place, Answer]]]:
    """The answers, as many at a time as are checked together."""
    some, n_bytes = list[tuple[Place, Answer]](), 0
    for place, answer in answers:
        some.append((place, answer))
        n_bytes += place.size
        if n_bytes >= BYTES_CHECKED_TOGETHER:
            yield some
            some, n_bytes = [], 0
    if some:
        yield some


def _check_asked(query: Query[Any], how: Asked) -> None:
    """Refuse to ask for each client's answer if the query needs only a total, and vice versa."""
    if query.asked is not how:
        raise TypeError(f"{type(query).__name__} asks for {query.asked.value}, not {how.value}")
