"""The door: bytes in, bytes out. It never raises, and nothing leaves any other way."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import isfinite
from typing import Any

from fedopl.base.arrays import largest_size, perhaps_beyond
from fedopl.base.computed_once import computed_once
from fedopl.base.errors import StorageError, WireError
from fedopl.client.answers.handlers import HANDLERS, PRIVATE_HANDLERS, TARGET_HANDLERS
from fedopl.client.disclosure.approvals import Approvals, OwnerDecision, Question
from fedopl.client.disclosure.checked_ledger import CheckedLedger, with_checks
from fedopl.client.disclosure.ledger import Ledger, MemoryLedger, Questions, entry_for
from fedopl.client.disclosure.limits import Limits, RefusedError
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.disclosure.study_history import SentAnswers, StudyHistory, study_gone_on_as
from fedopl.client.disk.store import Store
from fedopl.client.personal_at_home import AtHome, solve_at_home, value_at_home
from fedopl.client.private.private_workspace import PrivateWorkspace
from fedopl.client.table.logged_data import LoggedData
from fedopl.client.workspace import Rule, TargetWorkspace, Workspace
from fedopl.messages import codec
from fedopl.messages.about_masks import is_masked, is_read_alone
from fedopl.messages.answer_words import answer_in_words
from fedopl.messages.bundle import bundled, received
from fedopl.messages.derived_sizes import decoder_of, largest_query
from fedopl.messages.message import Message, Query, stamped
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.vocabulary import queries_of
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study

# Clients in one process get the same queries, a few at a time. Small queries are read and hashed
# once for all. Large ones are read by each client instead of being cached.
MOST_QUERIES, MOST_CACHED_BYTES = 8, 1 << 16


def _sha256(content: bytes) -> str:
    """The hash by which ledgers identify a query."""
    return hashlib.sha256(content).hexdigest()


_read_once = lru_cache(MOST_QUERIES)(codec.Decoder.decode)
_hash_once = lru_cache(MOST_QUERIES)(_sha256)


class Door:
    """One client's answers to one study's queries.

    Args:
        name: what the client is called in the study.
        data: its rows.
        study: the study it agreed to.
        secret: decides, with the seed, which rows are held out, which a batch takes, and the noise
            of a study with `[privacy]`; `SEED_ALONE` only where the caller holds all rows.
        limits: what it is willing to release.
        store: where it keeps its scores between messages.
        ledger: where it writes down what it released.
        rules: the study's candidate policies that are code; code never crosses, only its position.
        regressor: the outcome model that is plugged in, where the study says that one is.
        approvals: where its owner decides about each query, if at all.

    """

    def __init__(
        self,
        name: str,
        data: LoggedData,
        study: Study,
        *,
        secret: str,
        limits: Limits | None = None,
        store: Store | None = None,
        ledger: Ledger | None = None,
        rules: Mapping[str, Rule] | None = None,
        regressor: object = None,
        approvals: Approvals | None = None,
    ) -> None:
        self.name, self.study = name, study
        self.approvals = approvals
        self.limits = limits or Limits()
        self.ledger = MemoryLedger() if ledger is None else with_checks(ledger, store)
        draws = PrivateDraws(study.seed, name, secret)
        self._after: Door | None = None  # for the study that this one continues as
        self._is_kept = False  # the history of what the ledger says was told, as far as checked
        own = data, study, self.limits, draws
        self._space: Workspace | PrivateWorkspace
        if study.privacy:
            self._space = PrivateWorkspace(*own, store=store)
        elif study.is_target(name):
            self._space = TargetWorkspace(*own, store=store)
        else:
            self._space = Workspace(*own, store=store, rules=rules, regressor=regressor)
        self._decoder, self._digest = decoder_of(study), study.digest
        agreed = study.before_screening
        self._agreed_on = "" if agreed is study else agreed.digest.hex()
        self._needed = frozenset(queries_of(study) & self._handlers.keys())
        self._largest = largest_query(study)

    def handle(self, content: bytes) -> bytes:
        """Answer a query, or several that came together; whatever happens, no text leaves."""
        queries = received(content, self._largest)
        decisions = self._decisions(queries)
        return bundled(list(map(self._handle, queries, decisions)))

    def _decisions(self, queries: Sequence[bytes]) -> Sequence[OwnerDecision]:
        """What the owner decides about each query; no lock is held in the meantime."""
        if self.approvals is None or not self.approvals.are_needed:
            return [OwnerDecision.NOT_ASKED] * len(queries)
        try:
            return self.approvals.decided([self._question(query) for query in queries])
        except Exception:
            # If it is not known whether the owner approves, nothing leaves.
            return [OwnerDecision.NO_PAGE] * len(queries)

    def _question(self, content: bytes) -> Question | None:
        """A query as the owner sees it; None if the door refuses it, whatever the owner decides."""
        try:
            with self.ledger.locked():
                door = self._answering(content)
            query = door._agreed(door._decoder.decode(content))
        except (WireError, RefusedError):
            return None
        return Question(
            sha256=_sha256(content),
            query=type(query).__name__,
            exchange=query.exchange,
            study_name=self.study.name,
            holds=answer_in_words(query, door.study),
        )

    def _handle(self, content: bytes, decision: OwnerDecision) -> bytes:
        """Answer a query while no other process can, so that each is answered once."""
        try:
            with self.ledger.locked():
                door = self._answering(content)
                if not door._is_kept:  # if it is lost, nothing is written down either
                    door._check_kept()
                    door._is_kept = True
                return door._handle_alone(content, decision)
        except Exception:
            # An answer that cannot be recorded does not leave.
            return codec.encode(self._refusal(RefusalCode.FAILED, self._read_if_any(content)))

    def _answering(self, content: bytes) -> "Door":
        """The door itself, or the one for the study that its own continues as."""
        if self.study.is_screened or codec.study_asked_about(content) == self._digest:
            return self
        if self._after is None:
            found = study_gone_on_as(self.study, self._history, content, self._decoder)
            self._after = None if found is None else self._to(found)
        return self._after or self

    @property
    def _history(self) -> StudyHistory:
        if isinstance(self._space, Workspace):
            return self._space.history
        return StudyHistory(self._space.store, f"{self._space.key} {self.name}")

    def _to(self, study: Study) -> "Door":
        """A door to the same rows for the study that its own continues as."""
        space = self._space
        own: dict[str, Any] = {}
        if isinstance(space, Workspace):
            data, own = space.study_rows.given, {"rules": space.rules, "regressor": space.regressor}
        else:
            data = space.rows.given
        return Door(
            self.name,
            data,
            study,
            secret=space.draws.secret,
            limits=self.limits,
            store=space.store,
            ledger=self.ledger,
            **own,
        )

    def _read_if_any(self, content: bytes) -> Message | None:
        try:
            return self._decoder.decode(content)
        except WireError:
            return None

    def _handle_alone(self, content: bytes, decision: OwnerDecision) -> bytes:
        """Answer a query, or refuse it with a code."""
        query: Message | None = None
        why = ""
        is_small = len(content) <= MOST_CACHED_BYTES
        asked = (_hash_once if is_small else _sha256)(content)
        try:
            query = (_read_once if is_small else codec.Decoder.decode)(self._decoder, content)
            answered = self._answer(self._agreed(query), asked, decision)
        except (Exception, SystemExit) as error:
            code = _reason(error)
            if self.study.privacy and code in _DEPENDS_ON_ROWS:
                # The client alone is told which of them it was.
                why, code = code.name, RefusalCode.FAILED
            refusal = self._refusal(code, query)
            answered = refusal, codec.encode(refusal)
        return self._written_down(query, asked, answered, why, decision)

    def _written_down(
        self,
        query: Message | None,
        asked: str,
        answered: tuple[Message, bytes],
        why: str,
        decision: OwnerDecision,
    ) -> bytes:
        answer, encoded = answered
        try:
            mu, slip = PrivateSetting(self.study).lifetime if self.study.privacy else (0.0, 0.0)
            entry = entry_for(
                query,
                asked,
                answer,
                encoded,
                why=why,
                study_name=self.study.name,
                privacy=mu,
                slip=slip,
                agreed=self._agreed_on,
                owner=decision.value,
            )
            self.ledger.append(entry)
        except Exception:
            # An answer that cannot be recorded does not leave.
            return codec.encode(self._refusal(RefusalCode.FAILED, query))
        return encoded

    def _refusal(self, code: RefusalCode, query: Message | None) -> Refusal:
        exchange = query.exchange if query else 0
        return Refusal(study=self._digest, exchange=exchange, reason=code)

    def _agreed(self, query: Message) -> Query[Any]:
        """The query, if an honest server of this study could ask it.

        Of the rows, only their number matters here.
        """
        if query.study != self._digest:
            raise RefusedError(RefusalCode.WRONG_STUDY)
        if not isinstance(query, Query):
            raise RefusedError(RefusalCode.MALFORMED)
        if type(query) not in self._needed:
            raise RefusedError(RefusalCode.NOT_IN_STUDY)
        if not _is_plausible(query, self.study):
            raise RefusedError(RefusalCode.MALFORMED)
        if is_read_alone(query, self.study):  # else nobody sees the sums of this client alone
            self.limits.check_rows(self._space.n_rows_given)
        if query.permission and not getattr(self.limits, query.permission):
            raise RefusedError(RefusalCode.VALUES_FORBIDDEN)
        return query

    def _answer(
        self, query: Query[Any], asked: str, decision: OwnerDecision
    ) -> tuple[Message, bytes]:
        """The answer and its bytes: those that were sent before, if this was asked before."""
        if not decision.lets_through:
            raise RefusedError(RefusalCode.NOT_APPROVED)
        self._questions.check(query, asked)
        if (kept := self._sent.get(asked)) is not None:
            return self._decoder.decode(kept), kept
        answer = self._computed(query)
        party = getattr(self._space, "party", None)
        if party is not None and is_masked(query, self.study):
            answer = party.masked(query, answer, asked)
        answer = stamped(answer, self._digest, query.exchange)
        encoded = codec.encode(answer)
        self._sent.keep(asked, encoded)
        return answer, encoded

    @property
    def _handlers(self) -> dict[type[Query[Any]], Any]:
        """The handler of each query: targets answer about contexts, sources all other queries."""
        if isinstance(self._space, PrivateWorkspace):
            return PRIVATE_HANDLERS
        return TARGET_HANDLERS if isinstance(self._space, TargetWorkspace) else HANDLERS

    def _computed(self, query: Query[Any]) -> Message:
        space = self._space
        answer: Message
        if isinstance(space, PrivateWorkspace):
            return PRIVATE_HANDLERS[type(query)](space, query)
        space.new_scores = None
        answer = self._handlers[type(query)](space, query)
        self._check_sizes(answer)
        if space.new_scores is not None:
            space.keep(space.new_scores)  # now that their sums may be released
        return answer

    def check_history(self) -> None:
        """Raise an error, in words for the client, if the record of earlier releases is lost."""
        if isinstance(self.ledger, CheckedLedger):
            self.ledger.check()
        self._check_kept()

    def _check_kept(self) -> None:
        """Raise an error if the store has lost what was sent in this study, which it has to know.

        It also knows what later questions have to agree with, and over which clients masks were
        removed from sums.
        """
        if not self._space.store.is_lasting:
            return
        study = self._digest.hex()
        told = [one for one in self.ledger.entries() if one.study == study and not one.reason]
        if told and self._sent.get(told[-1].query_sha256) is None:
            raise StorageError(
                f"the ledger says that {told[-1].answer} left for this study on "
                f"{told[-1].when[:10]}, and the private store (scores/) has no copy of it: it was "
                "deleted or moved. Each question is answered once, with the same bytes if it is "
                "repeated. Restore it, or agree on a new study (another name or seed)"
            )

    @property
    def _sent(self) -> SentAnswers:
        return SentAnswers(self._space.store, self._digest, self.name)

    @computed_once
    def _questions(self) -> Questions:
        return Questions(self.study, self.limits, self.ledger)

    def _check_sizes(self, answer: Message) -> None:
        numbers = (getattr(answer, name) for name in codec.ARRAYS[type(answer)])
        for array in perhaps_beyond(numbers, self.limits.norm_cap):
            largest = largest_size(array)
            if not isfinite(largest):
                raise RefusedError(RefusalCode.NOT_FINITE)
            if largest > self.limits.norm_cap:
                raise RefusedError(RefusalCode.NORM_TOO_LARGE)

    @property
    def local_policy(self) -> Policy:
        """The policy that the party learned alone, for itself: no answer ever carries it."""
        return (self._after or self)._space.local_policy

    @property
    def personal_policy(self) -> Policy | None:
        """The client's personal policy, for itself; None until it is solved for."""
        space = (self._after or self)._space
        return space.personal_policy if isinstance(space, Workspace) else None

    def solved_at_home(self, shared: LinearPolicy) -> Policy:
        """The personal policy in a study with differential privacy, for the client itself."""
        return solve_at_home(self._private_space, shared)

    def valued_at_home(self, shared: LinearPolicy) -> AtHome:
        """The same, with its value here; neither is ever part of an answer."""
        return value_at_home(self._private_space, shared)

    @property
    def _private_space(self) -> PrivateWorkspace:
        space = (self._after or self)._space
        if not isinstance(space, PrivateWorkspace):
            raise TypeError("personal policies are solved at home in private studies alone")
        return space


# Cached, as clients in one process get the same query; a few, as queries can be large.
@lru_cache(2)
def _is_plausible(query: Query[Any], study: Study) -> bool:
    return query.is_plausible(study)


# Refusals that depend on rows. In a study with `[privacy]` they are all alike.
_DEPENDS_ON_ROWS = {
    RefusalCode.SMALL_CELLS,
    RefusalCode.NORM_TOO_LARGE,
    RefusalCode.NOT_FINITE,
    RefusalCode.NOTHING_TO_SAY,
    RefusalCode.IMPOSSIBLE_SUMS,
}


def _reason(error: BaseException) -> RefusalCode:
    """The reason why a query is not answered."""
    if isinstance(error, RefusedError):
        return error.code
    if isinstance(error, codec.WrongVersionError):
        return RefusalCode.WRONG_VERSION
    return RefusalCode.MALFORMED if isinstance(error, WireError) else RefusalCode.FAILED
