"""A client's personal policy among what it keeps between queries; no answer ever carries it."""

from fedopl.client.disk.store import Store
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.study.study import Study


def keep_personal(store: Store, study: Study, client: str, policy: Policy) -> None:
    """Keep the client's policy in this study."""
    store.put(_key(study, client), {policy.kind: policy.numbers()})


def kept_personal(store: Store, study: Study, client: str) -> Policy | None:
    """The client's policy in this study, if it was solved for."""
    found = store.get(_key(study, client))
    if found is None or LinearPolicy.kind not in found:
        return None
    return LinearPolicy.from_numbers(found[LinearPolicy.kind], study)


def _key(study: Study, client: str) -> str:
    return f"personal {study.digest.hex()} {client}"
