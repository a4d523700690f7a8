"""Answers to screening: which features interact, and where outcomes jump."""

from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.limits import Limits, RefusedError
from fedopl.client.screening.jump_places import JumpPlaces
from fedopl.client.screening.jump_statistics import SmoothResiduals
from fedopl.client.screening.product_statistics import product_tests
from fedopl.client.workspace import Workspace
from fedopl.messages.learning.found_terms import FoundTaken, TakeFound
from fedopl.messages.learning.jump_screening import (
    JUMP_NUMBERS,
    MOST_JUMPS_TOLD,
    JumpStatistics,
    ScreenJumps,
)
from fedopl.messages.learning.product_screening import ProductStatistics, ScreenProducts
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.terms import Terms
from fedopl.study.screened_study import FoundTerms

# The most rows that are screened, over all actions. More rows would show hardly more.
MOST_ROWS_SCREENED = 100_000
# Weaker jumps are not worth a closer look: by chance, one in twenty is as strong.
LEAST_STATISTIC = 2.0


def screen_products(space: Workspace, _query: ScreenProducts) -> ProductStatistics:
    """Which products of two features predict outcomes, by the actions with enough rows for that."""
    study, terms = space.study, space.study.terms
    each = [(without, _rows_per_action(space, without)) for without in study.left_out]
    enough = np.array([rows > study.n_features + 1 for _, rows in each])
    if terms is None or not enough.any():
        raise RefusedError(RefusalCode.TOO_MANY_PARAMETERS)
    tests = [
        product_tests(
            space.unscored_chunks,
            terms.scaled,
            study.n_actions,
            study.n_features,
            every=-(-space.n_training // MOST_ROWS_SCREENED),
            without=without,
        ).statistics
        for without, _ in each
    ]
    return ProductStatistics(statistics=np.where(enough[..., None], np.array(tests), 0.0))


def _rows_per_action(space: Workspace, without: int | None) -> IntArray:  # (n_actions,)
    """Training rows that took each action, perhaps without those of a fold."""
    rows = space.rows_per_action
    return rows if without is None else rows - space.rows_by_fold_action[without]


def take_found(space: Workspace, query: TakeFound) -> FoundTaken:
    """Confirm the terms that the door's study continued with; the answer is their number."""
    found = query.named(space.study)
    if found is None or found != FoundTerms.of(space.study):
        raise RefusedError(RefusalCode.MALFORMED)
    return FoundTaken(n_found=found.n_found)


# --- jumps ----------------------------------------------------------------------------------------


def screen_jumps(space: Workspace, _query: ScreenJumps) -> JumpStatistics:
    """Where outcomes jump beyond smooth terms, by the actions with enough rows for these."""
    study, terms = space.study, space.study.terms
    told = np.zeros((len(study.left_out), study.n_actions, MOST_JUMPS_TOLD, len(JUMP_NUMBERS)))
    for own, without in zip(told, study.left_out, strict=True):
        for action, n_rows in enumerate(_rows_per_action(space, without).tolist()):
            n_smooth = None if terms is None else _most_smooth(terms, n_rows)
            if terms is None or n_smooth is None:
                continue  # too few rows of this action; others may have enough
            lines = _jumps(_rows_of(space, action, without), terms, n_smooth, space.limits)
            order = np.lexsort((*lines.T[:-1], -np.abs(lines[:, -1])))
            own[action, : len(lines)] = lines[order]
    return JumpStatistics(strongest=told)


def _most_smooth(terms: Terms, n_rows: int) -> int | None:
    """How many smooth terms this many rows can be regressed on; None if too few for any."""
    sizes = [terms.sizes[family] for family in ("splines", "hinges") if family in terms.sizes]
    return next((n for n in sizes if n_rows >= 2 * (n + 1)), None)


class _Rows(NamedTuple):
    """Training rows of one action, perhaps without a fold: all of them, or one in several."""

    contexts: FloatArray
    rewards: FloatArray
    weights: FloatArray


def _rows_of(space: Workspace, action: int, without: int | None) -> _Rows:
    every, parts = -(-space.n_training // MOST_ROWS_SCREENED), []
    for chunk in space.unscored_chunks():
        own = chunk.training_rows(action, without)[::every]
        weights = chunk.weights(chunk.training)
        parts.append(
            _Rows(
                chunk.data.contexts[own],
                chunk.data.rewards[own],
                np.ones(len(own)) if weights is None else weights[own],
            )
        )
    return _Rows(*(np.concatenate(one) for one in zip(*parts, strict=True)))


def _jumps(
    rows: _Rows, terms: Terms, n_smooth: int, limits: Limits
) -> FloatArray:  # (n_told, len(JUMP_NUMBERS))
    """The strongest jumps, each where it is largest; enough rows are on every side."""
    residuals = SmoothResiduals.of(terms.of(rows.contexts, n_smooth), rows.rewards, rows.weights)
    places = JumpPlaces(residuals, rows.contexts, terms, limits.minimum_cell)
    lines = list(places.lines(LEAST_STATISTIC))
    order = np.argsort([-abs(line[-1]) for line in lines], kind="stable")[:MOST_JUMPS_TOLD]
    found = np.array([places.closer(lines[at]) for at in np.sort(order)])
    return found.reshape(-1, len(JUMP_NUMBERS))
