"""Answers under masks: whole numbers that look random one by one, and add up to the total.

A study numbers its masked sums: if clients may be missing, each sum has its own seeds.
"""

import math
from typing import Annotated, Any, cast

import numpy as np

from fedopl.base.arrays import IntArray, Words
from fedopl.base.triangles import from_triangles, lower_triangles, triangle_size
from fedopl.messages.combining import Sum, combinations_of
from fedopl.messages.message import (
    AnswerType,
    Axis,
    Message,
    Query,
    are_symmetric,
    array_axes,
    message,
)
from fedopl.messages.private.noised_moments import MeasureNumbers
from fedopl.messages.private.noised_scores import (
    LookPrivately,
    SumCandidates,
    SumCellsPrivately,
    ValuePrivately,
)
from fedopl.messages.private.noised_sums import SumPrivately, SumResiduals
from fedopl.messages.sensitivity import tells_of_rows
from fedopl.secure.masks import Circle
from fedopl.secure.neighbours import Holding, holders_by_place, holding_of
from fedopl.study.private.added_up import Counting, adds_under_masks, most_lacking, parties_of
from fedopl.study.study import Study


@message
class MaskedSums(Message, code=100):
    """All sums of an answer in one array, in whole steps, with masks, modulo 2⁶⁴."""

    numbers: Annotated[Words, (Axis.MASKED,), Sum]


def is_masked(query: Query[Any], study: Study) -> bool:
    """Whether answers to this query are masked in this study."""
    return adds_under_masks(study) and bool(query.shapes(study))


def is_read_alone(query: Query[Any], study: Study) -> bool:
    """Whether the server or others read the sums of one client's rows in its answer."""
    if not adds_under_masks(study):
        return True
    return not is_masked(query, study) and tells_of_rows(query.answer)


def flattened(query: Query[Any], answer: Message, study: Study) -> IntArray:  # (n_masked,)
    """All sums of an answer in one array, as whole numbers."""
    parts: list[IntArray] = []
    for name in query.shapes(study):
        part = np.asarray(getattr(answer, name), np.int64)
        parts.append((lower_triangles(part) if _is_symmetric(query, name) else part).ravel())
    return np.concatenate(parts)


def n_masked(query: Query[Any], study: Study) -> int:
    """How many numbers a masked answer has."""
    return sum(math.prod(_sent(query, name, shape)) for name, shape in query.shapes(study).items())


def unflattened(
    query: Query[AnswerType], numbers: IntArray, study: Study, step: float
) -> AnswerType:
    """The answer whose sums are these whole numbers of steps."""
    found: dict[str, Any] = {}
    start = 0
    for name, shape in query.shapes(study).items():
        sent = _sent(query, name, shape)
        end = start + math.prod(sent)
        part = numbers[start:end].reshape(sent) / step
        found[name] = from_triangles(part, shape[-1]) if _is_symmetric(query, name) else part
        start = end
    kind: Any = query.answer
    # Counts beside the sums are public, and known from the roster.
    beside = set(combinations_of(kind)) - set(found)
    return cast(AnswerType, kind(**found, **dict.fromkeys(beside, 0)))


def _sent(query: Query[Any], name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in which a sum is sent: for symmetric matrices, only triangles."""
    return (*shape[:-2], triangle_size(shape[-1])) if _is_symmetric(query, name) else shape


def _is_symmetric(query: Query[Any], name: str) -> bool:
    return are_symmetric(array_axes(query.answer)[name])


# In the order in which their secrets are numbered.
SUMMED: tuple[type[Query[Any]], ...] = (
    MeasureNumbers,
    SumPrivately,
    SumResiduals,
    SumCellsPrivately,
    LookPrivately,
    SumCandidates,
    ValuePrivately,
)


def n_sums(study: Study) -> int:
    """How many sums this study can ask for."""
    return sum(_times(query, study) for query in SUMMED)


def _times(query: type[Query[Any]], study: Study) -> int:
    # As agreed: measured ranges do not change the number of sums.
    agreed = study.before_screening
    return (query.most(agreed) or 0) if query.needed(agreed) else 0


def number_of(query: Query[Any], study: Study) -> int:
    """The number of the sum that this query asks for."""
    before = SUMMED[: SUMMED.index(type(query))]
    own = query.number if isinstance(query, SumResiduals) else 0
    return sum(_times(one, study) for one in before) + own


def counting_of(query: Query[Any]) -> Counting:
    """How much rows of different clients count in the sum that this query asks for."""
    if isinstance(query, SumPrivately | MeasureNumbers):
        return Counting.ALIKE
    return Counting.HELD_OUT if isinstance(query, ValuePrivately) else Counting.TRAINING


def n_shared_sums(study: Study) -> int:
    """The number of sums with shared secrets: all, if clients may be missing."""
    return n_sums(study) if most_lacking(study) else 0


def holding_in(study: Study) -> Holding:
    """The number of others that a client has masks and shares with in this study."""
    lacking = most_lacking(study)
    colluders = study.privacy.colluders if study.privacy else 0
    return holding_of(len(parties_of(study)), colluders, lacking)


def circle_in(study: Study, about: bytes) -> Circle:
    """The holders of all shares in this study, with the roster behind `about`."""
    holding = holding_in(study)
    holders = holders_by_place(len(parties_of(study)), holding.n_neighbours, about)
    return Circle(holders, holding.threshold)
