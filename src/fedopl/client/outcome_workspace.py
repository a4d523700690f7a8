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
from fedopl.client.scoring.rare_events import Events
from fedopl.client.scoring.stacking.study_outcomes import StudyOutcomes
from fedopl.client.scoring.study_scores import StudyScores, score_chunks
from fedopl.client.table.logged_data import LoggedData
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.policy import Policy


def column_events(data: LoggedData, outcome: str) -> Events:
    """The events of one of the further outcomes."""
    assert data.outcomes is not None  # noqa: S101  (callers have checked the names)
    place, outcomes = data.outcome_names.index(outcome), data.outcomes
    return Events.among(outcomes[rows][:, place] for rows in data.slices())


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
        events = column_events(given, outcome)
        if not events.size:
            raise RefusedError(RefusalCode.NOTHING_TO_SAY)
        # If an outcome is rare, few held-out rows, or none, have an event, and their spread says
        # too little. So an event counts, with the weight that its score has on average.
        self.event_spread = events.least_spread(study.n_actions)

    @computed_once
    def _scores(self) -> StudyScores:
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
    def scored(self) -> StudyScores:
        """The scores by this outcome; they are not stored, except in a file beside rows on disk."""
        return self._scores

    @property
    def local_policies_by_fold(self) -> Sequence[Policy]:
        """Those that were learned by the study's outcome."""
        return self._main.local_policies_by_fold
