"""The mixture of sources whose contexts are nearest to the target's, and its cost in rows."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.about_target import ContextMoments
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.server.aggregate.setting import Setting
from fedopl.solvers.transport_sources import matching_mixture
from fedopl.theory.skew import skewness


def pooled_moments(setting: Setting) -> tuple[FloatArray, FloatArray]:
    """Means and covariances of features over all sources, by the mixture."""
    parts = {name: _moments(own, setting) for name, own in setting.statistics.sums.items()}
    weights = {name: setting.weights.get(name, 0.0) for name in parts}
    total = math.fsum(weights.values())
    first = sum(weights[n] / total * parts[n][0] for n in sorted(parts))
    second = sum(weights[n] / total * parts[n][1] for n in sorted(parts))
    return np.asarray(first), np.asarray(second) - np.outer(first, first)


def _moments(own: ScoreSums, setting: Setting) -> tuple[FloatArray, FloatArray]:
    """One client's means (n_features,) and mean products (n_features, n_features) of features.

    With blocks of features, mean products of features in different blocks are not known. There, the
    product of the means is used.
    """
    p, blocks = setting.study.n_features, setting.statistics.blocks
    if blocks is None:
        gram = own.grams[own.grams[:, -1, -1] > 0][0]  # the rows of any action will do
        return gram[:p, -1], gram[:p, :p]
    means, products = np.zeros(p), np.zeros((p, p))
    for columns, gram in zip(blocks, own.grams, strict=False):
        means[columns] = gram[:-1, -1]
    products = np.outer(means, means)
    for columns, gram in zip(blocks, own.grams, strict=False):
        products[np.ix_(columns, columns)] = gram[:-1, :-1]
    return means, products


def matched(setting: Setting, moments: ContextMoments) -> dict[str, Any]:
    """The mixture of sources that is nearest to the target, its skewness, and its remaining gap."""
    names = [name for name in sorted(setting.weights) if name in setting.statistics.sums]
    gaps = {name: _gap(_moments(setting.statistics.sums[name], setting), moments) for name in names}
    rows = {name: setting.rows[name] for name in names}
    mixture = matching_mixture(gaps, rows)
    return {
        "mixture": mixture,
        "skewness": skewness(mixture, rows),
        "gap": _largest(gaps, mixture),
        "gap_as_agreed": _largest(gaps, setting.weights),
    }


def _gap(
    own: tuple[FloatArray, FloatArray], moments: ContextMoments
) -> FloatArray:  # (2·n_features,)
    """How far a client's means and mean squares are from the target's, in standard deviations."""
    means, squares = own[0], np.diagonal(own[1])
    there, there_squared = moments.means[:-1], moments.squares[:-1]
    variances = np.maximum(there_squared - there**2, 0.0)
    here = np.maximum(squares - means**2, 0.0)
    scales = np.sqrt(np.where(variances > 0, variances, np.where(here > 0, here, 1.0)))
    apart = (means - there) / scales
    about = (squares - 2 * means * there + there**2) / scales**2 - variances / scales**2
    # The square of a standard normal number has a standard deviation of √2.
    return np.concatenate([apart, about / math.sqrt(2)])


def _largest(gaps: Mapping[str, FloatArray], weights: Mapping[str, float]) -> float:
    total = math.fsum(weights.get(name, 0.0) for name in gaps)
    mixed = sum(weights.get(name, 0.0) / total * gaps[name] for name in sorted(gaps))
    return float(np.abs(mixed).max(initial=0.0))
