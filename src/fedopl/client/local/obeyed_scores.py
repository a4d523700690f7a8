"""Scores of the actions that may be given: at this client, to each of its rows."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.client.disk.passes import mapped
from fedopl.client.rows.chunks import ScoredChunk, ScoredRows
from fedopl.policies.allowed.permissions import Permissions
from fedopl.study.study import Study


class ObeyedScores:
    """Applies a study's permissions to the scores of one client's rows; without any, no change."""

    def __init__(self, study: Study, client: str) -> None:
        self._study = study
        found: Permissions | None = study.permissions
        self._here = found.at(client, study.actions) if found else None

    def forbidden(self, contexts: FloatArray) -> BoolArray | None:  # (n_rows, n_actions)
        """The actions that rows may not get; None if everybody may get everything."""
        if self._here is None:
            return None
        return self._here.forbidden(contexts, self._study.columns, self._study.actions)

    def allowed(self, contexts: FloatArray, scores: FloatArray) -> FloatArray:  # as scores
        """The scores of actions that may be given; NaN for all others."""
        forbidden = self.forbidden(contexts)
        return scores if forbidden is None else np.where(forbidden, np.nan, scores)

    def allowed_in(self, chunks: Iterable[ScoredChunk]) -> Iterator[ScoredChunk]:
        """The chunks with the scores of actions that may be given; NaN for all others."""
        for chunk in chunks:
            scores = self.allowed(chunk.data.contexts, chunk.scores)
            yield chunk if scores is chunk.scores else chunk.with_scores(scores)

    def effective(self, contexts: FloatArray, scores: FloatArray) -> FloatArray:  # as scores
        """What deciding on each action is worth; for a forbidden one, what is given instead."""
        forbidden = self.forbidden(contexts)
        if forbidden is None:
            return scores
        instead = np.argmin(forbidden, axis=1)  # the first action that is not forbidden
        return np.where(forbidden, scores[np.arange(len(scores)), instead][:, None], scores)

    def to_sum(
        self, chunks: Callable[[], Iterable[ScoredChunk]], without: int | None = None
    ) -> Iterable[ScoredRows]:
        """Training rows with these scores, to learn a tree from and to release sums of.

        Those of a fold are left out if it is given.
        """
        return mapped(partial(self._summed, without), chunks())

    def _summed(self, without: int | None, chunk: ScoredChunk) -> ScoredRows:
        rows = chunk.scored_rows(without)
        return replace(rows, scores=self.effective(rows.contexts, rows.scores))
