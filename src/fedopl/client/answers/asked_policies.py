"""The policies that a query asks about, as functions from contexts to actions."""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray, frozen, to_eight_digits
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disk.store import Arrays
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.policy_fields import AsksAboutPolicies
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.allowed.permissions import first_allowed
from fedopl.policies.kinds import POLICY_FIELDS, RULES, unpacked
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.neural import NeuralPolicy
from fedopl.policies.pairwise import PairwisePolicy

# Fields of policies that are weighted sums of features. Trees have thresholds, which are exact.
_SLOPES = (LinearPolicy.message_field, PairwisePolicy.message_field)
_NETWORKS = (NeuralPolicy.message_field,)

Decides = Callable[[FloatArray], IntArray]


def policies_in(query: AsksAboutPolicies[Any]) -> list[Arrays]:
    """The policies of a query, each as the field that carried it and its numbers.

    Slopes and network weights are rounded to eight digits, both for decisions and for the noise
    that is derived from them. So a study has the same values on whatever processor its policy was
    solved, and no two policies that differ have the same noise.
    """
    return [
        {name: as_counted(name, np.asarray(one))}
        for name in POLICY_FIELDS
        for one in getattr(query, name)
    ]


def as_counted(field: str, numbers: FloatArray) -> FloatArray:  # shaped as numbers
    """The numbers of one policy, rounded to the digits that count."""
    if field in _NETWORKS:  # one flat array, in which each number has a unit of its own
        (counted,) = to_eight_digits(numbers[None, :])
        return np.asarray(counted)
    return to_eight_digits(numbers) if field in _SLOPES else numbers


def deciders(space: Workspace, policies: Sequence[Arrays]) -> list[Decides]:
    """The decisions of each of these policies, as functions of contexts."""
    return [_decider(space, *next(iter(one.items()))) for one in policies]


def _decider(space: Workspace, field: str, numbers: FloatArray) -> Decides:
    if field == RULES:
        return _rule(space, float(numbers))
    try:
        return unpacked(field, numbers, space.study).at(space.client).decide
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
