"""Answers to screening: which features interact, and where outcomes jump."""

from collections.abc import Sequence

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.rows.chunks import Chunk
from fedopl.client.screening.jump_places import JumpPlaces, Line
from fedopl.client.screening.jump_statistics import SmoothResiduals
from fedopl.client.screening.product_statistics import product_tests
from fedopl.client.workspace import Workspace
from fedopl.messages.learning.term_screening import (
    JUMP_NUMBERS,
    MOST_JUMPS_TOLD,
    FoundTaken,
    JumpStatistics,
    ProductStatistics,
    ScreenJumps,
    ScreenProducts,
    TakeFound,
)
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
    if terms is None:
        return JumpStatistics(strongest=told)
    n_rows = np.array([_rows_per_action(space, without) for without in study.left_out])
    for action in range(study.n_actions):
        smooth = [_most_smooth(terms, own) for own in n_rows[:, action].tolist()]
        for n_smooth in _smooth_sizes(terms):
            versions = [version for version, own in enumerate(smooth) if own == n_smooth]
            if not versions:
                continue  # perhaps too few rows of this action; others may have enough
            asked = [study.left_out[version] for version in versions]
            found = _jumps(space, action, terms, n_smooth, asked)
            for version, lines in zip(versions, found, strict=True):
                order = np.lexsort((*lines.T[:-1], -np.abs(lines[:, -1])))
                told[version, action, : len(lines)] = lines[order]
    return JumpStatistics(strongest=told)


def _most_smooth(terms: Terms, n_rows: int) -> int | None:
    """How many smooth terms this many rows can be regressed on; None if too few for any."""
    return next((n for n in _smooth_sizes(terms) if n_rows >= 2 * (n + 1)), None)


def _smooth_sizes(terms: Terms) -> list[int]:
    return [terms.sizes[family] for family in ("splines", "hinges") if family in terms.sizes]


def _jumps(
    space: Workspace, action: int, terms: Terms, n_smooth: int, without: Sequence[int | None]
) -> list[FloatArray]:  # of each version, (n_told, len(JUMP_NUMBERS))
    """The strongest jumps, each where it is largest; enough rows are on every side.

    Of many rows, one in several is screened, and versions go without a fold of these.
    """
    every = -(-space.n_training // MOST_ROWS_SCREENED)
    parts = [_rows_of(chunk, action, every) for chunk in space.unscored_chunks()]
    contexts, rewards, weights, folds = (np.concatenate(own) for own in zip(*parts, strict=True))
    has_fold = np.ones((len(without), space.study.nuisances.folds))
    for own, fold in zip(has_fold, without, strict=True):
        if fold is not None:
            own[fold] = 0
    smooth = terms.of(contexts, n_smooth)
    residuals = SmoothResiduals.of(smooth, rewards, weights, folds, has_fold)
    places = JumpPlaces(residuals, contexts, terms, space.limits.minimum_cell)
    lines = [_strongest(own) for own in places.lines(LEAST_STATISTIC)]
    return [np.array(own).reshape(-1, len(JUMP_NUMBERS)) for own in places.closer(lines)]


def _rows_of(chunk: Chunk, action: int, every: int) -> tuple[FloatArray, ...]:
    """Contexts, rewards, weights and folds of training rows of one action, or one in several."""
    own = chunk.training_rows(action)[::every]
    weights = chunk.weights(chunk.training)
    return (
        chunk.data.contexts[own],
        chunk.data.rewards[own],
        np.ones(len(own)) if weights is None else weights[own],
        chunk.folds.of_row[own].astype(np.int64),
    )


def _strongest(lines: list[Line]) -> list[Line]:
    """As many lines as are told, in their order."""
    order = np.argsort([-abs(line[-1]) for line in lines], kind="stable")[:MOST_JUMPS_TOLD]
    return [lines[at] for at in np.sort(order)]
