"""The closed table of policy kinds: how messages carry policies, and how saved ones are loaded."""

import json
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FedoplError, PolicyError
from fedopl.base.schema import Encoding
from fedopl.policies.allowed.permissions import Permissions
from fedopl.policies.basis import Basis
from fedopl.policies.bent import BentPolicy
from fedopl.policies.cautious import CautiousPolicy
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.neural import NeuralPolicy
from fedopl.policies.pairwise import PairwisePolicy
from fedopl.policies.policy import (
    FORMAT,
    VERSION,
    VERSION_WITH_PERMISSIONS,
    ByFold,
    Domain,
    Policy,
    Version,
)
from fedopl.policies.terms import Terms
from fedopl.policies.tree import TreePolicy
from fedopl.policies.tree_columns import tree_columns

# In the order in which messages carry kinds and clients answer; both sides depend on it.
KINDS: dict[str, type[Policy]] = {
    kind.kind: kind for kind in (LinearPolicy, PairwisePolicy, TreePolicy, NeuralPolicy)
}
# A cautious policy is saved as a kind of its own, and travels in the field of linear ones. A bent
# policy stays at its client, and has no field.
_SAVED_KINDS: dict[str, type[Policy]] = {
    **KINDS,
    CautiousPolicy.kind: CautiousPolicy,
    BentPolicy.kind: BentPolicy,
}
# A message has a field for each kind, and one for rules. Rules are functions in the clients' own
# code; messages carry only their positions among the study's candidates.
RULES = "rules"
_KIND_OF_FIELD = {kind.message_field: kind for kind in KINDS.values()}
POLICY_FIELDS = (*_KIND_OF_FIELD, RULES)
_Key = TypeVar("_Key", bound=Hashable)


def misfit(policy: Policy, domain: Domain) -> str | None:
    """Why the policy cannot decide in this domain, in a few words; None if it can."""
    if (policy.action_names, policy.feature_names) != (domain.actions, domain.features):
        return "its actions or features are not the study's"
    if policy.reads_columns and policy.encoding != domain.encoding:
        return "its columns or levels are not the study's"
    if policy.terms and (domain.terms is None or policy.terms.basis != domain.terms.basis):
        return "its basis is not the study's"
    if isinstance(policy, CautiousPolicy) and not domain.is_cautious:
        return "it is cautious; only a study with caution above 0 under [policy] can value it"
    if isinstance(policy, BentPolicy):
        return "it is one client's own, with bent scores, and no study can value it for others"
    if isinstance(policy, NeuralPolicy) and policy.hidden != domain.hidden:
        layers = f"hidden = {list(policy.hidden)}"
        return f'it is a network; only a study with kind = "neural" and {layers} can value it'
    return other_permissions(policy, domain)


def other_permissions(policy: Policy, domain: Domain) -> str | None:
    """Permissions of the policy that the domain does not have, so that decisions would differ."""
    if policy.permissions and policy.permissions != domain.permissions:
        return "who may get what by it (policy.never, policy.only) is not what the study says"
    return None


def packed(
    policies: Sequence[Policy], domain: Domain, rules: Sequence[int] = ()
) -> dict[str, FloatArray]:
    """Every message field that carries policies; empty for kinds that do not occur."""
    fields = {}
    for field, kind in _KIND_OF_FIELD.items():
        own = [one.numbers_for(domain) for one in policies if one.message_field == field]
        fields[field] = np.array(own).reshape(len(own), *kind.numbers_shape(domain))
    return {**fields, RULES: np.array(rules, np.float64)}


def in_message_order(asked: Mapping[_Key, Version | ByFold]) -> list[_Key]:
    """The keys of these policies in the order in which clients report their values.

    Rules come after policies, and so do choices by fold.
    """
    return sorted(asked, key=lambda key: POLICY_FIELDS.index(_message_field(asked[key])))


def _message_field(asked: Version | ByFold) -> str:
    one = asked[0] if isinstance(asked, ByFold) else asked
    return RULES if isinstance(one, str) else one.message_field


def unpacked(field: str, numbers: FloatArray, domain: Domain) -> Policy:
    """The policy that this field carried; a ValueError if the numbers are invalid."""
    kind = _KIND_OF_FIELD[field]
    if domain.is_cautious and kind is LinearPolicy:
        kind = CautiousPolicy
    return kind.from_numbers(numbers, domain)


class _SavedDomain(NamedTuple):
    actions: tuple[str, ...]
    features: tuple[str, ...]
    encoding: Encoding | None
    terms: Terms | None
    permissions: Permissions | None
    hidden: tuple[int, ...] = ()  # a saved network says itself how wide it is
    is_cautious: bool = False  # and a cautious policy has its doubts beside its scores


def load_policy(path: str | Path) -> Policy:
    """The policy that `save` wrote."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise PolicyError(f"{path}: is not JSON; expected a policy saved by fedopl") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise PolicyError(f"{path}: is not a policy saved by fedopl")
    if content.get("version") != _version(content):
        raise PolicyError(
            f"{path}: expected version {_version(content)}, came {content.get('version')!r}; "
            "load it with the fedopl that saved it"
        )
    try:
        return _SAVED_KINDS[content["kind"]].from_content(content, _domain(content))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, FedoplError):
        raise PolicyError(f"{path}: a field is missing or of the wrong kind or size") from None


def _version(content: dict[str, Any]) -> int:
    return VERSION_WITH_PERMISSIONS if "permissions" in content else VERSION


def _domain(content: dict[str, Any]) -> Domain:
    actions, features = tuple(content["actions"]), tuple(content["features"])
    encoding = Encoding(**content["encoding"]) if "encoding" in content else None
    # The file may have been edited: a policy that reads columns would then use the wrong ones.
    if encoding and encoding.feature_names != features:
        raise ValueError("the encoding is of other features")
    terms = Terms(Basis(**content["basis"]), features) if "basis" in content else None
    permissions = Permissions(**content["permissions"]) if "permissions" in content else None
    if permissions:
        permissions.check(tree_columns(features, encoding), actions)
    return _SavedDomain(actions, features, encoding, terms, permissions)
