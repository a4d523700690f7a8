"""Sums of scores: rows are scored with the models that came, or with the client's own."""

import numpy as np

from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.workspace import Workspace
from fedopl.messages.learning.score_sums import ScoreSums, SumScores
from fedopl.messages.refusal import RefusalCode


def answer(space: Workspace, query: SumScores) -> ScoreSums:
    """Score all rows, and sum up the training rows."""
    space.check_rows_for_sums()
    _check_models(space, query)
    models = np.where(query.supported[..., None] > 0, query.models, np.nan)
    space.new_scores = space.scored_with(models)
    return ScoreSums(**vars(space.score_means(space.new_scores)))


def _check_models(space: Workspace, query: SumScores) -> None:
    """As many models as the study has parts, with the same support in all of them.

    Support that differs from fold to fold would disclose the sums of single folds.
    """
    plan = space.study.nuisances
    expected = plan.folds + 1 if plan.kind == "federated" else 0
    if len(query.models) != expected or len(query.supported) != expected:
        raise RefusedError(RefusalCode.MALFORMED)
    if space.limits.minimum_cell and (query.supported != query.supported[:1]).any():
        raise RefusedError(RefusalCode.SMALL_CELLS)
