"""Policies as files: readable JSON, in which every float reads back the same."""

import json
from pathlib import Path
from typing import Any, ClassVar, Protocol

from fedopl.base.files import write_atomically
from fedopl.base.schema import Encoding

FORMAT, VERSION = "fedopl-policy", 1


class Savable(Protocol):
    """What a policy of any kind is saved with."""

    kind: ClassVar[str]

    @property
    def action_names(self) -> tuple[str, ...]:
        """What it decides between."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What it looks at."""

    @property
    def encoding(self) -> Encoding | None:
        """How a table becomes features."""

    def content(self) -> dict[str, Any]:
        """What is particular to its kind."""


def policy_json(policy: Savable) -> str:
    """The policy as JSON text, the same bytes for the same policy."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "kind": policy.kind,
        "actions": list(policy.action_names),
        "features": list(policy.feature_names),
        **policy.content(),
    }
    if policy.encoding:
        content["encoding"] = policy.encoding.model_dump(mode="json")
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def save_policy(policy: Savable, path: str | Path) -> None:
    """Write the policy, whole or not at all."""
    write_atomically(Path(path), policy_json(policy).encode())
