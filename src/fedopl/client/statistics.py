"""Sums over a client's training rows that policies are solved from."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedopl.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.logged_data import LoggedData
from fedopl.policies.linear import action_pairs

ROWS_PER_BLOCK = 8192


@dataclass(frozen=True, eq=False, kw_only=True)
class ScoreMeans:
    """Weighted means over rows; `grams` has one for all actions where all have the same rows."""

    grams: FloatArray  # (1 or n_actions, n_columns, n_columns)
    products: FloatArray  # (n_actions, n_columns)
    squares: FloatArray  # (n_actions,)
    shares: FloatArray  # (n_actions,)


def score_means(
    data: LoggedData, scores: FloatArray, rows: BoolArray, columns: list[IntArray] | None
) -> ScoreMeans:
    """Means of φφᵀ, φ·Γ̂(a) and Γ̂(a)² over the rows that have a score for the action."""
    n_actions = data.n_actions
    complete = columns is None and bool(np.isfinite(scores[rows]).all())
    width = data.n_features + 1 if columns is None else len(columns[0]) + 1
    grams = np.zeros((1 if complete else n_actions, width, width))
    products = np.zeros((n_actions, width))
    squares, weights = np.zeros(n_actions), np.zeros(n_actions)
    total = 0.0
    for features, gamma, weight in _blocks(data, scores, rows):
        total += weight.sum()
        weighted = features * weight[:, None]
        if complete:
            grams[0] += weighted.T @ features
            products += gamma.T @ weighted
            squares += weight @ gamma**2
            weights += weight.sum()
            continue
        known = np.isfinite(gamma)
        gamma = np.where(known, gamma, 0.0)
        squares += weight @ gamma**2
        weights += weight @ known
        if columns is None:
            products += gamma.T @ weighted
            _add_grams(grams, features, weighted, known)
            continue
        for action, own in enumerate(columns):
            mine = [*own, -1]
            products[action] += gamma[:, action] @ weighted[:, mine]
            _add_grams(
                grams[action : action + 1],
                features[:, mine],
                weighted[:, mine],
                known[:, action : action + 1],
            )
    safe = np.where(weights > 0, weights, 1.0)
    return ScoreMeans(
        grams=grams / safe[: len(grams), None, None],
        products=products / safe[:, None],
        squares=squares / safe,
        shares=weights / (total or 1.0),
    )


def _add_grams(
    grams: FloatArray, features: FloatArray, weighted: FloatArray, known: BoolArray
) -> None:
    """Add Σ w·φφᵀ over each action's known rows; actions with the same rows share one product."""
    patterns: dict[bytes, FloatArray] = {}
    for gram, column in zip(grams, known.T, strict=True):
        pattern = np.packbits(column).tobytes()
        if pattern not in patterns:
            patterns[pattern] = (
                weighted.T @ features if column.all() else weighted[column].T @ features[column]
            )
        gram += patterns[pattern]


def pair_means(
    data: LoggedData, scores: FloatArray, rows: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """For every pair of actions, means of w·zzᵀ and w·z·s: which is better (s), and by what (w)."""
    pairs = action_pairs(data.n_actions)
    width = data.n_features + 1
    grams, products = np.zeros((len(pairs), width, width)), np.zeros((len(pairs), width))
    total = 0.0
    for features, gamma, weight in _blocks(data, scores, rows):
        total += weight.sum()
        for pair, (first, second) in enumerate(pairs):
            gain = np.nan_to_num(gamma[:, first] - gamma[:, second]) * weight
            grams[pair] += (features * np.abs(gain)[:, None]).T @ features
            products[pair] += gain @ features
    return grams / total, products / total


def value_slope(
    data: LoggedData,
    scores: FloatArray,
    rows: BoolArray,
    parameters: FloatArray,
    temperature: float,
) -> tuple[FloatArray, float]:
    """The gradient of a softmax policy's mean score, and how many rows it effectively rests on."""
    pulls = np.zeros((data.n_rows, data.n_actions))
    slope = np.zeros_like(parameters)
    total, start = 0.0, 0
    for features, gamma, weight in _blocks(data, scores, rows):
        total += weight.sum()
        known = np.isfinite(gamma)
        logits = np.where(known, features @ parameters.T / temperature, -np.inf)
        logits -= logits.max(axis=1, keepdims=True)
        chances = np.exp(logits)
        chances /= chances.sum(axis=1, keepdims=True)
        gains = np.where(known, gamma, 0.0)
        value = (chances * gains).sum(axis=1, keepdims=True)
        pull = chances * (gains - value) * weight[:, None]
        slope += pull.T @ features / temperature
        pulls[start : start + len(pull)] = pull
        start += len(pull)
    return slope / total, effective_rows_behind(pulls)


def effective_rows_behind(pulls: FloatArray) -> float:
    """(Σ|u|)²/Σu² of the column (n_rows, n_columns) that rests on the fewest rows."""
    sizes = np.abs(pulls)
    largest = sizes.max(axis=0)
    moved = largest > 0
    if not moved.any():
        return float(len(pulls))
    shares = sizes[:, moved] / largest[moved]
    effective: FloatArray = shares.sum(axis=0) ** 2 / (shares**2).sum(axis=0)
    return float(effective.min())


def _blocks(
    data: LoggedData, scores: FloatArray, rows: BoolArray
) -> Iterator[tuple[FloatArray, FloatArray, FloatArray]]:
    """Blocks of (x, 1), of scores and of weights, of the rows asked for that have any score."""
    for start in range(0, data.n_rows, ROWS_PER_BLOCK):
        block = slice(start, start + ROWS_PER_BLOCK)
        wanted = rows[block] & np.isfinite(scores[block]).any(axis=1)
        if not wanted.any():
            continue
        features = np.ones((int(wanted.sum()), data.n_features + 1))
        features[:, :-1] = data.contexts[block][wanted]
        weight = np.ones(len(features)) if data.weights is None else data.weights[block][wanted]
        yield features, scores[block][wanted], weight
