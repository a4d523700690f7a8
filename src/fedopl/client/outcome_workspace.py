"""The same rows valued by a further outcome: scores with the client's own models of it.

Propensities, folds, held-out rows and the local policy are those of the study.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedopl.base.computed_once import computed_once
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.rows.study_rows import StudyRows
from fedopl.client.scoring.outcome import StudyOutcomes
from fedopl.client.scoring.study_scores import StudyScores, score_chunks
from fedopl.client.table.logged_data import LoggedData
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.policy import Policy


def size_of_events(data: LoggedData, outcome: str) -> float:
    """How far rows with an unusual value of a further outcome are from the usual one.

    As a root mean square over these rows, such as deaths; 0 if there are none.
    """
    assert data.outcomes is not None  # noqa: S101  (callers have checked the names)
    place, usual, count, total = data.outcome_names.index(outcome), None, 0, 0.0
    for rows in data.slices():
        values = data.outcomes[rows][:, place]
        usual = float(np.median(values)) if usual is None else usual
        squares = (values - usual) ** 2
        count, total = count + int(np.count_nonzero(squares)), total + float(squares.sum())
    return float(np.sqrt(total / count)) if count else 0.0


class OutcomeWorkspace(Workspace):
    """The workspace for answers about a further outcome."""

    def __init__(self, space: Workspace, outcome: str) -> None:
        given, study = space.study_rows.given, space.study
        if outcome not in given.outcome_names:
            raise RefusedError(RefusalCode.NOTHING_TO_SAY)
        code = {"rules": space.rules, "regressor": space.regressor}
        super().__init__(given, study, space.limits, space.draws, **code)  # type: ignore[arg-type]
        self._main, self._outcome = space, outcome
        cell = space.limits.minimum_cell
        beside = space.study_rows
        self.study_rows = StudyRows(given, study, cell, space.draws, outcome=outcome, beside=beside)
        self.outcomes = StudyOutcomes(self.study_rows, study, space.regressor)
        self.propensities = space.propensities
        self.study = study.model_copy(update={"costs": None})  # costs belong to the first outcome
        size = size_of_events(given, outcome)
        if not size:
            raise RefusedError(RefusalCode.NOTHING_TO_SAY)
        # If an outcome is rare, few held-out rows, or none, have an event, and their spread says
        # too little. So an event counts, with the weight that its score has on average.
        self.event_spread = size * study.n_actions

    @computed_once
    def scored(self) -> StudyScores:
        """The scores by this outcome; they are not stored, except in a file beside rows on disk."""
        main, study = self._main.scored, self.study
        few = ~self.corrected
        masked = (few & (study.nuisances.unseen_rule == "mask")) | main.hidden
        key = np.frombuffer(hashlib.sha256(self._outcome.encode()).digest(), np.uint8)
        found = score_chunks(
            self._own_scorer(masked, few),
            self.study_rows,
            self._archive.path(key),
            study.evaluation.model_copy(update={"describe": False}),
            key,
        )
        return replace(found, local=main.local)

    @property
    def local_policies_by_fold(self) -> Sequence[Policy]:
        """Those that were learned by the study's outcome."""
        return self._main.local_policies_by_fold
