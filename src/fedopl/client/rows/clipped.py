"""Clips features and outcomes to the study's ranges, before anything else looks at them."""

from dataclasses import dataclass
from typing import Self

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.table.logged_data import LoggedData
from fedopl.study.study import Study


@dataclass(frozen=True, eq=False)
class Clip:
    """The ends of what is clipped."""

    low: FloatArray  # (n_features,)
    high: FloatArray  # (n_features,)
    outcome: tuple[float, float]  # as rewards are: a larger one is better

    @classmethod
    def of(cls, study: Study) -> Self | None:
        """The study's; None if it has no ranges."""
        if not study.ranges:
            return None
        ends = [study.ranges.features.get(name, (-np.inf, np.inf)) for name in study.features]
        low, high = np.array(ends, np.float64).T
        outcome = study.ranges.outcome or (-np.inf, np.inf)
        first, last = sorted(study.reward_sign * end for end in outcome)
        return cls(low, high, (first, last))

    def __call__(self, data: LoggedData) -> LoggedData:
        """The rows with what lies beyond at the nearer end; the same rows if nothing does."""
        if not self.n_beyond(data):
            return data
        contexts = np.clip(data.contexts, self.low, self.high)
        return data.with_contexts(contexts).with_rewards(np.clip(data.rewards, *self.outcome))

    def n_beyond(self, data: LoggedData) -> int:
        """How many numbers of these rows lie beyond."""
        low, high = self.outcome
        of_rewards = (data.rewards < low) | (data.rewards > high)
        beyond = (data.contexts < self.low) | (data.contexts > self.high)
        return int(np.count_nonzero(beyond)) + int(np.count_nonzero(of_rewards))


def n_clipped(data: LoggedData, study: Study) -> int:
    """How many numbers of all rows lie beyond the study's ranges."""
    clip = Clip.of(study)
    return 0 if clip is None else sum(clip.n_beyond(data.part(rows)) for rows in data.slices())
