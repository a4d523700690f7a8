"""How well models fit, and what they leave of interactions."""

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
from fedopl.messages.evaluation.model_fit import FIT_NUMBERS, ModelFit, TellFit


def tell_fit(space: Workspace, _query: TellFit) -> ModelFit:
    """The fit of each action with enough rows behind it."""
    fit, imbalance = space.scored.fit, space.scored.imbalance
    rows = fit[:, FIT_NUMBERS.index("effective_rows")]
    told = rows >= max(space.limits.minimum_cell, 1)  # False for NaN

    def of_told(numbers: FloatArray) -> FloatArray:
        return np.where(told[:, None], numbers, 0.0)

    features, squares = map(of_told, imbalance)
    return ModelFit(numbers=of_told(fit), imbalance=features, imbalance_of_squares=squares)


def tell_interactions(space: Workspace, _query: TellInteractions) -> InteractionsLeft:
    """The strongest products of each action."""
    tests = dict(zip(INTERACTION_TESTS, np.moveaxis(space.scored.interactions, -1, 0), strict=True))
    statistics = np.stack([tests["weights"], tests["residuals"]])
    strength = (statistics**2).sum(axis=0)
    told = np.zeros((space.study.n_actions, MOST_PRODUCTS_TOLD, len(INTERACTION_NUMBERS)))
    places = _places(space.study.n_features)
    for action in np.flatnonzero(space.rows_per_action):
        order = np.argsort(-strength[action], kind="stable")[:MOST_PRODUCTS_TOLD]
        kept = order[strength[action, order] > 0]
        own = statistics[:, action, kept]
        too_high = own.prod(axis=0) * tests["unit"][action, kept]
        told[action, : len(kept)] = np.column_stack([places[kept], *own, too_high])
    return InteractionsLeft(strongest=told)


def _places(n_features: int) -> FloatArray:  # (n_products, 3)
    return np.array([(*p, NO_THIRD)[:3] for p in feature_products(n_features)], np.float64)
