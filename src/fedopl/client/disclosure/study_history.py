"""What a study's later questions have to agree with, and its answers, kept with the rows.

Sums over two grids give the sums between their cuts, and steps from two starts the rows of a batch.
So a study has one set of found terms, one of ranges, one grid, and each step begins in one place.
Where terms are screened or ranges measured, the server says once what was found; the client
continues with that study and no other.

Rule *once*: a question that was answered gets the same bytes again, in any later process. They are
stored, not computed again: other models, other bits of another processor, or fewer members of an
aggregator would give another answer, and the two could be subtracted.
"""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import StorageError, WireError
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disk.store import Arrays, Store
from fedopl.messages.codec import Decoder, study_asked_about
from fedopl.messages.learning.term_screening import TakeFound
from fedopl.messages.private.noised_sums import TakeRanges
from fedopl.messages.refusal import RefusalCode
from fedopl.study.study import Study


class StudyHistory:
    """The first question of each kind, in a store."""

    def __init__(self, store: Store, key: str) -> None:
        self._store, self._key = store, key

    def first(self, kind: str) -> Arrays:
        """The first query of this kind; empty if there was none."""
        key = f"{self._key} {kind}"
        kept = self._store.get(key)
        if kept is None and self._store.has(key):
            raise StorageError(
                "the record of earlier questions is damaged; restore the private store"
            )
        return kept or {}

    def require_first(self, kind: str, **asked: FloatArray) -> None:
        """Refuse a query that differs from the first of its kind."""
        first = self.first(kind)
        if set(first) != set(asked):
            self._store.put(f"{self._key} {kind}", asked)
        elif not all(np.array_equal(first[name], asked[name]) for name in asked):
            raise RefusedError(RefusalCode.ASKED_ALREADY)


@dataclass(frozen=True)
class SentAnswers:
    """The answers of one client, or aggregator, in one study."""

    store: Store
    study: bytes
    name: str

    def get(self, asked: str) -> bytes | None:
        """The answer to the query of this hash; None if there is none that outlived its process."""
        kept = self.store.get(self._key(asked)) if self.store.is_lasting else None
        return None if kept is None or "bytes" not in kept else kept["bytes"].tobytes()

    def keep(self, asked: str, answer: bytes) -> None:
        """Store an answer that is about to be sent."""
        if self.store.is_lasting:
            self.store.put(self._key(asked), {"bytes": np.frombuffer(answer, np.uint8)})

    def _key(self, asked: str) -> str:
        return f"{self.study.hex()} {self.name} answer {asked}"


def study_gone_on_as(
    study: Study, history: StudyHistory, content: bytes, decoder: Decoder
) -> Study | None:
    """The study that this one continues as, by the first query that said so; None if none did.

    A query says so if its hash is that of the study with the terms that it names.
    """
    kind = f"found for {study.digest.hex()}"
    if kept := history.first(kind):
        if study.privacy:
            return TakeRanges(ranges=kept["ranges"]).study_after(study)
        pairs, thresholds, found = kept["pairs"], kept["thresholds"], kept["found"]
        return TakeFound(pairs=pairs, thresholds=thresholds, found=found).study_after(study)
    try:
        told = decoder.decode(content)
    except WireError:
        return None
    if not isinstance(told, TakeFound | TakeRanges):
        return None
    after = told.study_after(study)
    if after is None or after.digest != study_asked_about(content):
        return None
    history.require_first(kind, **dict(told.named_arrays()))
    return after
