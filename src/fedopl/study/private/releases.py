"""What leaves a client with noise, and how much noise that is."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from fedopl.privacy.accountant import noise_for


class Releasable(NamedTuple):
    """Something that leaves, before its noise is known."""

    what: str
    moves: float  # what one row, or person, moves it by, in units of the study
    share: float  # of μ², all times together
    times: int = 1
    of_one: bool = False  # under masks: of each client by itself, with all noise of its own


@dataclass(frozen=True)
class Release:
    """Something that leaves with noise."""

    part: Releasable
    # Of it, all times together, as Gaussian differential privacy; of sampled rows, if all were.
    mu: float
    of_held_out: bool  # of rows that nothing is learned from, or of all others

    @property
    def deviation(self) -> float:
        """The standard deviation of its noise, in units of the study."""
        return self.deviation_for(self.part.moves)

    def deviation_for(self, moves: float) -> float:
        """The same where a row moves it by so much."""
        return noise_for(moves, self.mu / math.sqrt(self.part.times))
