"""A client's side of a study over a network: its doors, opened from its own files."""

import math
from collections.abc import Callable
from dataclasses import replace

from fedopl.base.errors import StudyError, WireError
from fedopl.client.client_file import Client
from fedopl.client.disclosure.checked_ledger import with_head
from fedopl.client.door import Door
from fedopl.client.table.logged_data import LoggedData
from fedopl.engines.folder_doors import check_has_rows, door_of
from fedopl.messages import codec
from fedopl.messages.bundle import bundled, unbundled
from fedopl.messages.message import Axis
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.study.splits import split_studies
from fedopl.study.study import Study

STAYS_AT_HOME = (
    "{0}: share_personal = true counts in `fedopl run` alone: over a network no message carries a "
    "personal policy, so it stays here; hand over what `fedopl export --client` writes"
)
ANY_SIZE = {axis: range(1 << 32) for axis in Axis}


class RemoteDoors:
    """A client's doors, one for each split of the study; the one used last stays open.

    Args:
        client: the client; its rows are read at the first question.
        agreed: the client's own copy of the study.
        asker: who asks, for the ledger.
        tell: called with what the client's owner should know.

    """

    def __init__(
        self, client: Client, agreed: Study, asker: str, tell: Callable[[str], object]
    ) -> None:
        self.client, self.agreed, self.asker = client, agreed, asker
        self._rows: LoggedData | None = None
        self._open: Door | None = None
        self._splits = split_studies(agreed)
        if client.settings.share_personal and agreed.personalises:
            tell(STAYS_AT_HOME.format(client.name))

    def open(self, place: int = 0) -> Door:
        """The door to a split of the study; if it cannot open, an error for the client's owner.

        Rows are read once. Rows that are added later are in none of the splits.
        """
        study = self._splits[place]
        if self._open is None or self._open.study is not study:
            if self.agreed.table is None:
                raise StudyError("study: it does not say what the columns of tables mean")
            check_has_rows(self.client, study)
            if self._rows is None:
                self._rows = self.client.rows_for(self.agreed)
            pinned = self.client.pinned(study, self._rows)
            self._open = door_of(study, self.client, pinned, asker=self.asker)
        return self._open

    def handle(self, content: bytes, within: float = math.inf) -> bytes:
        """The door's answer to these queries; an error if no door can be opened.

        If the owner approves queries by hand, a query waits for approval at most `within` seconds.
        """
        door = self._door_for(content)
        if door.approvals is not None:
            door.approvals = replace(door.approvals, within=within)
        return with_head(door.handle(content), door.ledger)

    def _door_for(self, content: bytes) -> Door:
        """The door to the split that the queries are about; if there is none, the first door.

        The first door then refuses, or knows the study as the one its study changed into during the
        run. A study that can change has only one split.
        """
        try:
            about = codec.study_asked_about(unbundled(content)[0])
        except WireError:
            return self.open()
        places = (place for place, study in enumerate(self._splits) if study.digest == about)
        return self.open(next(places, 0))


def refused(content: bytes) -> bytes:
    """A refusal of each query, for when no door opens.

    There is no study to check sizes with, so queries of any size are decoded.
    """
    try:
        asked = [codec.decode(query, ANY_SIZE) for query in unbundled(content)]
    except WireError:
        asked = [Refusal(study=bytes(codec.DIGEST_BYTES), exchange=0, reason=RefusalCode.FAILED)]
    failed = RefusalCode.FAILED
    return bundled(
        [codec.encode(Refusal(study=q.study, exchange=q.exchange, reason=failed)) for q in asked]
    )
