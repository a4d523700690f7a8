"""A client's personal policy among what it keeps between queries; no answer ever carries it."""

from fedopl.client.disk.store import Arrays, Store
from fedopl.policies.bent import BentPolicy
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.study.study import Study

_SCORES, _KNOTS, _SLOPES = "scores", "knots", "slopes"


def keep_personal(store: Store, study: Study, client: str, policy: Policy) -> None:
    """Keep the client's policy in this study."""
    if not isinstance(policy, LinearPolicy):
        raise TypeError(f"a personal policy is linear or bent, came a {policy.kind} one")
    kept: Arrays = {_SCORES: policy.parameters}
    if isinstance(policy, BentPolicy):
        kept |= {_KNOTS: policy.knots, _SLOPES: policy.slopes}
    store.put(_key(study, client), kept)


def kept_personal(store: Store, study: Study, client: str) -> Policy | None:
    """The client's policy in this study, if it was solved for."""
    found = store.get(_key(study, client))
    if found is None or _SCORES not in found:
        return None
    policy = LinearPolicy.from_numbers(found[_SCORES], study)
    return BentPolicy.bending(policy, found[_KNOTS], found[_SLOPES]) if _KNOTS in found else policy


def _key(study: Study, client: str) -> str:
    return f"personal {study.digest.hex()} {client}"
