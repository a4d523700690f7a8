"""What single clients said of the earlier run: dropped when one leaves, said again when it is back.

Descriptions, fits and interactions are one client's own answers, so a leaving client's are not
kept. Tables of values and what was concluded from all clients together stay.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from fedopl.results.descriptions import Descriptions
from fedopl.results.record import Record
from fedopl.server.policy_comparison import Evaluated

_Own = TypeVar("_Own")


def without_answers(before: Record, clients: Collection[str]) -> Record:
    """The run without these clients' own answers; what they put in doubt stays in doubt."""
    described = before.described
    if described:
        kept = _without(described.by_client, clients)
        described = replace(described, by_client=kept) if kept else None
    return replace(
        before,
        described=described,
        fitted=_without(before.fitted, clients),
        interactions=_without(before.interactions, clients),
        doubt_then=before.in_doubt or "",
    )


def with_answers(before: Record, told: Evaluated) -> Record:
    """The run with the answers of clients that are back and said them of the same policy again."""
    return replace(
        before,
        described=_both(before.described, told.described, before.rows),
        fitted=_with(before.fitted, told.fitted, before.rows),
        interactions=_with(before.interactions, told.interactions, before.rows),
    )


def _both(
    first: Descriptions | None, again: Descriptions | None, clients: Collection[str]
) -> Descriptions | None:
    if first is None or again is None:
        return first or again
    if not np.array_equal(first.cuts, again.cuts):
        return first
    return replace(first, by_client=_with(first.by_client, again.by_client, clients))


def _with(
    first: Mapping[str, _Own], again: Mapping[str, _Own], clients: Collection[str]
) -> dict[str, _Own]:
    """All of the first, and what clients of the run say again that is not there any more."""
    own = {name: one for name, one in again.items() if name in clients}
    return dict(sorted({**own, **first}.items()))


def _without(first: Mapping[str, _Own], clients: Collection[str]) -> dict[str, _Own]:
    return {name: one for name, one in first.items() if name not in clients}
