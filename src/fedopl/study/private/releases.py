"""The noisy releases of a client, and how much noise they have."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from fedopl.privacy.accountant import noise_for


class Releasable(NamedTuple):
    """A release before its noise is known."""

    what: str
    moves: float  # what one row, or person, moves it by, in units of the study
    share: float  # of μ², all times together
    times: int = 1
    of_one: bool = False  # under masks: of each client by itself, with all noise of its own


@dataclass(frozen=True)
class Release:
    """A release with noise."""

    part: Releasable
    # For all times together, as Gaussian differential privacy; with sampling, as if all rows were
    # used.
    mu: float
    of_held_out: bool  # of rows that nothing is learned from, or of all others

    @property
    def deviation(self) -> float:
        """The standard deviation of its noise, in units of the study."""
        return self.deviation_for(self.part.moves)

    def deviation_for(self, moves: float) -> float:
        """The standard deviation of its noise if a row moves it by `moves`."""
        return noise_for(moves, self.mu / math.sqrt(self.part.times))
