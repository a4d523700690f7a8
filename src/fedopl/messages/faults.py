"""What cannot be true of an answer, though it could be read. Whoever sends it is left out."""

import numpy as np

from fedopl.base.arrays import FloatArray, largest_size
from fedopl.messages.vocabulary import (
    CellSums,
    ClassifierSums,
    LeafValues,
    Models,
    ModelShifts,
    OutcomeSums,
    PairSums,
    ScoreMoments,
    ScoreSums,
    Values,
)
from fedopl.policies.trees.grid import Grid
from fedopl.policies.trees.search import FIRST_ACTION, ROWS, WEIGHT
from fedopl.study.study import Study

# How far from one the mean of a constant one may be, and a matrix from its transpose.
CORNER_TOLERANCE = 1e-9
CELL_TOLERANCE = 1e-6
SYMMETRY_TOLERANCE = 1e-6
# Larger stacks of matrices are looked at part by part.
NUMBERS_AT_ONCE = 1 << 16
# Small counts may be rounded up to a client's base, so they can add up to more than its rows.
MOST_BY_ROUNDING, SLACK = 2, 100


def fault_in_score_sums(sums: ScoreSums, study: Study) -> str | None:
    """Sums that were scaled would buy weight; the mean of one gives them away."""
    if len(sums.grams) not in (1, study.n_actions):
        return "the number of grams fits neither one for all actions nor one for each"
    if sums.shares.min() < 0 or sums.shares.max() > 1 + CORNER_TOLERANCE:
        return "a share of rows is outside 0 to 1"
    corners = sums.grams[:, -1, -1]
    present = sums.shares[: len(corners)] > 0
    if (np.abs(corners[present] - 1) > CORNER_TOLERANCE).any():
        return "the mean of one is not one"
    return _fault_in_squares(sums.grams)


def fault_in_outcome_sums(sums: OutcomeSums) -> str | None:
    """Sums of squares are symmetric and not negative."""
    if sums.squared_weights.min() < 0:
        return "a sum of squared weights is negative"
    return _fault_in_squares(sums.sums)


def fault_in_pair_sums(sums: PairSums) -> str | None:
    """Weighted sums of squares are symmetric and not negative."""
    return _fault_in_squares(sums.grams)


def fault_in_values(values: Values, n_candidates: int) -> str | None:
    """One mean for each candidate, and covariances to go with them."""
    if len(values.means) != n_candidates or values.n_rows < 1:
        return f"valued {len(values.means)} policies of {n_candidates}"
    if values.covariances.shape != (n_candidates, n_candidates):
        return "the covariances do not fit the means"
    if values.degrees_of_freedom < 0:
        return "the degrees of freedom are negative"
    return _fault_in_squares(values.covariances)


def fault_in_counts(counts: FloatArray, n_rows: int) -> str | None:
    """Counts (…, n_bins) are whole, not negative, and add up to the rows, but for rounding."""
    if (counts < 0).any() or (counts % 1).any():
        return "a count is not a whole number of rows"
    if (counts.sum(axis=-1) > MOST_BY_ROUNDING * n_rows + SLACK * counts.shape[-1]).any():
        return "counts more rows than there are"
    return None


def fault_in_cell_sums(
    answer: CellSums, grid: Grid, n_open: int, n_rows: int, n_actions: int
) -> str | None:
    """Every two columns divide the same rows, which are no more than there are.

    Shares that were scaled would buy weight; so the shares of all nodes may not exceed one.
    """
    n_nodes, n_cells, n_numbers = answer.cells.shape
    if (n_nodes, n_cells) != (n_open, grid.n_cells) or len(answer.lost) != n_open:
        return "the cells are not those of the grid"
    if n_numbers not in (FIRST_ACTION + n_actions, FIRST_ACTION + 2 * n_actions):
        return "the numbers of a cell are not those of the actions"
    counted = answer.cells[..., [ROWS, WEIGHT]]
    if (counted < 0).any() or (answer.lost < 0).any():
        return "a count is negative"
    totals = np.stack([counted[:, table].sum(axis=1) for table in grid.tables.values()])
    spread = np.ptp(totals, axis=0)  # (n_nodes, 2): all tables divide the same rows
    if (spread > CELL_TOLERANCE * (1 + totals.max(axis=0))).any():
        return "two columns divide different rows"
    rows, weight = totals[0].sum(axis=0)
    if rows > n_rows * (1 + CELL_TOLERANCE) or weight > 1 + CELL_TOLERANCE:
        return "counts more rows than there are"
    return None


