"""What the rows of a source are like under weights that the server chooses."""

import numpy as np

from fedopl.client.answers.transporting.source_rows import SourceRows, by_unit
from fedopl.client.workspace import Workspace
from fedopl.messages.target.balance_sums import BalanceContexts, BalanceSums
from fedopl.solvers.entropy_balance import rows_behind


def answer(space: Workspace, query: BalanceContexts) -> BalanceSums:
    """Weighted means of b and its products, and the logarithm of the mean weight."""
    source = SourceRows(space)
    terms, weights, log_weight = source.weighed_by(query)
    scored = bool(np.isfinite(source.scores).all())
    behind = rows_behind(by_unit(weights, source.groups))
    told = scored and behind >= space.limits.minimum_cell
    if not told:
        log_weight, terms = 0.0, np.zeros_like(terms)
    return BalanceSums(
        released=int(told),
        scored=int(scored),
        n_rows=source.n_rows,
        log_weight=log_weight,
        means=weights @ terms,
        products=(terms * weights[:, None]).T @ terms,
    )
