"""Stores a client's personal policy between queries; no answer ever carries it."""

import hashlib

from fedopl.client.disk.store import Arrays, Store
from fedopl.policies.bent import BentPolicy
from fedopl.policies.cautious import CautiousPolicy
from fedopl.policies.kinds import RULES, unpacked
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.study.study import Study

_SCORES, _DOUBTS, _KNOTS, _SLOPES = "scores", "doubts", "knots", "slopes"


def keep_personal(
    store: Store, study: Study, client: str, policy: Policy, moved: Policy | None = None
) -> None:
    """Store the client's policy in this study; `moved` is the policy it started from at home."""
    if not isinstance(policy, LinearPolicy):
        keep_candidate(store, study, client, {policy.message_field: policy.numbers()})
        return
    kept: Arrays = {_SCORES: policy.parameters}
    if isinstance(policy, CautiousPolicy):
        kept |= {_DOUBTS: policy.doubts}
    if isinstance(policy, BentPolicy):
        kept |= {_KNOTS: policy.knots, _SLOPES: policy.slopes}
    store.put(_key(study, client, moved), kept)


def keep_candidate(store: Store, study: Study, client: str, chosen: Arrays) -> None:
    """Store a policy in the message field of its kind, or the place of a rule."""
    store.put(_key(study, client), chosen)


def kept_personal(
    store: Store, study: Study, client: str, moved: Policy | None = None
) -> Policy | None:
    """The client's policy in this study, if it was solved for and is not a rule in its code."""
    found = store.get(_key(study, client, moved))
    if found is None or RULES in found:
        return None
    if _SCORES not in found:
        ((field, numbers),) = found.items()
        return unpacked(field, numbers, study)
    policy = LinearPolicy.from_numbers(found[_SCORES], study)
    if _DOUBTS in found:
        return CautiousPolicy.doubting(policy, found[_DOUBTS])
    return BentPolicy.bending(policy, found[_KNOTS], found[_SLOPES]) if _KNOTS in found else policy


def kept_rule(store: Store, study: Study, client: str) -> str | None:
    """The name of the rule in the client's code that it chose for itself, None if it chose none."""
    found = store.get(_key(study, client))
    return study.candidates[int(found[RULES])] if found and RULES in found else None


def _key(study: Study, client: str, moved: Policy | None = None) -> str:
    at_home = "" if moved is None else hashlib.sha256(moved.numbers().tobytes()).hexdigest()
    return f"personal {study.digest.hex()} {client} {at_home}".rstrip()
