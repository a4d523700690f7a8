"""The closed table of policy kinds, what each of them offers, and loading a saved policy."""

import json
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.base.errors import PolicyError, SchemaError
from fedopl.base.schema import Encoding
from fedopl.policies.domain import Domain
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.pairwise import PairwisePolicy
from fedopl.policies.saving import FORMAT, VERSION, Savable
from fedopl.policies.tree import TreePolicy


@runtime_checkable
class Policy(Savable, Protocol):
    """A policy of any kind; whoever holds one asks it, and never which kind it is."""

    message_field: ClassVar[str]  # which field of a message carries policies of this kind
    message_axes: ClassVar[tuple[str, ...]]  # what its axes count: policies, then their numbers
    explained_by: ClassVar[str]  # what the report shows of it: "weights" or a "tree"
    reads_columns: ClassVar[bool]  # whether it means columns of a table rather than features

    def decide(self, contexts: ArrayLike) -> IntArray:  # (n_rows,)
        """The code of the action to take in each context."""

    def names(self, contexts: ArrayLike) -> NDArray[np.str_]:  # (n_rows,)
        """The name of the action to take in each context."""

    def save(self, path: str | Path) -> None:
        """Write the policy as JSON."""

    def numbers(self) -> FloatArray:
        """The policy as a message carries it; equal policies have equal numbers."""

    @classmethod
    def numbers_shape(cls, domain: Domain) -> tuple[int, ...]:
        """The shape of these numbers, which is the same for all policies of a study."""

    @classmethod
    def from_numbers(cls, numbers: FloatArray, domain: Domain) -> Self:
        """The policy that a message carried; a ValueError if the numbers are none."""

    @classmethod
    def from_content(cls, content: dict[str, Any], domain: Domain) -> Self:
        """The policy that was saved; a ValueError, KeyError or TypeError if it is none."""


def misfit(policy: Policy, domain: Domain) -> str | None:
    """What keeps the policy from deciding about this domain, in a few words; None if nothing."""
    if (policy.action_names, policy.feature_names) != (domain.actions, domain.features):
        return "its actions or features are not the study's"
    if policy.reads_columns and policy.encoding != domain.encoding:
        return "its columns or levels are not the study's"
    return None


# In the order in which messages carry them and clients answer: both sides rely on it.
KINDS: dict[str, type[Policy]] = {
    kind.kind: kind for kind in (LinearPolicy, PairwisePolicy, TreePolicy)
}


class _SavedDomain(NamedTuple):
    actions: tuple[str, ...]
    features: tuple[str, ...]
    encoding: Encoding | None


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
    if content.get("version") != VERSION:
        raise PolicyError(
            f"{path}: expected version {VERSION}, came {content.get('version')!r}; "
            "load it with the fedopl that saved it"
        )
    try:
        return KINDS[content["kind"]].from_content(content, _domain(content))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, SchemaError):
        raise PolicyError(f"{path}: a field is missing or of the wrong kind or size") from None


def _domain(content: dict[str, Any]) -> Domain:
    actions, features = tuple(content["actions"]), tuple(content["features"])
    encoding = Encoding(**content["encoding"]) if "encoding" in content else None
    if encoding and encoding.feature_names != features:
        raise ValueError("the encoding is of other features")
    return _SavedDomain(actions, features, encoding)
