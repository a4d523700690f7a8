"""The held-out rows of a source, which are in memory though the others may be on disk."""

import numpy as np

from fedopl.base.arrays import IntArray
from fedopl.client.scoring.net_scores import net_rewards
from fedopl.client.workspace import Workspace
from fedopl.messages.message import RowSplit


class HeldOutRows:
    """Contexts, scores, rewards, weights and groups of a source's held-out rows."""

    def __init__(self, space: Workspace) -> None:
        parts = []
        for chunk in space.chunks():
            rows = chunk.rows(RowSplit.EVALUATION)
            data, rewards = chunk.data, net_rewards(chunk.data, rows, space.study)
            weights = chunk.weights(rows)
            own = np.ones(len(rewards)) if weights is None else weights
            parts.append((data.contexts[rows], chunk.scores[rows], rewards, own))
        self._groups = [c.data.groups_of(c.rows(RowSplit.EVALUATION)) for c in space.chunks()]
        self.contexts, self.scores, self.rewards, self.weights = map(
            np.concatenate, zip(*parts, strict=True)
        )

    @property
    def groups(self) -> IntArray | None:  # (n_rows,)
        """The group of each row, where rows come in some."""
        known = [own for own in self._groups if own is not None]
        return np.concatenate(known) if known else None

    @property
    def n_rows(self) -> int:
        """How many rows are held out."""
        return len(self.contexts)


def rows_for(space: Workspace) -> HeldOutRows:
    """The held-out rows, if there are some."""
    space.check_held_out()
    return HeldOutRows(space)
