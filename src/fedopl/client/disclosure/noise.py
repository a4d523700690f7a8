"""Noise on counts and values, as large as the change by a few rows: far below their own errors.

Without noise, a server could add and subtract what is released about overlapping groups of rows
until a single row is left. Noise is drawn from the question with the client's secret. So the same
question has the same answer. Other questions, even about the same rows, have other noise.
"""

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from fedopl.base.arrays import FloatArray
from fedopl.base.decompositions import eigh
from fedopl.client.disclosure.limits import RefusedError
from fedopl.messages.refusal import RefusalCode

# Even averaged over this many policies, noise of two usual rows hides one row.
FEW_POLICIES = 48
# With up to this many policies in one answer, the covariances of each with all others disclose no
# more than its mean.
FEW_TOGETHER = 6
# Rounds in which noise need not grow. A server that averages over all of them halves the noise: of
# the usual two rows, one is left. They are fewer than policies, because a round can be aimed at one
# person, who alone then moves its answer.
FEW_ROUNDS = 4
# The largest share of a total by which noise may move it.
MOST_OF_TOTAL = 0.25


def noisy_counts(
    counts: FloatArray, minimum_cell: int, rng: Generator
) -> FloatArray:  # shaped as counts
    """Counts with two-sided geometric noise, zero counts included; none becomes negative.

    One row more or less makes no outcome more than e^(2/minimum_cell) times as likely.
    """
    if minimum_cell < 2:
        return counts
    stop = -np.expm1(-1 / count_scale(minimum_cell))
    noise = rng.geometric(stop, counts.shape) - rng.geometric(stop, counts.shape)
    noisy: FloatArray = np.maximum(np.rint(counts) + noise, 0.0)
    return noisy


def count_scale(minimum_cell: int) -> float:
    """How far noise moves a count, in rows."""
    return minimum_cell / 2


def noisy_total(total: float, one_row: float, rng: Generator) -> float:
    """A sum of weights with noise as large as `one_row`; it is multiplied, so it stays above zero.

    Refused if `one_row` is more than a quarter of the sum: one row then weighs too much.
    """
    share = one_row / total
    if share > MOST_OF_TOTAL:
        raise RefusedError(RefusalCode.HEAVY_ROW)
    return total * float(np.exp(share * rng.standard_normal()))


def round_noise(value_noise: float, n_rounds: int) -> float:
    """Noise on each round, in rows; it grows with the rounds, as all could target one person."""
    return value_noise * float(np.sqrt(max(n_rounds / FEW_ROUNDS, 1.0)))


def values_with_noise(
    means: FloatArray,
    covariances: FloatArray,
    influence: float,
    draws: Sequence[Generator],
    most: float = 0,
) -> tuple[FloatArray, FloatArray]:
    """Means and their covariances, with noise of this influence on a mean.

    The noise on covariances is the square of the influence. Covariances also include the noise on
    the means, so that intervals include it. `draws` has one generator for each mean, and a last one
    for all covariances. Noise is larger if many policies may be asked about (`most`): an attacker
    who spends them all on one person averages over policies, and over all covariances of each.
    """
    if not influence:
        return means, covariances
    *own, all_together = draws
    averaged = np.sqrt(max(most / FEW_POLICIES, 1.0))
    on_means = averaged * influence
    on_pairs = averaged * np.sqrt(max(len(means) / FEW_TOGETHER, 1.0)) * influence**2
    drawn = np.array([rng.standard_normal() for rng in own])
    crossed = all_together.standard_normal(covariances.shape)
    symmetric = np.tril(crossed) + np.tril(crossed, -1).T
    # No contrast may seem more certain than it is. Eigenvalues that noise made negative become
    # zero.
    sizes, axes = eigh(covariances + on_pairs * symmetric)
    possible = (axes * np.maximum(sizes, 0.0)) @ axes.T
    return means + on_means * drawn, possible + on_means**2 * np.eye(len(means))
