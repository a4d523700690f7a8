"""How far one row can move a field of an answer, declared beside how the field combines.

A study with differential privacy may ask nothing else: `private_queries` finds the queries whose
answer fields all declare it.
"""

import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedopl.base.arrays import largest_size
from fedopl.messages.message import Message, own_fields
from fedopl.study.private.added_up import FARTHEST_NOISE
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study


@dataclass(frozen=True)
class Moves:
    """How far a field moves, in Euclidean length, if one row is emptied; depends on the study."""

    at_most: Callable[[Study], float]
    noise: str = ""  # which release of the study's setting it is, whose noise covers that


def _not_at_all(_study: Study) -> float:
    return 0.0


# The number of rows is public: an emptied row is still counted.
UNMOVED = Moves(_not_at_all)


def beyond_rows(answer: Message, study: Study, n_rows: int, noise: float = 1.0) -> str | None:
    """What is too large in an answer, given its rows and how far each may move it.

    Noise, `noise` times that of the release, may add a dozen deviations to every number, which
    happens once in 10³² times.
    """
    setting = PrivateSetting(study)
    for name, moves in declared_moves(type(answer)).items():
        found = getattr(answer, name)
        if moves is None or not isinstance(found, np.ndarray):
            continue
        deviation = noise * setting.deviation(moves.noise) if moves.noise else 0.0
        most = n_rows * moves.at_most(study) + FARTHEST_NOISE * deviation
        if not largest_size(found) <= most:
            return f"{name}: {largest_size(found):.3g}, more than its rows can have, {most:.3g}"
    return None


def tells_of_rows(answer: type[Message]) -> bool:
    """Whether a row can move some field of this answer."""
    return any(moves is not UNMOVED for moves in declared_moves(answer).values())


def declared_moves(answer: type[Message]) -> dict[str, Moves | None]:
    """What each field of this answer declares; None for a field without a declaration."""
    hints = typing.get_type_hints(answer, include_extras=True)
    return {name: _declared(hints[name]) for name in own_fields(answer)}


def _declared(hint: Any) -> Moves | None:
    found = [part for part in hint.__metadata__ if isinstance(part, Moves)]
    return found[0] if found else None
