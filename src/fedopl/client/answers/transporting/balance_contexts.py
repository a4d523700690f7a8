"""What the rows of a source are like under weights that the server chooses."""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.answers.transporting.source_rows import SourceRows, rows_for
from fedopl.client.answers.transporting.transported_rows import is_enough, weights_by_unit
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.target.balance_sums import BalanceContexts, BalanceSums
from fedopl.messages.target.joint_values import ValueJointly
from fedopl.solvers.joint_balance import Units, weights_at


def answer(space: Workspace, query: BalanceContexts) -> BalanceSums:
    """Weighted means of b and its products, and the logarithm of the mean weight."""
    source = rows_for(space)
    terms, weights, log_weight = weigh_jointly(source, query)
    n_terms = terms.shape[1]
    scored = int(np.isfinite(source.scores).all())
    if not (scored and is_enough(space, weights_by_unit(weights, source.groups), jointly=True)):
        return BalanceSums(
            released=0,
            scored=scored,
            n_rows=source.n_rows,
            log_weight=0.0,
            means=np.zeros(n_terms),
            products=np.zeros((n_terms, n_terms)),
        )
    means = weights @ terms
    return BalanceSums(
        released=1,
        scored=1,
        n_rows=source.n_rows,
        log_weight=log_weight,
        means=means,
        products=(terms * weights[:, None]).T @ terms,
    )


def weigh_jointly(
    source: SourceRows, query: BalanceContexts | ValueJointly
) -> tuple[FloatArray, FloatArray, float]:
    """B of the rows, their weights at this η, and the logarithm of the mean weight."""
    terms = Units(centres=query.centres, scales=query.scales).of(source.contexts)
    with np.errstate(over="ignore", invalid="ignore"):
        weights, log_weight = weights_at(terms, query.slopes, source.weights)
    if not (np.isfinite(weights).all() and np.isfinite(log_weight)):
        raise RefusedError(RefusalCode.NOT_FINITE)
    return terms, weights, log_weight
