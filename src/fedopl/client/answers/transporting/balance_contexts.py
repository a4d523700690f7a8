"""What a source's held-out rows are like under weights that the server chooses.

The server chooses the weights, so it could have them single somebody out: exp(ηᵀb(x)) with a large
η is nearly one row's. Nothing is released where weights depend on few rows. What is released has
noise: without it, answers at several η that are close together could be subtracted from each other
until the row that lies furthest out is left.
"""

import numpy as np

from fedopl.base.arrays import FloatArray, to_eight_digits
from fedopl.base.decompositions import eigh
from fedopl.client.answers.transporting.held_out_rows import HeldOutRows, numbers_behind, rows_for
from fedopl.client.answers.transporting.transported_rows import is_enough, weights_by_unit
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.noise import round_noise
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.target.balance_sums import MOST_BALANCING_STEPS, BalanceContexts, BalanceSums
from fedopl.messages.target.joint_values import ValueJointly
from fedopl.solvers.entropy_balance import rows_behind
from fedopl.solvers.joint_balance import Units, weights_at


def answer(space: Workspace, query: BalanceContexts) -> BalanceSums:
    """Weighted means of b and its products, and the logarithm of the mean weight."""
    held = rows_for(space, numbers_behind(space))
    terms, weights, log_weight = weigh_jointly(held, query)
    n_terms = terms.shape[1]
    scored = int(np.isfinite(held.scores).all())
    units = weights_by_unit(weights, held.groups)
    may_leave = is_enough(space, units, numbers_behind(space), jointly=True)
    if not (scored and may_leave) or _dominated(space, terms, weights):
        return BalanceSums(
            released=0,
            scored=scored,
            n_rows=held.n_rows,
            log_weight=0.0,
            means=np.zeros(n_terms),
            products=np.zeros((n_terms, n_terms)),
        )
    means = weights @ terms
    apart = terms - means
    covariances = (apart * weights[:, None]).T @ apart
    noise = round_noise(space.limits.value_noise, MOST_BALANCING_STEPS) / rows_behind(units)
    if noise:
        asked = (to_eight_digits(array[None, :]) for _, array in query.named_arrays())
        draws = space.noise_for("balanced", *asked)
        spread = np.sqrt(np.diagonal(covariances))
        log_weight += noise * draws.standard_normal()
        means = means + noise * spread * draws.standard_normal(n_terms)
        crossed = draws.standard_normal(covariances.shape)
        symmetric = np.tril(crossed) + np.tril(crossed, -1).T
        sizes, axes = eigh(covariances + noise * np.outer(spread, spread) * symmetric)
        covariances = (axes * np.maximum(sizes, 0.0)) @ axes.T
    return BalanceSums(
        released=1,
        scored=1,
        n_rows=held.n_rows,
        log_weight=log_weight,
        means=means,
        products=covariances + np.outer(means, means),
    )


def weigh_jointly(
    held: HeldOutRows, query: BalanceContexts | ValueJointly
) -> tuple[FloatArray, FloatArray, float]:
    """B of held-out rows, their weights at this η, and the logarithm of the mean weight.

    To eight digits, so that other processors have the same weights.
    """
    centres, scales, slopes = (
        to_eight_digits(array[None, :])[0] for array in (query.centres, query.scales, query.slopes)
    )
    terms = Units(centres=centres, scales=scales).of(held.masked_contexts)
    with np.errstate(over="ignore", invalid="ignore"):
        weights, log_weight = weights_at(terms, slopes, held.weights)
    if not (np.isfinite(weights).all() and np.isfinite(log_weight)):
        raise RefusedError(RefusalCode.NOT_FINITE)
    return terms, weights, log_weight


def _dominated(space: Workspace, terms: FloatArray, weights: FloatArray) -> bool:
    """Whether one row has most of a weighted sum of squares."""
    if space.limits.dominance >= 1:
        return False
    squares = weights[:, None] * terms**2
    return bool((squares.max(axis=0) > space.limits.dominance * squares.sum(axis=0)).any())
