"""How the learned policy's decisions split over groups of rows, as clients reported it."""

from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.description import Description

# The threshold for a feature that is 0 or 1.
BINARY_CUTS = (-0.5, 0.5, 1.5)


@dataclass(frozen=True, eq=False, kw_only=True)
class Descriptions:
    """Rounded counts of training rows by feature, bin and action, by client."""

    # Sums of whole numbers are exact, so the order of clients does not matter.
    cuts: FloatArray  # (n_features + 1, n_cuts)
    by_client: dict[str, Description]

    def decided(self) -> FloatArray:  # (n_features + 1, n_bins, n_actions)
        """The number of rows to which the learned policy would give each action."""
        return np.asarray(np.sum([answer.decided for answer in self.by_client.values()], axis=0))

    def taken(self) -> FloatArray:  # (n_features + 1, n_bins, n_actions)
        """The number of rows that were given each action."""
        return np.asarray(np.sum([answer.taken for answer in self.by_client.values()], axis=0))
