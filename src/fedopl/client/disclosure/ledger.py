"""The ledger: the client's append-only record of everything it ever answered.

What was asked is counted from it. So a question stays answered as long as the ledger lasts.
"""

import hashlib
import json
import math
import os
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from fedopl.base.arrays import length
from fedopl.base.errors import StorageError
from fedopl.base.files import locked, owner_only, writing_to
from fedopl.base.timestamps import present_moment
from fedopl.client.disclosure.limits import Limits, RefusedError
from fedopl.messages.codec import ARRAYS, n_sent
from fedopl.messages.message import Message, Query, array_axes
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.messages.vocabulary import MESSAGES
from fedopl.privacy.accountant import epsilon_for, mu_for, mu_of_several
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study

# In ledgers of version 0.2.0: an answer withheld, which cost as much as one that was given, and an
# entry that is no answer.
WITHHELD, UNLOCK = "WITHHELD", "unlock"

# How long one process waits while another answers for the same client.
WAIT_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One answer: when, to which query, and what was released."""

    when: str
    study: str  # its digest
    exchange: int
    query: str
    answer: str
    reason: str  # of a refusal, else empty
    shapes: dict[str, list[int]]
    norms: dict[str, float]
    n_bytes: int
    sha256: str  # of the answer, so that a copy of it can be checked later
    query_sha256: str
    study_name: str = ""
    to: str = ""  # who asked, as far as the client can tell
    why: str = ""  # what else is known of it, for the client alone: only `reason` was sent
    privacy: float = 0.0  # μ of the study's promise of differential privacy; 0 where it has none
    slip: float = 0.0  # the probability with which it may disclose more than that
    agreed: str = ""  # the digest of the agreed study, where that continued as another
    owner: str = ""  # what the client's owner decided about the query, if asked

    @property
    def counts_for(self) -> str:
        """The digest of the agreed study, for which the entry counts."""
        return self.agreed or self.study

    @property
    def was_answered(self) -> bool:
        """Whether a question was answered, and none refused."""
        if self.query == UNLOCK:
            return False
        # With differential privacy, a refusal that depends on rows may cost as much as an answer.
        return self.reason in ("", WITHHELD) or (bool(self.why) and self.privacy > 0)

    @property
    def n_numbers(self) -> int:
        """How many numbers were released in arrays."""
        axes = {kind.__name__: array_axes(kind) for kind in MESSAGES.values()}.get(self.answer, {})
        return sum(n_sent(axes[name], shape) for name, shape in self.shapes.items())


# Fields with a value unless one is said.
_UNSAID = {field.name: field.default for field in fields(Entry) if field.default is not MISSING}


class Ledger(Protocol):
    """A list of entries that only grows."""

    __slots__ = ()

    def append(self, entry: Entry) -> None:
        """Add an entry; it must be stored safely before the answer leaves."""

    def since(self, position: int) -> tuple[list[Entry], int]:
        """The entries from a position on, 0 at first, and the position after them."""

    def entries(self) -> list[Entry]:
        """Everything so far, oldest first."""
        return self.since(0)[0]

    def locked(self) -> AbstractContextManager[None]:
        """A context in which no other process answers; empty if none can use this ledger."""
        return nullcontext()


class MemoryLedger(list[Entry], Ledger):
    """A ledger that lives as long as the process."""

    def since(self, position: int) -> tuple[list[Entry], int]:
        """The entries from this position on, and the number of all entries."""
        return self[position:], len(self)


@dataclass(frozen=True)
class FileLedger(Ledger):
    """A ledger of JSON lines; all answers it adds are to the same asker."""

    path: Path
    asker: str = ""

    def append(self, entry: Entry) -> None:
        """Append a line and flush it to the disk; a line written in part is removed."""
        self.append_line(self.line_of(entry))

    def line_of(self, entry: Entry) -> bytes:
        """The line of an entry."""
        return (json.dumps({**asdict(entry), "to": self.asker}) + "\n").encode()

    def append_line(self, line: bytes) -> None:
        """Append a line and flush it to the disk."""
        with writing_to(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._remove_unfinished_line()
            # Unbuffered: a line is one write, so lines of other processes cannot get in between.
            with open(self.path, "ab", buffering=0, opener=owner_only) as file:
                size = file.tell()
                written = file.write(line)
                # On the disk before the answer leaves: a crash must not restore a budget.
                os.fsync(file.fileno())
                if written != len(line):
                    file.truncate(size)
        if written != len(line):
            raise StorageError(f"{self.path}: cannot be written: the disk is full")

    def _remove_unfinished_line(self) -> None:
        """Remove a last line that a killed process left unfinished."""
        if not self.path.is_file() or not self.path.stat().st_size:
            return
        with open(self.path, "rb+", opener=owner_only) as file:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.truncate(self.path.read_bytes().rfind(b"\n") + 1)

    def since(self, position: int) -> tuple[list[Entry], int]:
        """The entries from this byte on, and the byte after them."""
        try:
            with open(self.path, "rb", opener=owner_only) as file:
                size = os.fstat(file.fileno()).st_size
                if position > size:
                    raise StorageError(f"{self.path}: was cut off by something else")
                file.seek(position)
                content = file.read(size - position)  # a device would have no end
        except FileNotFoundError:
            return [], 0
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be read: {error.strerror}") from None
        # Bytes after the last line break are a line that a killed process left unfinished.
        *lines, unfinished = content.split(b"\n")
        try:
            read_to = position + len(content) - len(unfinished)
            return [as_entry(json.loads(line)) for line in lines], read_to
        except (ValueError, TypeError):
            raise StorageError(f"{self.path}: was changed by something else") from None

    def locked(self) -> AbstractContextManager[None]:
        """A context in which no other process answers with this ledger."""
        # The lock is on the ledger itself: deleting it deletes the budgets, too.
        return locked(self.path, WAIT_SECONDS)


def as_entry(found: dict[str, Any]) -> Entry:
    """The entry that was written so, without what earlier versions said and this one does not."""
    return Entry(**{name: found[name] for name in found if name in Entry.__dataclass_fields__})


def entry_for(
    query: Message | None, asked: str, answer: Message, content: bytes, **more: Any
) -> Entry:
    """The entry for an answer to the query whose SHA-256 is `asked`, with `more` of its fields."""
    every: dict[str, Any] = {name: getattr(answer, name) for name in ARRAYS[type(answer)]}
    arrays = {name: array for name, array in every.items() if array.size}  # others say nothing
    entry = object.__new__(Entry)  # `Entry` itself takes several times as long
    vars(entry).update(
        _UNSAID,
        when=present_moment(),
        study=text_of(answer.study),
        exchange=answer.exchange,
        query=type(query).__name__ if query else "unreadable",
        answer=type(answer).__name__,
        reason=answer.reason.name if isinstance(answer, Refusal) else "",
        shapes={name: list(array.shape) for name, array in arrays.items()},
        norms={name: length(array) for name, array in arrays.items()},
        n_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        query_sha256=asked,
        **more,
    )
    return entry


@lru_cache(16)
def text_of(digest: bytes) -> str:
    """The digest as text, shared by all entries of a study to save memory."""
    return digest.hex()


class Questions:
    """What a study may still ask: each of its questions once; a repeated one is free.

    Everything is counted from the ledger, which also has the answers of other processes.
    """

    def __init__(self, study: Study, limits: Limits, ledger: Ledger) -> None:
        self._study, self._limits, self._ledger = study, limits, ledger
        self._digest = text_of(study.digest)
        self._agreed = text_of(study.before_screening.digest)
        self._asked: dict[str, set[str]] = {}  # kind of query → SHA-256 of each
        self._others: set[str] = set()  # other studies that were answered
        # μ and slip by study, for studies with differential privacy
        self._promised: dict[str, tuple[float, float]] = {}
        self._gone_on: set[str] = set()  # studies that the agreed one continued as
        self._read_to = 0

    def check(self, query: Query[Any], asked: str) -> None:
        """Refuse a query, whose SHA-256 is `asked`, if the study has asked all of its kind."""
        entries, self._read_to = self._ledger.since(self._read_to)
        for entry in entries:
            if not entry.was_answered:
                continue
            if entry.privacy:
                self._promised[entry.counts_for] = (entry.privacy, entry.slip)
            if entry.agreed == self._agreed:
                self._gone_on.add(entry.study)
            if entry.study == self._digest:
                self._asked.setdefault(entry.query, set()).add(entry.query_sha256)
            if entry.counts_for != self._agreed:
                self._others.add(entry.counts_for)
        so_far = self._asked.get(type(query).__name__, set())
        if asked in so_far:
            return
        if len(self._others) >= self._limits.studies:
            raise RefusedError(RefusalCode.TOO_MANY_STUDIES)
        if len(so_far) >= query.most(self._study):
            raise RefusedError(RefusalCode.ASKED_ALREADY)
        if self._study.privacy:
            self._check_promises()

    def _check_promises(self) -> None:
        """Refuse a study that, with all before it, would disclose more than the owner allows.

        The first answer pays for the whole study, so a study that resumes does not pay twice. A
        study can continue as only one other study: if there were two, both would be answered.
        """
        if self._digest != self._agreed and self._gone_on - {self._digest}:
            raise RefusedError(RefusalCode.ASKED_ALREADY)
        if not math.isfinite(self._limits.epsilon):
            return
        own = {self._agreed: PrivateSetting(self._study).lifetime}
        mus, slips = zip(*{**self._promised, **own}.values(), strict=True)
        # Where studies may disclose more with some probability, δ has to cover that, too.
        left = self._limits.delta - sum(slips)
        most = mu_for(self._limits.epsilon, left) if left > 0 else 0.0
        if mu_of_several(mus) > most * (1 + 1e-9):
            raise RefusedError(RefusalCode.PRIVACY_SPENT)


# --- over the lifetime of the rows ----------------------------------------------------------------


@dataclass(kw_only=True)
class StudySummary:
    """A summary of one study's answers."""

    study: str  # its digest
    name: str = ""
    to: list[str] = field(default_factory=list)  # everybody who asked
    first: str = ""
    last: str = ""
    answers: dict[str, int] = field(default_factory=dict)  # the number of different ones, by query
    refusals: int = 0
    n_bytes: int = 0
    counts: bool = False  # whether it counts toward the limit on studies
    privacy: float = 0.0  # μ of its promise of differential privacy; 0 where it has none
    slip: float = 0.0  # the probability with which it may disclose more than that


