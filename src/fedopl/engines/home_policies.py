"""A client's personal policy from a finished run with differential privacy, in its own folder."""

from fedopl.base.errors import OptionError
from fedopl.client.client_file import Client
from fedopl.client.disk.personal_store import keep_personal, kept_personal
from fedopl.client.disk.store import FolderStore
from fedopl.client.door import Door
from fedopl.client.personal_at_home import AtHome
from fedopl.engines.folder_doors import door_of
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.results.record import Record


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
