"""The rows of a source that value a policy: in memory, though its others may be on disk."""

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.policy_fields import valued_split
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.target.balance_sums import BalanceContexts
from fedopl.messages.target.transported_values import ValueAtTarget
from fedopl.solvers.joint_balance import Units, weights_at


class SourceRows:
    """Contexts, scores, weights and groups; and which version of a policy each row is valued by.

    That is the version without the row's fold. On held-out rows there is only one.
    """

    def __init__(self, space: Workspace) -> None:
        split, is_by_fold = valued_split(space.study), space.study.evaluation.is_cross_fitted
        if not is_by_fold:
            space.check_held_out()
        scored = space.scored.evaluated(space.unscored_chunks()) if is_by_fold else space.chunks()
        parts, groups = [], list[IntArray]()
        for chunk in scored:
            rows = chunk.rows(split)
            data, scores, weights = chunk.data, chunk.scores[rows], chunk.weights(rows)
            own = np.ones(len(scores)) if weights is None else weights
            fold = chunk.folds.of_row[rows] * is_by_fold
            parts.append((data.contexts[rows], scores, own, fold))
            groups += [] if (known := data.groups_of(rows)) is None else [known]
        self.groups = np.concatenate(groups) if groups else None
        self.contexts, self.scores, self.weights, self.version = map(
            np.concatenate, zip(*parts, strict=True)
        )

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.contexts)

    def weighed_by(
        self, query: BalanceContexts | ValueAtTarget
    ) -> tuple[FloatArray, FloatArray, float]:
        """B of the rows, their weights at this η, and the logarithm of the mean weight."""
        terms = Units(centres=query.centres, scales=query.scales).of(self.contexts)
        with np.errstate(over="ignore", invalid="ignore"):
            weights, log_weight = weights_at(terms, query.slopes, self.weights)
        if not (np.isfinite(weights).all() and np.isfinite(log_weight)):
            raise RefusedError(RefusalCode.NOT_FINITE)
        return terms, weights, log_weight


def by_unit(numbers: FloatArray, groups: IntArray | None) -> FloatArray:  # (n_units, …)
    """The numbers of rows, or their sums by group where rows come in some."""
    if groups is None:
        return numbers
    _, codes = np.unique(groups, return_inverse=True)
    found = np.zeros((int(codes.max()) + 1, *numbers.shape[1:]))
    np.add.at(found, codes, numbers)
    return found