def summaries(entries: Iterable[Entry]) -> list[StudySummary]:
    """All studies in the ledger, in the order in which they were first answered."""
    found: dict[str, StudySummary] = {}
    seen: set[tuple[str, str]] = set()
    for entry in entries:
        study = entry.counts_for
        own = found.setdefault(study, StudySummary(study=study, first=entry.when))
        own.name, own.last = entry.study_name or own.name, entry.when
        own.n_bytes += entry.n_bytes
        own.to += [entry.to] if entry.to and entry.to not in own.to else []
        own.refusals += bool(entry.reason)
        if not entry.was_answered or (entry.study, entry.query_sha256) in seen:
            continue  # a repeated query discloses nothing new and costs nothing
        seen.add((entry.study, entry.query_sha256))
        own.counts, own.privacy, own.slip = True, entry.privacy, entry.slip
        if not entry.reason:
            own.answers[entry.query] = own.answers.get(entry.query, 0) + 1
    return list(found.values())


def promised_in_all(studies: Iterable[StudySummary], limits: Limits) -> str:
    """The epsilon that all studies together have spent of what the owner allows, in words."""
    answered = [study for study in studies if study.counts]
    others = sum(not one.privacy for one in answered)
    spent = _epsilon([(one.privacy, one.slip) for one in answered], limits)
    said = f"epsilon: {spent:.3g} of {limits.epsilon:g} spent, at delta {limits.delta:g}"
    if not others:
        return said
    return f"{said}; this does not cover the {others:,} without differential privacy"


def _epsilon(promises: Sequence[tuple[float, float]], limits: Limits) -> float:
    """The ε of promises, each a μ and a slip, at the owner's δ; δ covers slips, too."""
    left = limits.delta - sum(slip for _, slip in promises)
    return epsilon_for(mu_of_several(mu for mu, _ in promises), left) if left > 0 else math.inf


def left_for(study: Study, studies: Iterable[StudySummary], limits: Limits) -> str:
    """How much of an owner's limit is spent, and with this study, in words."""
    if study.privacy is None:
        raise TypeError("the study has no differential privacy")
    others = [
        (one.privacy, one.slip) for one in studies if one.counts and one.study != study.digest.hex()
    ]
    own = PrivateSetting(study).lifetime
    before, after = _epsilon(others, limits), _epsilon([*others, own], limits)
    verdict = "" if after <= limits.epsilon else ", so it would be refused"
    return (
        f"epsilon {before:.3g} of {limits.epsilon:g} spent by other studies, {after:.3g} with this "
        f"one, at delta {limits.delta:g}{verdict}"
    )
