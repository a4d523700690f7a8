"""Answers to screening: which features interact, and where outcomes jump."""

import math
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.disclosure.limits import Limits, RefusedError
from fedopl.client.disclosure.pair_statistics import releasable_statistics, strongest
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
    """Which products of two features predict outcomes; no more numbers than rows can hide."""
    limits, terms = space.limits, space.study.terms
    n_columns = space.study.n_features + 1
    enough = space.rows_per_action >= max(limits.rows_needed(n_columns), n_columns + 1)
    if terms is None or not enough.any():
        raise RefusedError(RefusalCode.TOO_MANY_PARAMETERS)
    tests = product_tests(
        space.unscored_chunks,
        terms.scaled,
        space.study.n_actions,
        space.study.n_features,
        every=-(-space.n_training // MOST_ROWS_SCREENED),
    )
    told = releasable_statistics(tests.statistics, tests.rests_on, limits.minimum_cell)
    for action, n_rows in enumerate(tests.n_rows.tolist()):
        most = limits.parameter_share * n_rows - n_columns if enough[action] else 0
        told[action] = strongest(told[action], most)
    return ProductStatistics(statistics=told)


def take_found(space: Workspace, query: TakeFound) -> FoundTaken:
    """Confirm the terms that the door's study continued with; the answer is their number."""
    found = query.named(space.study)
    if found is None or found != FoundTerms.of(space.study):
        raise RefusedError(RefusalCode.MALFORMED)
    return FoundTaken(n_found=found.n_found)


# --- jumps ----------------------------------------------------------------------------------------


def screen_jumps(space: Workspace, _query: ScreenJumps) -> JumpStatistics:
    """Where outcomes jump beyond smooth terms; no more numbers than rows can hide."""
    limits, terms = space.limits, space.study.terms
    told = np.zeros((space.study.n_actions, MOST_JUMPS_TOLD, len(JUMP_NUMBERS)))
    for action, n_rows in enumerate(space.rows_per_action.tolist()):
        n_smooth = None if terms is None else _most_smooth(space, terms, n_rows)
        if terms is None or n_smooth is None:
            continue  # too few rows of this action; others may have enough
        most = min(limits.parameter_share * n_rows - n_smooth - 1, MOST_JUMPS_TOLD)
        lines = _jumps(_rows_of(space, action), terms, n_smooth, limits, most)
        order = np.lexsort((*lines.T[:-1], -np.abs(lines[:, -1])))
        told[action, : len(lines)] = lines[order]
    return JumpStatistics(strongest=told)


def _most_smooth(space: Workspace, terms: Terms, n_rows: int) -> int | None:
    """How many smooth terms this many rows can be regressed on; None if too few for any."""
    sizes = [terms.sizes[family] for family in ("splines", "hinges") if family in terms.sizes]
    enough = (n for n in sizes if n_rows >= max(space.limits.rows_needed(n + 1), 2 * (n + 1)))
    return next(enough, None)


class _Rows(NamedTuple):
    """Training rows of one action: all of them, or one in several."""

    contexts: FloatArray
    rewards: FloatArray
    weights: FloatArray


def _rows_of(space: Workspace, action: int) -> _Rows:
    every, parts = -(-space.n_training // MOST_ROWS_SCREENED), []
    for chunk in space.unscored_chunks():
        training = chunk.training
        own = np.flatnonzero(chunk.data.actions[training] == action)[::every]
        weights = chunk.weights(training)
        parts.append(
            _Rows(
                chunk.data.contexts[own],
                chunk.data.rewards[own],
                np.ones(len(own)) if weights is None else weights[own],
            )
        )
    return _Rows(*(np.concatenate(one) for one in zip(*parts, strict=True)))


def _jumps(
    rows: _Rows, terms: Terms, n_smooth: int, limits: Limits, most: float
) -> FloatArray:  # (n_told, len(JUMP_NUMBERS))
    """The strongest jumps, each where it is largest, with statistics that may be released."""
    residuals = SmoothResiduals.of(terms.of(rows.contexts, n_smooth), rows.rewards, rows.weights)
    places = JumpPlaces(residuals, rows.contexts, terms, limits.minimum_cell)
    lines = list(places.lines(max(math.sqrt(limits.minimum_cell), LEAST_STATISTIC)))
    kept = strongest(_released(np.array([line[-1] for line in lines]), limits), most)
    found = np.array([places.closer(lines[at]) for at in np.flatnonzero(kept)])
    found = found.reshape(-1, len(JUMP_NUMBERS))
    found[:, -2:] = _released(found[:, -2:], limits)
    return found


def _released(statistics: FloatArray, limits: Limits) -> FloatArray:
    rests_on = np.full(statistics.shape, np.inf)  # there are enough rows on every side
    return releasable_statistics(statistics, rests_on, limits.minimum_cell)