def fault_in_leaf_values(answer: LeafValues, n_leaves: int) -> str | None:
    """Shares of rows in every leaf, and means that vary."""
    if any(
        len(part) != n_leaves
        for part in (answer.counts, answer.shares, answer.rows, answer.means, answer.variances)
    ):
        return "the leaves are not those of the tree"
    if (answer.shares < 0).any() or answer.shares.sum() > 1 + CELL_TOLERANCE:
        return "a share of rows is outside 0 to 1"
    numbers = (answer.counts, answer.rows, answer.degrees_of_freedom, answer.variances)
    if min(part.min() for part in numbers) < 0:
        return "a number of rows or a variance is negative"
    return None


def fault_in_models(answer: Models) -> str | None:
    """Some model at least, and rewards that vary about it."""
    if not np.isin(answer.supported, (0.0, 1.0)).all() or not answer.supported.any():
        return "supports no action, or a part of one"
    if (answer.variances < 0).any() or (answer.variances[:, answer.supported > 0] == 0).any():
        return "a variance is not above 0"
    return None


def fault_in_model_shifts(answer: ModelShifts, n_clients: int) -> str | None:
    """One number of each kind for every client; estimates may be negative, variances may not."""
    numbers = {name: value for name, value in vars(answer).items() if isinstance(value, np.ndarray)}
    if any(len(value) != n_clients for value in numbers.values()):
        return f"compared other models than those of {n_clients} clients"
    if not np.isin(answer.compared, (0.0, 1.0)).all():
        return "compared a part of a model"
    if any((value < 0).any() for name, value in numbers.items() if name.endswith("variance")):
        return "a variance is negative"
    return None


def fault_in_classifier_sums(answer: ClassifierSums, parameters: FloatArray) -> str | None:
    """Means over rows: sums that were scaled would buy weight, and those of one give them away."""
    fault = fault_in_classifier_shares(answer, len(parameters))
    if fault:
        return fault
    told = answer.told > 0
    chances, curvatures = answer.pulls[told, -1], answer.hessian[told, -1, -1]
    if (np.abs(chances - 0.5) > 0.5 + CORNER_TOLERANCE).any() or (answer.loss < 0).any():
        return "the mean chance of a classifier is outside 0 to 1"
    if (curvatures > chances * (1 - chances) + CORNER_TOLERANCE).any():
        return "the mean curvature of a classifier is above that of its mean chance"
    undecided = ~parameters[told].any(axis=1)
    if (np.abs(chances[undecided] - 0.5) > CORNER_TOLERANCE).any():
        return "the mean of one half is not one half"
    return _fault_in_squares(answer.hessian)


def fault_in_classifier_shares(answer: ClassifierSums, n_targets: int) -> str | None:
    """Shares of rows; rounded up, all rows of a small client are a little more than all."""
    numbers = [value for value in vars(answer).values() if isinstance(value, np.ndarray)]
    if any(len(value) != n_targets for value in numbers):
        return f"answers for other classifiers than {n_targets}"
    if not np.isin(answer.told, (0.0, 1.0)).all():
        return "tells a part of a classifier"
    shares, variances = answer.target_share, answer.target_share_variance
    if ((shares < 0) | (shares > MOST_BY_ROUNDING) | (variances < 0)).any():
        return "a share of rows is outside 0 to 1"
    return None


def fault_in_score_moments(answer: ScoreMoments) -> str | None:
    """Means of squares; the largest square of a row is at least each action's."""
    if not np.isin(answer.told, (0.0, 1.0)).all():
        return "tells a part of a mean"
    counted = (answer.rows, answer.degrees_of_freedom)
    if any((part < 0).any() or (part % 1).any() for part in counted):
        return "a number of rows is not a whole number"
    if (answer.means < 0).any() or (answer.variances < 0).any():
        return "a mean of squares or a variance is negative"
    over_all = (answer.told > 0) & (answer.rows == answer.rows[0])
    if answer.told[0] and (answer.means[over_all] > answer.means[0] * (1 + CELL_TOLERANCE)).any():
        return "an action's squares are larger than the largest"
    return None


def _fault_in_squares(matrices: FloatArray) -> str | None:
    most = SYMMETRY_TOLERANCE * largest_size(matrices)
    # They can be large together.
    apart = matrices.ndim > 2 and matrices.size > NUMBERS_AT_ONCE
    for part in matrices if apart else (matrices,):
        if (part - np.swapaxes(part, -1, -2)).max(initial=0.0) > most:
            return "a matrix of squares is not symmetric"
    if np.diagonal(matrices, axis1=-2, axis2=-1).min(initial=0.0) < 0:
        return "a square is negative"
    return None
