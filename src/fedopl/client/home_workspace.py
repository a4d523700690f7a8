"""A client's rows in a study with differential privacy, as the client may use them for itself.

Everything here is exact: scores, sums and values. So none of it may leave, and no answer is made
from it. The study's held-out rows are held out here, too: what was learned there has not seen them.
"""

from dataclasses import replace

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.computed_once import computed_once
from fedopl.client.disclosure.limits import Limits
from fedopl.client.private.private_workspace import PrivateWorkspace
from fedopl.client.rows.folds import FoldArray, as_agreed
from fedopl.client.rows.split_rule import Split, split_by_rule
from fedopl.client.rows.study_rows import StudyRows
from fedopl.client.scoring.outcome import GivenModels, Outcomes, federated_outcomes
from fedopl.client.scoring.stacking.study_outcomes import StudyOutcomes
from fedopl.client.table.logged_data import LoggedData
from fedopl.client.workspace import Workspace
from fedopl.study.study import Study


def study_at_home(study: Study) -> Study:
    """The study without noise; the shared models stand in for actions that no row here took."""
    nuisances = study.nuisances.model_copy(update={"kind": "federated", "unseen": "borrow"})
    return study.model_copy(update={"privacy": None, "nuisances": nuisances})


class HomeRows(StudyRows):
    """The rows; held-out rows are those that the private study holds out."""

    def __init__(self, given: LoggedData, study: Study, space: PrivateWorkspace) -> None:
        super().__init__(given, study, 0, space.draws)
        self._is_held_out: BoolArray = space.rows.is_held_out  # (n_rows,)

    @computed_once
    def split(self) -> Split:
        """As many folds as agreed, of the rows that are not held out."""
        n_folds = self._study.nuisances.folds
        found = split_by_rule(self.given, n_folds, 0.0, self._seed, 0)
        folds = [found.folds.of_row[rows] for rows in self.given.slices()]
        of_row: FoldArray = np.where(self._is_held_out, n_folds, np.concatenate(folds))
        any_held_out = bool(self._is_held_out.any())
        return replace(
            found, folds=as_agreed(of_row.astype(np.uint16), n_folds, any_held_out=any_held_out)
        )


class SharedModels(StudyOutcomes):
    """Outcome models as they were released; no other models are weighted in."""

    def by(self, given: GivenModels) -> Outcomes:
        """The same models for every action, in all folds."""
        return federated_outcomes(given.linear, self._rows)


class HomeWorkspace(Workspace):
    """Scores by the shared models and by the client's own models, for the client alone."""

    def __init__(self, space: PrivateWorkspace, shared: FloatArray) -> None:
        study, given = study_at_home(space.study), space.rows.given
        super().__init__(given, study, Limits.open(), space.draws)
        self.study_rows = HomeRows(given, study, space)
        self.outcomes = SharedModels(self.study_rows, study)
        models = GivenModels(np.stack([shared] * (study.nuisances.folds + 1)))
        self.keep(self.scored_with(models))
