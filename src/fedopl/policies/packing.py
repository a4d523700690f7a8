"""Policies in messages: a field for each kind, named by the kind itself, and one for rules.

A rule is a function in the clients' own code, so only its position among the study's candidates
is sent. Answers come in the order of the fields, and within a field in the order of its policies.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.policies.domain import Domain
from fedopl.policies.kinds import KINDS, Policy

RULES = "rules"
_KIND_OF_FIELD = {kind.message_field: kind for kind in KINDS.values()}
POLICY_FIELDS = (*_KIND_OF_FIELD, RULES)


def packed(
    policies: Iterable[Policy], domain: Domain, rules: Sequence[int] = ()
) -> dict[str, FloatArray]:
    """Every field that carries policies; one of a kind that is not among them is empty."""
    carried: dict[str, list[FloatArray]] = {field: [] for field in _KIND_OF_FIELD}
    for policy in policies:
        carried[policy.message_field].append(policy.numbers())
    fields = {
        field: np.stack(numbers)
        if numbers
        else np.empty((0, *_KIND_OF_FIELD[field].numbers_shape(domain)))
        for field, numbers in carried.items()
    }
    return {**fields, RULES: np.array(rules, np.float64)}


def in_message_order(policies: Mapping[str, Policy]) -> list[str]:
    """The names of these policies in the order in which their values are answered."""
    return sorted(policies, key=lambda name: POLICY_FIELDS.index(policies[name].message_field))


def unpacked(field: str, numbers: FloatArray, domain: Domain) -> Policy:
    """The policy that this field carried; a ValueError if the numbers are none."""
    return _KIND_OF_FIELD[field].from_numbers(numbers, domain)
