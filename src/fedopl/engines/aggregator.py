"""An aggregator: to its members a server, to a server one client with the rows of all members.

It passes on every question as it came, byte for byte, so members' doors decide, count and write
down as they do for any server. What they answer is checked and becomes one answer.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fedopl.base.errors import OptionError, WireError
from fedopl.client.aggregator_file import LEAST_MEMBERS
from fedopl.client.disclosure.ledger import Ledger, MemoryLedger, entry_for
from fedopl.client.disclosure.study_history import SentAnswers
from fedopl.client.disk.store import MemoryStore, Store
from fedopl.messages import codec
from fedopl.messages.bundle import bundled, received
from fedopl.messages.derived_sizes import decoder_of, largest_query
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.outcome_sums import SumOutcomes, TellWeight
from fedopl.messages.learning.score_sums import SumScores
from fedopl.messages.message import Message, Query
from fedopl.messages.pooling import pooled_answer, why_not_pooled
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.vocabulary import queries_of
from fedopl.server.exchange.answers import AnswerReader, Replies, ReplyPart, Transport
from fedopl.server.exchange.cross_checks import CrossChecks, outlying_steps
from fedopl.study.study import Study

# What is asked on the first trip, in this order.
FIRST = (Enrol, TellWeight, SumOutcomes)
MOST_MISSING_NAMED = 5  # members that an entry of the ledger names


@dataclass
class Heard:
    """What members said to one question."""

    answers: dict[str, Message] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # why there is none, by name

    def leave_out(self, faults: Mapping[str, str]) -> None:
        """Count no answer of these members, with the reason."""
        self.missing |= {name: why for name, why in faults.items() if name in self.answers}
        self.answers = {n: answer for n, answer in self.answers.items() if n not in faults}

    @property
    def in_words(self) -> str:
        """Who is missing, for the ledger."""
        named = [f"{name}: {why}" for name, why in sorted(self.missing.items())]
        more = (
            f"; and {len(named) - MOST_MISSING_NAMED} more"
            if len(named) > MOST_MISSING_NAMED
            else ""
        )
        return "; ".join(named[:MOST_MISSING_NAMED]) + more


class Aggregator:
    """Speaks to a server as one client, for members whose answers it pools.

    Args:
        name: what it is called in the study, which lists it under `aggregators`.
        study: the study that it and its members agreed to.
        members: reaches them; a member may be an aggregator itself.
        minimum_members: the fewest members whose pooled answer it releases.
        ledger: where it writes down what it released.
        store: where it keeps what it released, to send it again.

    """

    def __init__(
        self,
        name: str,
        study: Study,
        members: Transport,
        *,
        minimum_members: int = LEAST_MEMBERS,
        ledger: Ledger | None = None,
        store: Store | None = None,
    ) -> None:
        check_aggregators(study, [name])
        if not members.clients:
            raise OptionError(f"{name}: an aggregator needs members, and has none")
        self.name, self.study, self.members = name, study, members
        self.minimum_members = minimum_members
        self.ledger: Ledger = MemoryLedger() if ledger is None else ledger
        self._decoder, self._digest = decoder_of(study), study.digest
        self._needed, self._largest = queries_of(study), largest_query(study)
        self._reader, self._checks = AnswerReader(study), CrossChecks(study)
        self._sent = SentAnswers(store or MemoryStore(), self._digest, name)
        self._counted: dict[str, float] = {}  # what members that take part count by

    def handle(self, content: bytes) -> bytes:
        """Answer a query, or several that came together; it never raises."""
        queries = received(content, self._largest)
        try:
            with self.ledger.locked():
                return bundled(self._handle(queries))
        except Exception:
            # What cannot be written down does not leave.
            refused = codec.encode(self._refusal(RefusalCode.FAILED, None))
            return bundled([refused] * len(queries))

    def _handle(self, contents: Sequence[bytes]) -> list[bytes]:
        read = [self._agreed(content) for content in contents]
        kept = [self._sent.get(_sha256(content)) for content in contents]
        passed = [k for k, q in enumerate(read) if isinstance(q, Query) and kept[k] is None]
        queries: list[Query[Any]] = [read[k] for k in passed]  # type: ignore[misc]
        found = self._pooled(queries, [contents[place] for place in passed]) if passed else []
        answers = dict(zip(passed, found, strict=True))
        encoded = []
        for place, (content, query) in enumerate(zip(contents, read, strict=True)):
            again = kept[place]
            if isinstance(query, RefusalCode):
                encoded.append(self._written_down(None, content, self._refusal(query, None), ""))
            elif again is not None:
                encoded.append(self._written_down(query, content, self._reader.again(again), ""))
            else:
                encoded.append(self._written_down(query, content, *answers[place]))
        return encoded

    def _agreed(self, content: bytes) -> Query[Any] | RefusalCode:
        """The query, if members would be asked it by an honest server; else why not."""
        try:
            query = self._decoder.decode(content)
        except codec.WrongVersionError:
            return RefusalCode.WRONG_VERSION
        except WireError:
            return RefusalCode.MALFORMED
        if query.study != self._digest:
            return RefusalCode.WRONG_STUDY
        if not isinstance(query, Query) or not query.is_plausible(self.study):
            return RefusalCode.MALFORMED
        return query if type(query) in self._needed else RefusalCode.NOT_IN_STUDY

    def _pooled(
        self, queries: Sequence[Query[Any]], contents: Sequence[bytes]
    ) -> list[tuple[Message, str]]:
        """One answer to each query, or a refusal; and who is missing in it."""
        heard = self._heard(queries, contents)
        answers: list[tuple[Message, str]] = []
        for query, own in zip(queries, heard, strict=True):
            if len(own.answers) < self._fewest(query):
                refusal = self._refusal(RefusalCode.TOO_FEW_MEMBERS, query)
                answers.append((refusal, own.in_words))
                continue
            total = pooled_answer(own.answers, self._counted, self.study)
            stamped = replace(total, study=self._digest, exchange=query.exchange)
            answers.append((stamped, own.in_words))
        return answers

    def _fewest(self, query: Query[Any]) -> float:
        """How many members have to answer; for who takes part, also the study's share of all."""
        decides = isinstance(query, Enrol | SumScores)
        quorum = self.study.quorum * len(self.members.clients) - 1e-9 if decides else 0
        return max(self.minimum_members, quorum, 1)

    def _heard(self, queries: Sequence[Query[Any]], contents: Sequence[bytes]) -> list[Heard]:
        """What members that take part said to each query."""
        if any(isinstance(query, Enrol) for query in queries):
            heard = self._asked(self.members.clients, queries, contents)
            self._count(dict(zip(map(type, queries), heard, strict=True)))
        else:
            self._know_members()
            heard = self._asked(tuple(self._counted), queries, contents)
        for query, own in zip(queries, heard, strict=True):
            own.leave_out(
                {name: "takes no part" for name in own.answers if name not in self._counted}
            )
            if isinstance(query, SumScores):  # whoever cannot, is out
                self._counted = {n: c for n, c in self._counted.items() if n in own.answers}
        return heard

    def _know_members(self) -> None:
        """After a restart, ask members again who takes part; they say what they said before."""
        if self._counted:
            return
        needed = [kind() for kind in FIRST if kind.needed(self.study)]
        queries = [replace(q, study=self._digest, exchange=k) for k, q in enumerate(needed)]
        contents = [codec.encode(query) for query in queries]
        heard = self._asked(self.members.clients, queries, contents)
        self._count(dict(zip(map(type, queries), heard, strict=True)))

    def _count(self, heard: Mapping[type, Heard]) -> None:
        """Who takes part, and what each counts by."""
        enrolled = heard[Enrol]
        told = heard[TellWeight].answers if TellWeight in heard else None
        sums = heard[SumOutcomes].answers if SumOutcomes in heard else None
        faults = {
            name: self._checks.fault_in_enrolment(name, sums, told)  # type: ignore[arg-type]
            for name in enrolled.answers
        }
        enrolled.leave_out({name: why for name, why in faults.items() if why})
        rows: dict[str, Any] = enrolled.answers
        weights: dict[str, Any] | None = told
        self._counted = {
            name: float(weights[name].weight if weights else answer.n_rows)
            for name, answer in sorted(rows.items())
        }

    def _asked(
        self, members: Sequence[str], queries: Sequence[Query[Any]], contents: Sequence[bytes]
    ) -> list[Heard]:
        """Put the questions to members on one trip, and check what each says."""
        asked = dict.fromkeys(members, bundled(list(contents)))
        replies = Replies.arriving(self.members.exchange(asked))
        found = []
        for place, query in enumerate(queries):
            heard = self._sorted_out(query, members, ReplyPart(replies, place, len(queries)))
            heard.leave_out(outlying_steps(query, heard.answers, self._checks.rows))
            self._checks.remember(query, heard.answers)
            found.append(heard)
        return found

    def _sorted_out(self, query: Query[Any], members: Sequence[str], replies: ReplyPart) -> Heard:
        times, heard = replies.whole.times(), Heard()
        for place, content in replies:
            name = place.name
            if name not in members or times[name] > 1:
                heard.missing[name] = "was not asked, or answered more than once"
                continue
            try:
                message = self._reader.read(query, content)
            except WireError as error:
                heard.missing[name] = str(error)
                continue
            if isinstance(message, Refusal):
                heard.missing[name] = message.reason.name
            elif fault := self._checks.fault_in(name, query, message):
                heard.missing[name] = fault
            else:
                heard.answers[name] = message
        silent = [name for name in members if name not in times]
        heard.missing |= dict.fromkeys(silent, "no answer")
        return heard

    def _written_down(
        self, query: Query[Any] | None, content: bytes, answer: Message, missing: str
    ) -> bytes:
        encoded, asked = codec.encode(answer), _sha256(content)
        if not isinstance(answer, Refusal):
            self._sent.keep(asked, encoded)
        entry = entry_for(query, asked, answer, encoded, why=missing, study_name=self.study.name)
        self.ledger.append(entry)
        return encoded

    def _refusal(self, code: RefusalCode, query: Message | None) -> Refusal:
        exchange = query.exchange if query else 0
        return Refusal(study=self._digest, exchange=exchange, reason=code)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def check_aggregators(study: Study, names: Sequence[str]) -> None:
    """Before any row is touched, refuse a study that cannot be run through these aggregators."""
    for name in names:
        if name not in study.aggregators:
            raise OptionError(
                f"aggregators: '{name}' adds up other clients' answers, and the study does not "
                f'list it; add aggregators = ["{name}"], so that all parties agree'
            )
    if study.aggregators and (why := why_not_pooled(study)):
        raise OptionError(f"aggregators: {why}")
