"""The same rows valued by a further outcome: scores with the client's own models of it.

Propensities, folds, held-out rows and the local policy are those of the study. Noise on answers is
drawn anew, because noise that two answers share could be subtracted.
"""

import hashlib
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
        self.study_rows = StudyRows(given, study, cell, space.draws, outcome=outcome)
        self.outcomes = StudyOutcomes(self.study_rows, study, self.rows_needed, space.regressor)
        self.propensities = space.propensities
        self.study = study.model_copy(update={"costs": None})  # costs belong to the first outcome
        events = column_events(given, outcome)
        if not events.size:
            raise RefusedError(RefusalCode.NOTHING_TO_SAY)
        if events.largest_share > space.limits.dominance:
            raise RefusedError(RefusalCode.DOMINATED)
        # If an outcome is rare, a usual row says next to nothing, and a row with an event says all.
        # So noise has to hide an event, with the weight that its score has on average.
        self.least_spread = self.event_spread = events.least_spread(study.n_actions)

    def noise_for(self, *asked: object) -> np.random.Generator:
        """A generator of its own: the same question about another outcome has other noise."""
        return super().noise_for("outcome", self._outcome, *asked)

    @computed_once
    def _scores(self) -> StudyScores:
        main, study = self._main.scored, self.study
        few = self.rows_per_action < max(self.limits.minimum_cell, 1)
        masked = (few & (study.nuisances.unseen_rule == "mask")) | main.hidden
        key = np.frombuffer(hashlib.sha256(self._outcome.encode()).digest(), np.uint8)
        found = score_chunks(
            self._own_scorer(masked, few),
            self.study_rows,
            self.rows_needed,
            self._archive.path(key),
            study.evaluation.model_copy(update={"describe": False}),
            key,
        )
        return replace(found, local=main.local)

    @property
    def scored(self) -> StudyScores:
        """The scores by this outcome; they are not stored, except in a file beside rows on disk."""
        return self._scores
