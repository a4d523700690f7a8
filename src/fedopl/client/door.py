"""The door: bytes in, bytes out. It never raises, and nothing leaves any other way."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from math import isfinite
from typing import Any

from fedopl.base.arrays import largest_size, perhaps_beyond
from fedopl.base.errors import WireError
from fedopl.client.answers.handlers import HANDLERS
from fedopl.client.disclosure.ledger import Budgets, Ledger, MemoryLedger, entry_for
from fedopl.client.disclosure.limits import Limits, RefusedError
from fedopl.client.disclosure.lost_history import require_history
from fedopl.client.disk.store import Store
from fedopl.client.local.local_training import Batches
from fedopl.client.table.logged_data import LoggedData
from fedopl.client.workspace import Rule, Workspace
from fedopl.messages import codec
from fedopl.messages.bundle import bundled, received
from fedopl.messages.derived_sizes import decoder_of, largest_query
from fedopl.messages.message import Message, Query
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.vocabulary import queries_of
from fedopl.policies.policy import Policy
from fedopl.study.study import Study

# Clients in one process are asked the same, a few queries at a time: these are read and hashed
# once. Large ones are read by each client rather than kept.
MOST_QUERIES, MOST_CACHED_BYTES = 8, 1 << 16


def _sha256(content: bytes) -> str:
    """The hash by which ledgers and budgets identify a query."""
    return hashlib.sha256(content).hexdigest()


_read_once = lru_cache(MOST_QUERIES)(codec.Decoder.decode)
_hash_once = lru_cache(MOST_QUERIES)(_sha256)


class Door:
    """One client's answers to one study's queries.

    Args:
        name: what the client is called in the study.
        data: its rows.
        study: the study it agreed to.
        limits: what it is willing to release.
        store: where it keeps its scores between messages.
        ledger: where it writes down what it released.
        rules: the study's candidate policies that are code; code never crosses, only its position.
        secret: goes into the draw of batches, so that nobody else can tell which rows they hold.

    """

    def __init__(
        self,
        name: str,
        data: LoggedData,
        study: Study,
        *,
        limits: Limits | None = None,
        store: Store | None = None,
        ledger: Ledger | None = None,
        rules: Mapping[str, Rule] | None = None,
        secret: str = "",
    ) -> None:
        self.name, self.study = name, study
        self.limits = limits or Limits()
        self.ledger: Ledger = MemoryLedger() if ledger is None else ledger
        self._space = Workspace(
            data,
            study,
            self.limits,
            store=store,
            rules=rules,
            batches=Batches(study.seed, name, secret),
        )
        self._decoder, self._digest = decoder_of(study), study.digest
        self._needed, self._largest = queries_of(study), largest_query(study)

    def handle(self, content: bytes) -> bytes:
        """Answer a query, or several that came together; whatever happens, no text leaves."""
        return bundled([self._handle(query) for query in received(content, self._largest)])

    def _handle(self, content: bytes) -> bytes:
        """Answer a query while no other process can, so that budgets count for all of them."""
        try:
            with self.ledger.locked():
                return self._handle_alone(content)
        except Exception:
            # What cannot be written down does not leave.
            return codec.encode(self._refusal(RefusalCode.FAILED, self._read_if_any(content)))

    def _read_if_any(self, content: bytes) -> Message | None:
        try:
            return self._decoder.decode(content)
        except WireError:
            return None

    def _handle_alone(self, content: bytes) -> bytes:
        """Answer a query, or refuse it with a code."""
        query: Message | None = None
        is_small = len(content) <= MOST_CACHED_BYTES
        asked = (_hash_once if is_small else _sha256)(content)
        try:
            query = (_read_once if is_small else codec.Decoder.decode)(self._decoder, content)
            answer = self._answer(query, asked)
        except RefusedError as refused:
            answer = self._refusal(refused.code, query)
        except codec.WrongVersionError:
            answer = self._refusal(RefusalCode.WRONG_VERSION, query)
        except WireError:
            answer = self._refusal(RefusalCode.MALFORMED, query)
        except (Exception, SystemExit):  # a rule is the client's own code, and might call exit()
            answer = self._refusal(RefusalCode.FAILED, query)
        return self._written_down(query, asked, answer)

    def _written_down(self, query: Message | None, asked: str, answer: Message) -> bytes:
        encoded = codec.encode(answer)
        try:
            self.ledger.append(entry_for(query, asked, answer, encoded))
        except Exception:
            # What cannot be written down does not leave.
            return codec.encode(self._refusal(RefusalCode.FAILED, query))
        return encoded

    def _refusal(self, code: RefusalCode, query: Message | None) -> Refusal:
        exchange = query.exchange if query else 0
        return Refusal(study=self._digest, exchange=exchange, reason=code)

    def _answer(self, query: Message, asked: str) -> Message:
        if query.study != self._digest:
            raise RefusedError(RefusalCode.WRONG_STUDY)
        if not isinstance(query, Query):
            raise RefusedError(RefusalCode.MALFORMED)
        if type(query) not in self._needed:
            raise RefusedError(RefusalCode.NOT_IN_STUDY)
        self.limits.check_rows(self._space.n_training)
        if query.permission and not getattr(self.limits, query.permission):
            raise RefusedError(RefusalCode.VALUES_FORBIDDEN)
        self._budgets.check(query, asked)
        self._space.new_scores = None
        try:
            answer = HANDLERS[type(query)](self._space, query)
        except RefusedError as refused:
            # That cells are small is said of these rows, too, so it is paid for.
            if refused.code is RefusalCode.SMALL_CELLS:
                self._budgets.pay(query, asked)
            raise
        self._check_sizes(answer)
        if self._space.new_scores is not None:
            self._space.keep(self._space.new_scores)  # now that their sums may be released
        self._budgets.pay(query, asked)
        return replace(answer, study=self._digest, exchange=query.exchange)

    def check_history(self) -> None:
        """Raise an error, in words for the client, if what it released before is forgotten."""
        require_history(self.ledger, self._digest, self._space.store, self._space.key)

    @cached_property
    def _budgets(self) -> Budgets:
        self.check_history()
        found = {query: self._budget(query) for query in self._needed}
        budgets = {query: budget for query, budget in found.items() if budget is not None}
        return Budgets(budgets, self.ledger, self._digest)

    def _budget(self, query: type[Query[Any]]) -> int | None:
        """How many different ones are answered: as the client allows and the study needs."""
        allowed = getattr(self.limits, query.budget) if query.budget else None
        bounds = [bound for bound in (allowed, query.most(self.study)) if bound is not None]
        return min(bounds, default=None)

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
        """What the party learned alone, for itself: no answer ever carries it."""
        return self._space.local_policy
