"""The held-out rows of a source, which are in memory though the others may be on disk."""

from functools import cached_property

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.masking import find_mask
from fedopl.client.scoring.net_scores import net_rewards
from fedopl.client.workspace import Workspace
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode


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
        self._minimum_cell = space.limits.minimum_cell
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

    @cached_property
    def masked_contexts(self) -> FloatArray:  # shaped as contexts
        """Contexts with what is rare among them masked, as those of training rows are for sums."""
        together = np.zeros(self.n_rows, np.int64)
        mask = find_mask(lambda: iter([(self.contexts, together)]), 1, self._minimum_cell)
        return mask(self.contexts, together)


def rows_for(space: Workspace, n_numbers: int) -> HeldOutRows:
    """The held-out rows, if there are enough of them for so many numbers."""
    held = HeldOutRows(space)
    if held.n_rows < max(space.limits.minimum_cell, 1):
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    space.limits.check_parameters(n_numbers, held.n_rows)
    return held


def numbers_behind(space: Workspace) -> int:
    """How many numbers the weights and values of held-out rows are fitted to."""
    return 2 * space.study.n_features + space.study.n_actions + 1
