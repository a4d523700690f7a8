"""A client's personal policy in a study with differential privacy: solved and valued at home.

The shared policy was released with noise. It is moved toward the client's own rows, which need no
noise here. Nothing of the result leaves, not even its value. The value depends on every row that
the policy was solved from, and nobody could say how far one of them can move it.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.errors import DataError
from fedopl.base.estimates import Estimate
from fedopl.client.answers.valuing.estimate_values import estimate
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.home_workspace import HomeWorkspace
from fedopl.client.local.personal_policy import PersonalTask, client_sums
from fedopl.client.private.private_workspace import PrivateWorkspace
from fedopl.client.scoring.values import JointEstimate
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


@dataclass(frozen=True, eq=False, kw_only=True)
class AtHome:
    """A personal policy and its value on the client's own held-out rows, without noise."""

    policy: Policy
    values: ValueTable  # shared policy, personal policy, logging policy and local policy
    gains: PersonalTable  # of the personal policy over each of the others


def solve_at_home(space: PrivateWorkspace, shared: LinearPolicy) -> Policy:
    """The shared policy, moved toward own rows as far as they support it."""
    return _solved(_opened(space, shared), shared)


def value_at_home(space: PrivateWorkspace, shared: LinearPolicy) -> AtHome:
    """The same, with its value beside those of the shared policy and of the local policy."""
    home = _opened(space, shared)
    policy = _solved(home, shared)
    try:
        asked = [[one.at(home.client).decide] for one in (shared, policy)]
        found = estimate(home, RowSplit.EVALUATION, asked)
    except RefusedError as refused:
        raise _in_words(space, refused) from None
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


def _opened(space: PrivateWorkspace, shared: LinearPolicy) -> HomeWorkspace:
    try:
        return HomeWorkspace(space, shared.numbers())
    except RefusedError as refused:
        raise _in_words(space, refused) from None


def _in_words(space: PrivateWorkspace, refused: RefusedError) -> DataError:
    reason = in_words(refused.code.name)
    return DataError(f"{space.draws.client}: no personal policy: {reason.why}. {reason.remedy}")


def _solved(home: HomeWorkspace, shared: LinearPolicy) -> Policy:
    """Solve with strengths weighted by own rows alone: others' likelihoods are not sent."""
    scored = (home.chunks, home.own_chunks)
    own = tuple(client_sums(one, home.study_rows) for one in scored)
    task = PersonalTask(
        study=home.study,
        rows=home.study_rows,
        scored=scored,
        own=own,
        others=shared.numbers(),
        scaling=Scaling.at_client(own[0].gram, _used(home, shared)),
        likelihoods=NO_OTHERS,
    )
    return task.solve()


def _used(home: HomeWorkspace, shared: LinearPolicy) -> BoolArray:  # (n_terms + 1,)
    """The features, and those further terms that the shared policy uses."""
    used: BoolArray = np.asarray(shared.numbers().any(axis=0))
    used[: home.study.n_features] = used[-1] = True
    return used


def _estimate(found: JointEstimate, contrast: FloatArray, of_rows: int) -> Estimate:
    return Estimate(
        value=float(found.means @ contrast),
        standard_error=math.sqrt(max(float(contrast @ found.covariances @ contrast), 0.0)),
        n_rows=found.n_rows,
        of_rows=of_rows,
        degrees_of_freedom=found.degrees_of_freedom,
    )
