"""membership.json: which clients joined or left a finished run, and valuations of policies."""

import json
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from fedopl.results.membership import Change, Membership, Valuation

if TYPE_CHECKING:
    from fedopl.results.record import Record

_CHANGES = TypeAdapter(tuple[Change, ...])
_VALUATIONS = TypeAdapter(tuple[Valuation, ...])


def membership_json(membership: Membership) -> str:
    """The membership without the earlier run, which has a folder of its own."""
    content = {
        "changes": _CHANGES.dump_python(membership.changes),
        "valuations": _VALUATIONS.dump_python(membership.valuations),
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def membership_of(text: str, before: "Record") -> Membership:
    """The membership that was written, with the earlier run."""
    content = json.loads(text)
    return Membership(
        changes=_CHANGES.validate_python(content["changes"]),
        valuations=_VALUATIONS.validate_python(content["valuations"]),
        before=before,
    )
