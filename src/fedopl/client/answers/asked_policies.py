"""The policies that a query asks about, as functions from contexts to actions."""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray, frozen
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disk.store import Arrays
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.allowed.permissions import first_allowed
from fedopl.policies.kinds import POLICY_FIELDS, RULES, unpacked
from fedopl.policies.trees.nodes import Node, from_array

Decides = Callable[[FloatArray], IntArray]


def policies_in(query: AsksAboutPolicies[Any]) -> list[Arrays]:
    """The policies of a query, each as the field that carried it and its numbers."""
    return [{name: np.asarray(one)} for name in POLICY_FIELDS for one in getattr(query, name)]


def deciders(space: Workspace, policies: Sequence[Arrays], at: str | None = None) -> list[Decides]:
    """The decisions of each of these policies, as functions of contexts, here or at a client."""
    return [_decider(space, *next(iter(one.items())), at or space.client) for one in policies]


def _decider(space: Workspace, field: str, numbers: FloatArray, client: str) -> Decides:
    if field == RULES:
        return _rule(space, float(numbers))
    try:
        return unpacked(field, numbers, space.study).at(client).decide
    except ValueError:
        raise RefusedError(RefusalCode.MALFORMED) from None


def _rule(space: Workspace, position: float) -> Decides:
    """A rule of the client's own code; any answer other than action codes is a failure."""
    if position not in range(len(space.study.candidates)):
        raise RefusedError(RefusalCode.MALFORMED)
    rule = space.rules[space.study.candidates[int(position)]]
    alone = Lock()  # several threads work on the rows; the rule need not be thread-safe

    def decide(contexts: FloatArray) -> IntArray:
        with alone:
            # Frozen, because a rule must not change the rows.
            answered = np.asarray(rule(frozen(contexts)))
        if answered.shape != (len(contexts),) or answered.dtype.kind not in "iub":
            raise RefusedError(RefusalCode.FAILED)
        codes = answered.astype(np.int64)
        if len(codes) and (codes.min() < 0 or codes.max() >= space.study.n_actions):
            raise RefusedError(RefusalCode.FAILED)
        forbidden = space.obeyed.forbidden(contexts)
        return codes if forbidden is None else first_allowed(codes, forbidden)

    return decide


def tree_of(space: Workspace, numbers: FloatArray, leaves: range) -> Node:
    """The tree in these numbers; refused if it does not fit this study."""
    try:
        return from_array(numbers, space.study.columns, leaves)
    except ValueError:
        raise RefusedError(RefusalCode.MALFORMED) from None
