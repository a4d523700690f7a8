"""Approval by hand: queries wait in the client's folder until its owner decides about them.

One process answers queries. Another serves the owner's page. They communicate through small files:

    served          locked while a page is served
    paused          exists while the owner holds all answers back
    SHA.waiting     a query that was asked and not decided; touched while somebody waits for it
    SHA.approved    a query that may be answered, however often: its answer has the same bytes
    SHA.refused     a query that is refused the next time it is looked at
"""

import enum
import json
import math
import os
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from fedopl.base.errors import OptionError
from fedopl.base.files import is_locked, locked, refuse_link, write_atomically

_LOOK_SECONDS = 0.2
# Whoever waits for a decision touches the query's file. After this long without, nobody waits.
WAITED_FOR_SECONDS = 10.0
_SERVED, _PAUSED = "served", "paused"
_WAITING, _APPROVED, _REFUSED = ".waiting", ".approved", ".refused"
_TAKE_SECONDS = 2.0


class OwnerDecision(enum.Enum):
    """What became of a query before it was answered, in the words of the ledger."""

    NOT_ASKED = ""
    APPROVED = "approved by hand"
    REFUSED = "refused by hand"
    NO_PAGE = "not approved: no page was served"
    TOO_LATE = "not approved in time"
    NOT_SHOWN = "not shown to its owner"

    @property
    def lets_through(self) -> bool:
        """Whether the query may be answered."""
        return self in (OwnerDecision.NOT_ASKED, OwnerDecision.APPROVED)


@dataclass(frozen=True, kw_only=True)
class Question:
    """A query as the owner sees it before it is answered."""

    sha256: str
    query: str  # the message's type
    exchange: int
    study_name: str
    holds: str  # what its answer would hold, in words


@dataclass(frozen=True, kw_only=True)
class Waiting(Question):
    """A query that was asked and is not decided."""

    to: str  # who asks, as far as the client can tell
    since: str
    is_waited_for: bool  # False if the server's time for it is over


@dataclass(frozen=True, kw_only=True)
class Approvals:
    """The folder that the door and the owner's page share.

    Args:
        folder: where the files are.
        asks: whether every query waits for the owner; else only while all is paused.
        asker: who asks, as far as the client can tell.
        within: how many seconds a query may wait.

    """

    folder: Path
    asks: bool
    asker: str = ""
    within: float = math.inf

    @property
    def are_needed(self) -> bool:
        """Whether a query that is asked now would wait."""
        return self.asks or self.is_paused

    # --- the door's side -----------------------------------------------------------------------

    def decided(self, questions: Sequence[Question | None]) -> list[OwnerDecision]:
        """What the owner decided about each query; waits until all are decided.

        None stands for a query that the owner was not shown, because the door refuses it.
        """
        open_ = {one.sha256: one for one in questions if one is not None}
        found: dict[str, OwnerDecision] = {}
        end = time.monotonic() + self.within
        since = datetime.now(UTC).isoformat(timespec="seconds")
        for one in open_.values():
            if self._decision(one.sha256) is None:
                content = json.dumps({**asdict(one), "to": self.asker, "since": since})
                self._write(f"{one.sha256}{_WAITING}", content)
        while open_:
            # Before the last look, or a decision could be missed.
            is_over = None if self.is_served else OwnerDecision.NO_PAGE
            if is_over is None and time.monotonic() > end:
                is_over = OwnerDecision.TOO_LATE
            for sha256 in tuple(open_):
                decision = self._decision(sha256) or is_over
                if decision is not None:
                    found[sha256] = decision
                    # Other queries stay, to be approved for the next time.
                    if decision.lets_through or decision is OwnerDecision.REFUSED:
                        self._file(sha256, _WAITING).unlink(missing_ok=True)
                    if decision is OwnerDecision.REFUSED:
                        self._file(sha256, _REFUSED).unlink(missing_ok=True)
                    del open_[sha256]
            for sha256 in open_:
                with suppress(OSError):  # the owner may have decided just now
                    os.utime(self._file(sha256, _WAITING))
            if open_:
                time.sleep(_LOOK_SECONDS)
        return [OwnerDecision.NOT_SHOWN if one is None else found[one.sha256] for one in questions]

    def _decision(self, sha256: str) -> OwnerDecision | None:
        if self._file(sha256, _REFUSED).exists():
            return OwnerDecision.REFUSED
        if self.is_paused:
            return None
        if not self.asks:
            return OwnerDecision.NOT_ASKED
        return OwnerDecision.APPROVED if self._file(sha256, _APPROVED).exists() else None

    # --- the owner's side ----------------------------------------------------------------------

    def serving(self) -> AbstractContextManager[None]:
        """A context in which queries may wait, because a page is served to decide on them."""
        refuse_link(self.folder)
        taken = (
            f"{self.folder.parent}: the page of this client is already served, by another process; "
            "open the address which that printed, or end it"
        )
        return locked(self.folder / _SERVED, _TAKE_SECONDS, taken)

    @property
    def is_served(self) -> bool:
        """Whether there is a page on which queries are decided."""
        return is_locked(self.folder / _SERVED)

    @property
    def is_paused(self) -> bool:
        """Whether the owner holds all answers back."""
        return (self.folder / _PAUSED).exists()

    def waiting(self) -> list[Waiting]:
        """All queries that are not decided, the oldest first."""
        found = []
        for path in self.folder.glob(f"*{_WAITING}"):
            with suppress(OSError, ValueError, TypeError):  # it may have been decided just now
                touched = time.time() - path.stat().st_mtime < WAITED_FOR_SECONDS
                content = json.loads(path.read_text(encoding="utf-8"))
                found.append(Waiting(**content, is_waited_for=touched))
        undecided = [one for one in found if not self._file(one.sha256, _APPROVED).exists()]
        return sorted(undecided, key=lambda one: (one.since, one.exchange, one.sha256))

    def approve(self, sha256: str) -> None:
        """Let a query that waits be answered, now and whenever it is asked again."""
        self._write(self._known(sha256) + _APPROVED, "")

    def refuse(self, sha256: str) -> None:
        """Refuse a query that waits, this time only."""
        self._write(self._known(sha256) + _REFUSED, "")
        self._file(sha256, _WAITING).unlink(missing_ok=True)

    def pause(self) -> None:
        """Hold all answers back, approved ones too, until `resume`."""
        self._write(_PAUSED, "")

    def resume(self) -> None:
        """Let answers leave again."""
        (self.folder / _PAUSED).unlink(missing_ok=True)

    def _known(self, sha256: str) -> str:
        """The hash, if such a query waits; so no path is ever made from what a page sends."""
        if sha256 not in (one.sha256 for one in self.waiting()):
            raise OptionError("approve, refuse: no such question waits; it may have been decided")
        return sha256

    def _file(self, sha256: str, ending: str) -> Path:
        return self.folder / f"{sha256}{ending}"

    def _write(self, name: str, content: str) -> None:
        refuse_link(self.folder)
        write_atomically(self.folder / name, content.encode(), mode=0o600)
