"""Detects that answers were released, but the history for checking later ones is missing."""

from fedopl.base.errors import StorageError
from fedopl.client.disclosure.ledger import Ledger
from fedopl.client.disk.store import Store
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.messages.secure.mask_shares import UnmaskingShares


def require_history(ledger: Ledger, study: bytes, store: Store, key: str) -> None:
    """Raise an error if the ledger has a study's sums of scores and the store has no scores.

    All history is kept with the scores, under `key`, which stands for these rows and limits. A
    store in memory never outlives its process.
    """
    if not store.is_lasting or store.has(key):
        return
    released = [
        entry.when
        for entry in ledger.entries()
        if entry.study == study.hex() and entry.answer == ScoreSums.__name__
    ]
    if released:
        raise StorageError(
            f"the ledger says that sums of scores were released for this study on "
            f"{released[-1][:10]}, and the private store (scores/) has none for these rows and "
            "limits: it was deleted or moved, or the rows, minimum_cell or parameter_share changed "
            "since. Later answers could not be checked against earlier ones. Restore it, or agree "
            "on a new study (another name or seed)"
        )


def require_survivors(ledger: Ledger, study: bytes, store: Store, key: str) -> None:
    """Raise an error if the store has lost over which clients masks were removed from a sum.

    If they were removed over other clients, too, one client's sum could be read. The store keeps
    this for a whole study under one key.
    """
    if not store.is_lasting or store.has(key):
        return
    told = UnmaskingShares.__name__
    if any(entry.counts_for == study.hex() and entry.answer == told for entry in ledger.entries()):
        raise StorageError(
            "the ledger says that shares were sent that remove masks from sums of this study, "
            "and the private store (scores/) does not say over which clients: it was deleted or "
            "moved. Restore it, or agree on a new study (another name or seed)"
        )
