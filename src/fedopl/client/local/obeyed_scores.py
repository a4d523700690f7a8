"""Scores of the actions that may be given: at this client, to each of its rows."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.client.disk.passes import mapped
from fedopl.client.rows.chunks import ScoredChunk, ScoredRows
from fedopl.policies.allowed.permissions import Permissions
from fedopl.study.study import Study


class ObeyedScores:
    """Applies a study's permissions to the scores of one client's rows; without any, no change."""

    def __init__(self, study: Study, client: str, minimum_cell: float = 0) -> None:
        self._study, self._minimum_cell = study, minimum_cell
        found: Permissions | None = study.permissions
        self._here = found.at(client, study.actions) if found else None
        self._counted: BoolArray | None = None  # (n_actions,)

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
        return scores if forbidden is None else _effective(scores, forbidden, forbidden)

    def to_sum(self, chunks: Callable[[], Iterable[ScoredChunk]]) -> Iterable[ScoredRows]:
        """Training rows with these scores, to learn a tree from and to release sums of.

        Sums of the unchanged scores are released, too. So the two together disclose the rows that a
        rule is about. If these rows, or all others, are only a few, sums are as if the action could
        be given there. Decisions and values still obey the rule.
        """
        if self._here is None:
            return mapped(ScoredChunk.scored_rows, chunks())
        if self._counted is None:
            self._counted = self._enough(chunks())
        return mapped(self._summed, chunks())

    def _summed(self, chunk: ScoredChunk) -> ScoredRows:
        rows = chunk.scored_rows()
        forbidden = self.forbidden(rows.contexts)
        assert forbidden is not None  # noqa: S101
        assert self._counted is not None  # noqa: S101
        return replace(rows, scores=_effective(rows.scores, forbidden, forbidden & self._counted))

    def _enough(self, chunks: Iterable[ScoredChunk]) -> BoolArray:  # (n_actions,)
        """Which actions are forbidden in all rows, or in enough rows but not in nearly all."""
        n_rows, counts = 0, np.zeros(self._study.n_actions, np.int64)
        for chunk in chunks:
            forbidden = self.forbidden(chunk.data.contexts[chunk.training])
            assert forbidden is not None  # noqa: S101
            n_rows += len(forbidden)
            counts += forbidden.sum(axis=0)
        others = n_rows - counts
        is_enough: BoolArray = (others == 0) | (
            (counts >= self._minimum_cell) & (others >= self._minimum_cell)
        )
        return is_enough


def _effective(
    scores: FloatArray, forbidden: BoolArray, replaced: BoolArray
) -> FloatArray:  # (n_rows, n_actions)
    """Scores; where one is replaced, the score of the first action that is not forbidden."""
    instead = np.argmin(forbidden, axis=1)
    return np.where(replaced, scores[np.arange(len(scores)), instead][:, None], scores)
