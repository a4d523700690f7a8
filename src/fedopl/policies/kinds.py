"""Every kind of policy there is, and loading a saved one; kinds come from a closed table."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedopl.base.errors import PolicyError, SchemaError
from fedopl.base.schema import Encoding
from fedopl.policies.columns import tree_columns
from fedopl.policies.linear import LinearPolicy, PairwisePolicy
from fedopl.policies.saving import FORMAT, VERSION
from fedopl.policies.tree import MOST_DEPTH, TreePolicy, depth_of, from_content

Policy = LinearPolicy | TreePolicy


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
        return _policy(content)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, SchemaError):
        raise PolicyError(f"{path}: a field is missing or of the wrong kind or size") from None


def _policy(content: dict[str, Any]) -> Policy:
    actions, features = tuple(content["actions"]), tuple(content["features"])
    encoding = Encoding(**content["encoding"]) if "encoding" in content else None
    if encoding and encoding.feature_names != features:
        raise ValueError("the encoding is of other features")
    return LOADERS[content["kind"]](content, actions, features, encoding)


Names = tuple[str, ...]


def _linear(kind: type[LinearPolicy]) -> Callable[..., Policy]:
    def load(
        content: dict[str, Any], actions: Names, features: Names, encoding: Encoding | None
    ) -> Policy:
        rows = [[*score["coefficients"], score["intercept"]] for score in content["scores"]]
        policy = kind(np.array(rows, np.float64), actions, features, encoding)
        expected = (len(policy.score_names), len(features) + 1)
        if policy.parameters.shape != expected or not np.isfinite(policy.parameters).all():
            raise ValueError("wrong size")
        return policy

    return load


def _tree(
    content: dict[str, Any], actions: Names, features: Names, encoding: Encoding | None
) -> Policy:
    root = from_content(content["tree"], tree_columns(features, encoding), actions)
    if depth_of(root) > MOST_DEPTH:
        raise ValueError("too deep")
    return TreePolicy(root, actions, features, encoding)


LOADERS: dict[str, Callable[..., Policy]] = {
    LinearPolicy.kind: _linear(LinearPolicy),
    PairwisePolicy.kind: _linear(PairwisePolicy),
    TreePolicy.kind: _tree,
}
