"""The rows of a source that value a policy: in memory, though its others may be on disk."""

import numpy as np

from fedopl.base.arrays import IntArray
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.policy_fields import valued_split


class SourceRows:
    """Contexts, scores, weights and groups; and which version of a policy each row is valued by.

    That is the version without the row's fold. On held-out rows there is only one.
    """

    def __init__(self, space: Workspace) -> None:
        split, is_by_fold = valued_split(space.study), space.study.evaluation.is_cross_fitted
        scored = space.scored.evaluated(space.unscored_chunks()) if is_by_fold else space.chunks()
        parts, groups = [], []
        for chunk in scored:
            rows = chunk.rows(split)
            data, scores, weights = chunk.data, chunk.scores[rows], chunk.weights(rows)
            own = np.ones(len(scores)) if weights is None else weights
            fold = chunk.folds.of_row[rows] * is_by_fold
            parts.append((data.contexts[rows], scores, own, fold))
            groups.append(data.groups_of(rows))
        self._groups = groups
        self.contexts, self.scores, self.weights, self.version = map(
            np.concatenate, zip(*parts, strict=True)
        )

    @property
    def groups(self) -> IntArray | None:  # (n_rows,)
        """The group of each row, where rows come in some."""
        known = [own for own in self._groups if own is not None]
        return np.concatenate(known) if known else None

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.contexts)


def rows_for(space: Workspace) -> SourceRows:
    """The rows that value a policy, if there are some."""
    if not space.study.evaluation.is_cross_fitted:
        space.check_held_out()
    return SourceRows(space)
