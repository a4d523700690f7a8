"""A client's personal policy in a study with differential privacy: solved and valued at home.

The shared policy was released with noise. It is moved toward the client's own rows, which need no
noise here. Nothing of the result leaves, not even its value. The value depends on every row that
the policy was solved from, and nobody could say how far one of them can move it. The study's
held-out rows are held out here, too: what was learned there has not seen them.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.computed_once import computed_once
from fedopl.base.errors import DataError
from fedopl.base.estimates import Estimate
from fedopl.client.answers.valuing.estimate_values import estimate
from fedopl.client.disclosure.limits import Limits, RefusedError
from fedopl.client.local.personal_policy import PersonalTask, client_sums
from fedopl.client.private.private_workspace import PrivateWorkspace
from fedopl.client.rows.folds import FoldArray, as_agreed
from fedopl.client.rows.split_rule import Split, split_by_rule
from fedopl.client.rows.study_rows import StudyRows
from fedopl.client.scoring.outcome import GivenModels, Outcomes, StudyOutcomes, federated_outcomes
from fedopl.client.scoring.values import JointEstimate
from fedopl.client.table.logged_data import LoggedData
from fedopl.client.workspace import Workspace
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import in_words
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.results.value_tables import (
    LEARNED,
    LOCAL,
    LOGGING,
    PERSONAL,
    PersonalTable,
    Row,
    ValueTable,
)
from fedopl.solvers.personal_ridge import NO_OTHERS, Scaling
from fedopl.study.study import Study


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
        given, agreed = space.rows.given, space.study
        # Without noise; the shared models stand in for actions that no row here took.
        nuisances = agreed.nuisances.model_copy(update={"kind": "federated", "unseen": "borrow"})
        study = agreed.model_copy(update={"privacy": None, "nuisances": nuisances})
        super().__init__(given, study, Limits.open(), space.draws)
        self.study_rows = HomeRows(given, study, space)
        self.outcomes = SharedModels(self.study_rows, study)
        models = GivenModels(np.stack([shared] * (study.nuisances.folds + 1)))
        self.keep(self.scored_with(models))


@dataclass(frozen=True, eq=False, kw_only=True)
class AtHome:
    """A personal policy and its value on the client's own held-out rows, without noise."""

    policy: Policy
    values: ValueTable  # shared policy, personal policy, logging policy and local policy
    gains: PersonalTable  # of the personal policy over each of the others


def solve_at_home(space: PrivateWorkspace, shared: LinearPolicy) -> Policy:
    """The shared policy, moved toward own rows as far as they support it."""
    with _refused_in_words(space):
        home = HomeWorkspace(space, shared.numbers())
    return _solved(home, shared)


def value_at_home(space: PrivateWorkspace, shared: LinearPolicy) -> AtHome:
    """The same, with its value beside those of the shared policy and of the local policy."""
    with _refused_in_words(space):
        home = HomeWorkspace(space, shared.numbers())
    policy = _solved(home, shared)
    with _refused_in_words(space):
        asked = [[one.at(home.client).decide] for one in (shared, policy)]
        found = estimate(home, RowSplit.EVALUATION, asked)
    n_held_out, sign = home.n_rows(RowSplit.EVALUATION), home.study.reward_sign
    units = dict(zip((LEARNED, PERSONAL, LOGGING, LOCAL), np.eye(4), strict=True))
    client, own = home.client, units[PERSONAL]
    values = (
        Row(policy=name, client=client, estimate=_estimate(found, sign * unit, n_held_out))
        for name, unit in units.items()
    )
    gains = (
        Row(
            policy=PERSONAL,
            against=name,
            client=client,
            estimate=_estimate(found, own - unit, n_held_out),
        )
        for name, unit in units.items()
        if name != PERSONAL
    )
    return AtHome(policy=policy, values=ValueTable(values), gains=PersonalTable(gains))


@contextmanager
def _refused_in_words(space: PrivateWorkspace) -> Iterator[None]:
    try:
        yield
    except RefusedError as refused:
        reason = in_words(refused.code.name)
        raise DataError(
            f"{space.draws.client}: no personal policy: {reason.why}. {reason.remedy}"
        ) from None


def _solved(home: HomeWorkspace, shared: LinearPolicy) -> Policy:
    """Solve with strengths weighted by own rows alone: others' likelihoods are not sent."""
    scored = (home.chunks, home.own_chunks)
    own = tuple(client_sums(one, home.study_rows) for one in scored)
    # The features, and those further terms that the shared policy uses.
    used: BoolArray = np.asarray(shared.numbers().any(axis=0))  # (n_terms + 1,)
    used[: home.study.n_features] = used[-1] = True
    task = PersonalTask(
        study=home.study,
        rows=home.study_rows,
        scored=scored,
        own=own,
        others=shared.numbers(),
        scaling=Scaling.at_client(own[0].gram, used),
        likelihoods=NO_OTHERS,
    )
    return task.solve()


def _estimate(found: JointEstimate, contrast: FloatArray, of_rows: int) -> Estimate:
    return Estimate(
        value=float(found.means @ contrast),
        standard_error=math.sqrt(max(float(contrast @ found.covariances @ contrast), 0.0)),
        n_rows=found.n_rows,
        of_rows=of_rows,
        degrees_of_freedom=found.degrees_of_freedom,
    )
