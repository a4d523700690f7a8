"""How the clients' answers to one query combine to a total: every answer field declares it."""

import typing
from collections.abc import Iterable, Mapping
from typing import Any

from fedopl.base.arrays import FloatArray
from fedopl.messages.message import AnswerType, Message, own_fields


class Combination:
    """How one field of the clients' answers combines."""


class Sum(Combination):
    """Added up over clients, regardless of their weights."""


class WeightedMean(Combination):
    """Σ_c λ_c · x_c, with λ the agreed weights of the clients that answered."""


class PerClient(Combination):
    """Concerns its own client alone, so there is no total."""


def combinations_of(answer: type[Message]) -> dict[str, type[Combination]]:
    """How each field of this answer combines, without the fields that every message has."""
    hints = typing.get_type_hints(answer, include_extras=True)
    return {name: hints[name].__metadata__[-1] for name in own_fields(answer)}


def combined(answers: Mapping[str, AnswerType], weights: Mapping[str, float]) -> AnswerType:
    """The total of these answers, in which every field is combined as it declares.

    Answers are taken one at a time, sorted by name. So they need not be in memory together, and the
    float sums do not depend on the order of arrival.
    """
    total: dict[str, Any] = {}
    ways: dict[str, type[Combination]] = {}
    for client in sorted(answers):
        answer = answers[client]
        ways = ways or combinations_of(type(answer))
        for name, combination in ways.items():
            if combination is PerClient:
                raise TypeError(f"{type(answer).__name__}.{name} has no total")
            part = getattr(answer, name)
            part = weights[client] * part if combination is WeightedMean else part
            if name in total:
                total[name] += part  # in place: sums of squares may take a gigabyte each
            else:
                total[name] = 0.0 + part
    return type(answer)(**total)


def weighted_sum(weights: Mapping[str, float], arrays: Mapping[str, FloatArray]) -> FloatArray:
    """Σ_c λ_c · array_c; the server sets the weights, whatever clients report."""
    # Sorted: float sums depend on order, and answers arrive in any order.
    return _sum_of(weights[name] * arrays[name] for name in sorted(arrays))


def plain_sum(arrays: Mapping[str, FloatArray]) -> FloatArray:
    """Σ_c array_c."""
    return _sum_of(arrays[name] for name in sorted(arrays))


def _sum_of(parts: Iterable[FloatArray]) -> FloatArray:
    remaining = iter(parts)
    total = 0.0 + next(remaining)
    for part in remaining:
        total += part  # in place: sums of squares may take a gigabyte each
    return total
