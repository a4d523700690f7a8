"""A client's door, opened from its folder: checks before it, and a personal policy behind it.

A client's own process imports this file, and nothing of the server. With differential privacy, a
personal policy of a finished run is solved at home, and stays in the client's own folder.
"""

from fedopl.base.errors import OptionError, StorageError, StudyError
from fedopl.client.client_file import Client
from fedopl.client.disclosure.ledger import FileLedger, MemoryLedger
from fedopl.client.disk.personal_store import keep_personal, kept_personal
from fedopl.client.disk.store import FolderStore
from fedopl.client.door import Door
from fedopl.client.personal_at_home import AtHome
from fedopl.client.table.logged_data import LoggedData
from fedopl.engines.in_process import check_packages
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.results.record import Record
from fedopl.study.study import Study

# The ledger's name for the asker if client and server are one process.
THIS_MACHINE = "a run on this machine"


def check_client(study: Study, client: Client) -> None:
    """Refuse a client that lacks packages, or whose limits or sharing do not fit the study."""
    check_packages(study)
    check_sharing(client, study)
    check_has_rows(client, study)
    lacking = client.settings.limits.lacking(study.requires)
    if lacking:
        message = f"limits: {'; '.join(lacking)}"
        raise StudyError(client.file.complaint(("limits",), message))


def check_has_rows(client: Client, study: Study) -> None:
    """An error if the study lists this client's name among its aggregators."""
    if client.name in study.aggregators:
        message = (
            f"'{client.name}' is an aggregator in this study (aggregators), and has rows "
            "here; give one of both another name"
        )
        raise StudyError(client.file.complaint(("name",), message))


def check_sharing(client: Client, study: Study) -> None:
    """Raise an error if the owner wants to share a policy that privacy does not cover."""
    if client.settings.share_personal and study.personalises_at_home:
        message = (
            "share_personal: with [privacy] a personal policy is solved from exact rows at home, "
            "and what was promised of these does not cover it; leave it out"
        )
        raise StudyError(client.file.complaint(("share_personal",), message))


def door_of(
    study: Study,
    client: Client,
    data: LoggedData,
    rehearsing: MemoryLedger | None = None,
    asker: str = THIS_MACHINE,
) -> Door:
    """The client's door for this study and the rows that are pinned for it.

    Ledger and scores are in the client's folder, except in a rehearsal. It is an error if the
    ledger has answers of this study but their history is lost. The ledger records the `asker`.
    """
    is_rehearsal = rehearsing is not None
    door = Door(
        client.name,
        data,
        study,
        limits=client.settings.limits,
        store=None if is_rehearsal else FolderStore(client.store_path),
        ledger=FileLedger(client.ledger_path, asker) if rehearsing is None else rehearsing,
        secret=client.secret(rehearsing=is_rehearsal),
        approvals=None if is_rehearsal else client.approvals(asker),
    )
    _check_history(client, door)
    return door


def check_history(study: Study, client: Client, pinned: LoggedData) -> None:
    """Raise an error if the ledger has answers of the study but their history is lost.

    Nothing is written.
    """
    door = Door(
        client.name,
        pinned,
        study,
        limits=client.settings.limits,
        store=FolderStore(client.store_path),
        ledger=FileLedger(client.ledger_path),
        secret=client.secret(rehearsing=True),
    )
    _check_history(client, door)


def _check_history(client: Client, door: Door) -> None:
    try:
        door.check_history()
    except StorageError as error:
        raise StorageError(f"{client.path.parent}: {error}") from None


def home_policy(record: Record, client: Client) -> Policy | None:
    """The client's personal policy, solved now if it was not before; None if it took no part.

    The policy is stored only in the client's private store.
    """
    shared = _shared_policy(record)
    if client.name not in record.rows:
        return None
    store = FolderStore(client.store_path)
    kept = kept_personal(store, record.study, client.name, shared)
    if kept is not None:
        return kept
    found = _door(record, client).solved_at_home(shared)
    keep_personal(store, record.study, client.name, found, shared)
    return found


def policy_at_home(record: Record, client: Client) -> AtHome:
    """The client's personal policy, and its value on the client's held-out rows without noise."""
    if not record.study.personalises_at_home:
        raise OptionError(_why_not(record))
    if client.name not in record.rows:
        raise OptionError(
            f"{client.name}: took no part in this run; it was {', '.join(record.rows)}"
        )
    shared = _shared_policy(record)
    found = _door(record, client).valued_at_home(shared)
    store = FolderStore(client.store_path)
    keep_personal(store, record.study, client.name, found.policy, shared)
    return found


def _why_not(record: Record) -> str:
    if record.study.personalises:
        return (
            "personal: clients of this run told what their personal policies are worth; "
            "`fedopl diagnose` says it, and `fedopl decide --client` uses them"
        )
    if record.study.privacy:
        return 'personal: the study of this run has none; say kind = "ridge" under [personal]'
    return (
        "personal: policies are solved and valued at home where a study has [privacy] and "
        "[personal]; this one has no [privacy]"
    )


def _shared_policy(record: Record) -> LinearPolicy:
    if not isinstance(record.policy, LinearPolicy):
        raise TypeError("with differential privacy, personal policies are linear")
    return record.policy


def _door(record: Record, client: Client) -> Door:
    """The door to the rows of the run. Opening it asks no question and records nothing."""
    data = client.pinned(record.study.before_screening, client.rows_for(record.study))
    return door_of(record.study, client, data)
