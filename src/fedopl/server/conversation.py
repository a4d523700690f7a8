"""Asking clients: every answer is checked, every refusal and rejection is recorded by name."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from fedopl.errors import FederationError, WireError
from fedopl.labels import quoted
from fedopl.server.journal import Journal, Replies
from fedopl.server.transport import Transport
from fedopl.study import Study
from fedopl.wire import codec
from fedopl.wire.vocabulary import ANSWERS, Message, Refusal, axis_sizes

# Larger numbers than this cannot be squared and added up.
LARGEST_NUMBER = 1e100

Answer = TypeVar("Answer", bound=Message)
Progress = Callable[["Round"], None]


@dataclass(frozen=True, kw_only=True)
class Round:
    """One exchange with the clients, as it went."""

    exchange: int
    query: str
    asked: tuple[str, ...]
    answered: tuple[str, ...]
    refused: dict[str, str]  # client → code
    rejected: dict[str, str]  # client → what was wrong with its answer
    silent: tuple[str, ...]
    bytes_sent: int
    received: dict[str, int]  # client → bytes
    loss: float | None = None  # the oracle's objective after this round, where it has one
    value: float | None = None  # the policy's estimated value, where it was asked for

    @property
    def bytes_received(self) -> int:
        """From all clients together."""
        return sum(self.received.values())


@dataclass
class Conversation:
    """The run's exchanges, one after the other."""

    study: Study
    transport: Transport
    journal: Journal
    progress: Progress | None = None
    rounds: list[Round] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sizes, self._digest = axis_sizes(self.study), self.study.digest

    def ask(
        self,
        make: Callable[..., Message],
        clients: Iterable[str],
        answer: type[Answer],
        **fields: object,
    ) -> dict[str, Answer]:
        """Put the same query to these clients; their answers come back by name, in sorted order."""
        exchange = len(self.rounds)
        query = make(study=self._digest, exchange=exchange, **fields)
        encoded = codec.encode(query)
        asked = tuple(sorted(clients))
        replies = self._replies(exchange, dict.fromkeys(asked, encoded))
        answers, latest = self._sort_out(query, answer, asked, replies, len(encoded))
        self.rounds.append(latest)
        if self.progress:
            self.progress(latest)
        return answers

    def _replies(self, exchange: int, queries: dict[str, bytes]) -> Replies:
        replayed = self.journal.replay(exchange, queries)
        if replayed is not None:
            return replayed
        # Sorted: what is journalled must not depend on the order in which answers arrive.
        replies = sorted(self.transport.exchange(queries))
        self.journal.keep(exchange, queries, replies)
        return replies

    def _sort_out(
        self,
        query: Message,
        expected: type[Answer],
        asked: tuple[str, ...],
        replies: Replies,
        query_bytes: int,
    ) -> tuple[dict[str, Answer], Round]:
        answers: dict[str, Answer] = {}
        refused: dict[str, str] = {}
        rejected: dict[str, str] = {}
        times = Counter(name for name, _ in replies)
        for name, content in replies:
            if name not in asked:
                rejected[name] = "was not asked"
            elif times[name] > 1:
                rejected[name] = f"answered {times[name]} times"
            else:
                try:
                    message = self._checked(query, expected, content)
                except WireError as error:
                    rejected[name] = str(error)
                    continue
                if isinstance(message, Refusal):
                    refused[name] = message.reason.name
                else:
                    answers[name] = message
        heard = {name for name, _ in replies}
        latest = Round(
            exchange=query.exchange,
            query=type(query).__name__,
            asked=asked,
            answered=tuple(answers),
            refused=refused,
            rejected=rejected,
            silent=tuple(name for name in asked if name not in heard),
            bytes_sent=query_bytes * len(asked),
            received=_sizes(replies),
        )
        return answers, latest

    def _checked(self, query: Message, expected: type[Answer], content: bytes) -> Answer | Refusal:
        message = codec.decode(content, self._sizes)
        if message.study != self._digest:
            raise WireError("answers for another study")
        if isinstance(message, Refusal):
            return message
        _check_size(message)
        if message.exchange != query.exchange:
            raise WireError(f"answers exchange {message.exchange}, this is {query.exchange}")
        if not isinstance(message, expected) or type(message) is not ANSWERS[type(query)]:
            raise WireError(f"answers with {type(message).__name__}")
        return message

    def measure(self, *, loss: float | None = None, value: float | None = None) -> None:
        """Record what the latest exchange came to."""
        latest = replace(self.rounds[-1], loss=loss, value=value)
        self.rounds[-1] = latest
        if self.progress:
            self.progress(latest)

    def reject(self, name: str, reason: str) -> None:
        """Record that the latest answer of a client could be read and still not be used."""
        latest = self.rounds[-1]
        answered = tuple(other for other in latest.answered if other != name)
        rejected = {**latest.rejected, name: reason}
        self.rounds[-1] = replace(latest, answered=answered, rejected=rejected)

    def drop(
        self, answers: dict[str, Answer], fault_in: Callable[[Answer], str | None]
    ) -> dict[str, Answer]:
        """The answers without fault; the others are rejected by name."""
        return self.drop_by_name(answers, lambda _name, answer: fault_in(answer))

    def drop_by_name(
        self, answers: dict[str, Answer], fault_in: Callable[[str, Answer], str | None]
    ) -> dict[str, Answer]:
        """The same, where what is a fault depends on whose answer it is."""
        kept = {}
        for name, answer in answers.items():
            fault = fault_in(name, answer)
            if fault:
                self.reject(name, fault)
            else:
                kept[name] = answer
        return kept

    def require_quorum(
        self, answers: dict[str, Answer], *, of: int | None = None, share: float | None = None
    ) -> dict[str, Answer]:
        """The answers, if enough clients gave one: the study's share of all, unless said."""
        n_clients = len(self.transport.clients) if of is None else of
        share = self.study.quorum if share is None else share
        if len(answers) < max(1, share * n_clients):
            latest = self.rounds[-1]
            reasons = [f"{name}: refused ({code})" for name, code in sorted(latest.refused.items())]
            reasons += [f"{name}: {why}" for name, why in sorted(latest.rejected.items())]
            reasons += [f"{name}: no answer" for name in latest.silent]
            raise FederationError(
                f"{latest.query}: {len(answers)} of {n_clients} clients gave an answer that can be "
                f"used, the quorum is {share:.0%}; {quoted(reasons)}"
            )
        return answers


def _sizes(replies: Replies) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for name, content in replies:
        sizes[name] += len(content)
    return dict(sizes)


def _check_size(message: Message) -> None:
    for name, axes in codec.FIELDS[type(message)]:
        if isinstance(axes, tuple):
            largest = float(np.abs(getattr(message, name)).max(initial=0.0))
            if largest > LARGEST_NUMBER:
                raise WireError(f"{name}: a number as large as {largest:.0e} cannot be added up")
