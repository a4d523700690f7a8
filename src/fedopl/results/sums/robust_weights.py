"""Clients' weights from their sums: agreed ones, or ones that a few cannot dominate.

Both methods give a mixture of the clients' own sums, so everything else stays the same: policies
are learned, valued and reported for these weights. Distances between clients' sums are measured
number by number, in median absolute deviations over clients.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.errors import FederationError
from fedopl.base.seeds import generator_for
from fedopl.messages.learning.score_sums import ScoreSums, ScoreSumsByFold
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.term_choice import choose_terms
from fedopl.study.mixture import (
    AnyMixture,
    Counted,
    Weights,
    agreed_weights,
    capped,
    renormalised,
)

# With fewer clients, a majority cannot be distinguished from a few.
FEWEST_CLIENTS = 5
TRIMMED = 0.2  # of clients, those furthest from the others
STEPS, CLOSE_ENOUGH = 200, 1e-9  # of Weiszfeld's algorithm
MOST_DISTANCE_BY_ROWS = 3.0  # by which rows make a distance count for more or for less


def weights_for(mixture: AnyMixture, statistics: ScoreStatistics, counted: Counted) -> Weights:
    """The agreed weights of clients that reported sums; robust ones if the mixture says so."""
    own = counted.by(mixture)
    agreed = agreed_weights(mixture, {name: own[name] for name in statistics.sums})
    if mixture.robust is None:
        return agreed
    found = robust_weights(statistics, agreed, counted.rows, mixture.robust)
    return found if mixture.largest_share is None else capped(found, mixture.largest_share)


def robust_weights(
    statistics: ScoreStatistics, weights: Weights, rows: dict[str, int], how: str
) -> Weights:
    """Weights with which a minority of clients cannot move the learned policy without bound."""
    names = sorted(name for name, weight in weights.items() if weight > 0)
    if len(names) < FEWEST_CLIENTS:
        raise FederationError(
            f'mixture: robust = "{how}" needs {FEWEST_CLIENTS} clients with weight to tell most '
            f"from a few, came {len(names)}; leave it out, or add more clients"
        )
    numbers = _scaled(np.stack([_numbers(statistics.sums[name]) for name in names]))
    shares = np.array([weights[name] for name in names])
    if how == "trimmed":
        n_rows = np.array([rows[name] for name in names], np.float64)
        robust = shares * ~_far(numbers, n_rows)
    else:
        robust = _by_groups(numbers, shares, statistics.study.seed)
    found = dict(zip(names, (robust / robust.sum()).tolist(), strict=True))
    return renormalised({name: found.get(name, 0.0) for name in weights}, weights.keys())


def _numbers(sums: ScoreSums) -> FloatArray:
    """All numbers in a client's sums: squares of features, and their products with scores."""
    grams = np.broadcast_to(sums.grams, (len(sums.products), *sums.grams.shape[1:]))
    shared = sums.shares[:, None]
    return np.concatenate([(shared[:, None] * grams).ravel(), (shared * sums.products).ravel()])


def _scaled(numbers: FloatArray) -> FloatArray:  # (n_clients, n_numbers)
    """Distances from the median client, in median absolute deviations if these are above zero."""
    apart = numbers - np.median(numbers, axis=0)
    sizes = np.abs(apart)
    typical, mean = np.median(sizes, axis=0), sizes.mean(axis=0)
    # Numbers that are equal at most clients, up to rounding, and differ at a few.
    scale = np.where(typical > 1e-9 * (1 + np.abs(numbers).max(axis=0)), typical, mean)
    scaled: FloatArray = apart / np.where(scale > 0, scale, 1.0)
    return scaled


def _far(numbers: FloatArray, rows: FloatArray) -> BoolArray:  # (n_clients,)
    """The clients furthest from the middle; small ones may be further away by chance."""
    centre = _geometric_median(numbers)[0]
    expected = np.sqrt(rows / np.median(rows)).clip(
        1 / MOST_DISTANCE_BY_ROWS, MOST_DISTANCE_BY_ROWS
    )
    distances = np.linalg.norm(numbers - centre, axis=1) * expected
    furthest = np.argsort(distances, kind="stable")[
        len(distances) - int(TRIMMED * len(distances)) :
    ]
    far = np.zeros(len(distances), np.bool_)
    far[furthest] = True
    return far


def _by_groups(numbers: FloatArray, shares: FloatArray, seed: int) -> FloatArray:  # (n_clients,)
    """Weights by the geometric median of groups' means (Minsker 2015); the seed draws groups.

    A group counts by how close its mean is to the median, not by its weight. Within a group,
    clients count by their shares.
    """
    n_groups = max(3, len(shares) // 2) | 1  # an odd number
    order = generator_for(seed, purpose="groups of clients").permutation(len(shares))
    groups = [order[start::n_groups] for start in range(n_groups)]
    means = np.stack([shares[own] @ numbers[own] / shares[own].sum() for own in groups])
    _, counts = _geometric_median(means)
    robust = np.zeros(len(shares))
    for own, part in zip(groups, counts, strict=True):
        robust[own] = part * shares[own] / shares[own].sum()
    return robust


def _geometric_median(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The point of least total distance, and how much each point counts in it (Weiszfeld 1937)."""
    counts = np.full(len(points), 1 / len(points))
    centre = np.median(points, axis=0)
    for _ in range(STEPS):
        distances = np.maximum(np.linalg.norm(points - centre, axis=1), CLOSE_ENOUGH)
        counts = 1 / distances / (1 / distances).sum()
        latest = counts @ points
        if np.linalg.norm(latest - centre) <= CLOSE_ENOUGH:
            break
        centre = latest
    return counts @ points, counts


def weighed(
    statistics: ScoreStatistics, counted: Counted, by_fold: Mapping[str, ScoreSumsByFold]
) -> tuple[Weights, ScoreStatistics]:
    """The weights by the study's mixture, and the sums with the terms chosen by them."""
    study = statistics.study
    weights = weights_for(study.mixture, statistics, counted)
    if study.chooses_terms:
        by_noise = statistics.noise_weights(weights)
        choice = choose_terms(study, by_fold, weights, by_noise=by_noise)
        statistics = replace(statistics, choice=choice)
    if np.isnan(statistics.arm_values(weights)).all():
        raise FederationError("no client has a score for any action")
    return weights, statistics
