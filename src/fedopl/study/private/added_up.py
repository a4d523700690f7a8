"""Which clients take part in masked sums, and how much each client's rows count.

The server and every client compute the same from the roster: the rows that clients signed for, and
the mixture that all agreed on.
"""

import enum
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from fedopl.base.errors import OptionError
from fedopl.privacy.exact_noise import FINE
from fedopl.secure.masks import LARGEST_TOTAL
from fedopl.study.mixture import Weights, agreed_weights
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study

# Noise exceeds this many deviations once in 10³² times.
FARTHEST_NOISE = 12
# The number of steps in the largest weight.
WEIGHT_STEPS = 4096
# Weights that differ by less count as equal: the difference is rounding.
_SAME = 1e-9


class WholeWeights(NamedTuple):
    """The factor on each client's numbers, and the largest allowed factor."""

    by_client: dict[str, int]
    scale: int

    def total(self, counted: Mapping[str, int]) -> float:
        """The weight of each client's number of rows in total; the heaviest row counts as 1."""
        return sum(self.by_client[name] * n_rows for name, n_rows in counted.items()) / self.scale

    def squared(self) -> "WholeWeights":
        """The squares of all weights, on the same scale, rounded up."""
        squares = {name: -(-(own**2) // self.scale) for name, own in self.by_client.items()}
        return WholeWeights(squares, self.scale)


def whole_weights(weights: Mapping[str, float]) -> WholeWeights:
    """Whole numbers in about these proportions; all are 1 if the weights are equal."""
    largest = max(weights.values())
    if min(weights.values()) >= largest * (1 - _SAME):
        return WholeWeights(dict.fromkeys(sorted(weights), 1), 1)
    found = {name: round(WEIGHT_STEPS * weights[name] / largest) for name in sorted(weights)}
    return WholeWeights(found, WEIGHT_STEPS)


class Counting(enum.Enum):
    """How much rows of different clients count in a sum."""

    ALIKE = "all the same"
    TRAINING = "as in the mixture of means over training rows"
    HELD_OUT = "as in the mixture of means over held-out rows"
    HELD_OUT_SQUARES = "as squares do in the variance of that"


def adds_under_masks(study: Study) -> bool:
    """Whether the server reads only totals of answers."""
    return study.privacy is not None and study.privacy.is_secure


def begins_under_masks(study: Study) -> bool:
    """Whether masked sums begin with this study; its continuations keep the agreed roster."""
    return adds_under_masks(study) and study.agreed_digest == study.digest


def most_lacking(study: Study) -> int:
    """How many clients may be missing from a masked sum."""
    return study.privacy.dropouts if study.privacy else 0


def parties_of(study: Study) -> tuple[str, ...]:
    """The clients whose answers are added up under masks, in the order of their names."""
    return tuple(sorted(study.privacy.keys)) if study.privacy else ()


@dataclass(frozen=True, eq=False, kw_only=True)
class AddedUp:
    """The clients whose answers are added up, with their rows."""

    study: Study
    rows: dict[str, int]  # to learn from
    held_out: dict[str, int]
    stayed: frozenset[str] = frozenset()  # whom a sum is over; of nobody, over all

    def __post_init__(self) -> None:
        """Refuse sizes with which a total could be too large to be read."""
        everything = PrivateSetting(self.study).releases.values()
        releases = [one for one in everything if not one.part.of_one]
        furthest = max(one.part.moves for one in releases)
        noise = FARTHEST_NOISE * len(self.rows) * max(one.deviation for one in releases)
        n_rows = sum(self.rows.values()) + sum(self.held_out.values())
        if (n_rows * furthest + noise) * FINE * WEIGHT_STEPS >= LARGEST_TOTAL:
            raise OptionError(
                f"privacy.aggregation: sums over {n_rows:,} rows may be too large for masked "
                "numbers of 64 bits; use fewer rows or terms, or plain aggregation"
            )

    def over(self, names: Iterable[str]) -> "AddedUp":
        """The same for a sum over the clients in `names` alone; the others count for nothing in it.

        The weight of a row stays as agreed, whichever clients are missing.
        """
        return replace(self, stayed=frozenset(names))

    def counted(self, rows: Mapping[str, int]) -> dict[str, int]:
        """The numbers of the clients that a sum covers."""
        return {name: rows[name] for name in sorted(self.stayed or rows)}

    @property
    def noise(self) -> float:
        """The standard deviation of noise in the total, relative to that of a release."""
        return PrivateSetting(self.study).plan.noise_of(len(self.stayed or self.rows))

    @cached_property
    def weights(self) -> Weights:
        """The agreed weight of each client."""
        return agreed_weights(self.study.mixture, self.rows)

    @cached_property
    def of_training(self) -> WholeWeights:
        """The weight of a row in the mixture of means over training rows."""
        return self._by_row(self.rows)

    @cached_property
    def of_held_out(self) -> WholeWeights:
        """The weight of a row in the mixture of means over held-out rows."""
        return self._by_row(self.held_out)

    def weights_of(self, counting: Counting) -> WholeWeights:
        """The factors on clients' rows in sums with this way of counting."""
        if counting is Counting.ALIKE:
            return whole_weights(dict.fromkeys(self.rows, 1.0))
        if counting is Counting.TRAINING:
            return self.of_training
        held_out = self.of_held_out
        return held_out if counting is Counting.HELD_OUT else held_out.squared()

    def _by_row(self, counted: Mapping[str, int]) -> WholeWeights:
        return whole_weights(
            {name: self.weights[name] / max(counted[name], 1) for name in self.rows}
        )

    def own_deviation(self, deviation: float) -> float:
        """The noise that each client adds so that a total has noise of this deviation."""
        plan = PrivateSetting(self.study).plan
        return deviation / math.sqrt(plan.n_sharing_noise)
