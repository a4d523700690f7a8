"""Which features interact in what both models leave unexplained: the strongest few, roughly.

Anyone who knows everybody's features and models could solve many statistics for outcomes. So an
action has at most `MOST_PRODUCTS_TOLD` lines, and fewer where its rows' `parameter_share` allows
fewer. A line is released only if both of its statistics rest on enough rows. Each statistic has
noise as large as the change that a few usual rows make, and is then rounded to a whole number.
"""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.scoring.interactions import INTERACTION_TESTS
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.interactions_left import (
    INTERACTION_NUMBERS,
    MOST_PRODUCTS_TOLD,
    NO_THIRD,
    InteractionsLeft,
    TellInteractions,
    feature_products,
)

_DIGITS = 2  # significant ones, of the amount by which a value is too high


def answer(space: Workspace, _query: TellInteractions) -> InteractionsLeft:
    """The strongest products of each action, among those that rest on enough rows."""
    tests = dict(zip(INTERACTION_TESTS, np.moveaxis(space.scored.interactions, -1, 0), strict=True))
    statistics = _with_noise(space, tests)
    n_columns = space.study.n_features + 1
    needed = max(space.limits.rows_needed(n_columns), 1)
    enough = np.minimum(tests["weights_rest_on"], tests["residuals_rest_on"]) >= needed
    strength = np.where(enough, (statistics**2).sum(axis=0), 0.0)
    told = np.zeros((space.study.n_actions, MOST_PRODUCTS_TOLD, len(INTERACTION_NUMBERS)))
    places = _places(space.study.n_features)
    for action, n_rows in enumerate(space.rows_per_action.tolist()):
        if not n_rows:
            continue
        most = min(space.limits.parameter_share * n_rows - n_columns, MOST_PRODUCTS_TOLD)
        order = np.argsort(-strength[action], kind="stable")[: max(int(most), 0)]
        kept = order[strength[action, order] > 0]
        own = statistics[:, action, kept]
        too_high = _rounded(own.prod(axis=0) * tests["unit"][action, kept])
        told[action, : len(kept)] = np.column_stack([places[kept], *own, too_high])
    return InteractionsLeft(strongest=told + 0.0)  # −0 would disclose a sign


def _with_noise(
    space: Workspace, tests: dict[str, FloatArray]
) -> FloatArray:  # (2, n_actions, n_products)
    """The statistics of weights and of residuals, as whole numbers."""
    found = np.stack([tests["weights"], tests["residuals"]])
    if space.limits.value_noise:
        # A usual row changes a statistic by one over the root of the number of rows behind it.
        rests_on = np.stack([tests["weights_rest_on"], tests["residuals_rest_on"]])
        scale = space.limits.value_noise / np.sqrt(np.maximum(rests_on, 1.0))
        noise = space.noise_for("fit", "interactions").standard_normal(found.shape)
        found = np.where(found == 0, 0.0, found + scale * noise)
    return np.round(found)


def _places(n_features: int) -> FloatArray:  # (n_products, 3)
    return np.array([(*p, NO_THIRD)[:3] for p in feature_products(n_features)], np.float64)


def _rounded(numbers: FloatArray) -> FloatArray:  # shaped as numbers
    """The numbers to `_DIGITS` significant digits."""
    return np.array([float(f"{number:.{_DIGITS - 1}e}") for number in numbers.tolist()])
