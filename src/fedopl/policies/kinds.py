"""Loading a saved policy; kinds come from a closed table."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedopl.errors import PolicyError, SchemaError
from fedopl.policies.linear import FORMAT, VERSION, LinearPolicy, PairwisePolicy
from fedopl.schema import Encoding

POLICY_CLASSES: dict[str, type[LinearPolicy]] = {
    LinearPolicy.kind: LinearPolicy,
    PairwisePolicy.kind: PairwisePolicy,
}


def load_policy(path: str | Path) -> LinearPolicy:
    """The policy that `save` wrote."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
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
    except (KeyError, TypeError, ValueError, AttributeError, SchemaError):
        raise PolicyError(f"{path}: a field is missing or of the wrong kind or size") from None


def _policy(content: dict[str, Any]) -> LinearPolicy:
    rows = [[*score["coefficients"], score["intercept"]] for score in content["scores"]]
    actions, features = tuple(content["actions"]), tuple(content["features"])
    encoding = Encoding(**content["encoding"]) if "encoding" in content else None
    parameters = np.array(rows, np.float64)
    policy = POLICY_CLASSES[content["kind"]](parameters, actions, features, encoding)
    expected = (len(policy.score_names), len(features) + 1)
    if policy.parameters.shape != expected or not np.isfinite(policy.parameters).all():
        raise ValueError("wrong size")
    if encoding and encoding.feature_names != features:
        raise ValueError("the encoding is of other features")
    return policy
