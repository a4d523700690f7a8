"""What a policy is worth at a site without outcomes: the source's part, and the target's own."""

from dataclasses import replace

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.transporting.transported_rows import (
    WeighedRows,
    decided_by,
    may_be_released,
    modelled_scores,
    released,
    shares_in_regions,
    to_digits_that_count,
    with_policy,
)
from fedopl.client.answers.valuing.estimate_values import ScoreSpread
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.scoring.net_scores import net_rewards
from fedopl.client.target_workspace import TargetWorkspace
from fedopl.client.workspace import Workspace
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.target.transported_values import TransportedValues, ValueAtTarget
from fedopl.solvers.entropy_balance import balance

# Rows look like the target if no mean or mean square is further away, in standard deviations.
LARGEST_GAP = 0.1


def answer_as_source(space: Workspace, query: ValueAtTarget) -> TransportedValues:
    """Mean of Γ̂ − μ̂ over held-out rows, weighed so that they look like the target's."""
    query = to_digits_that_count(query)
    _once(space, query)
    held = _HeldOut(space)
    n_numbers = 2 * space.study.n_features + space.study.n_actions + 1
    if held.n_rows < max(space.limits.minimum_cell, 1):
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    space.limits.check_parameters(n_numbers, held.n_rows)
    shares = shares_in_regions(space, query, held.contexts)
    found = balance(held.contexts, query.means[:-1], query.squares[:-1], held.weights)
    decided = decided_by(space, query, held.contexts)
    residuals = held.scores - modelled_scores(space, query, held.contexts)
    rows = WeighedRows(
        values=with_policy(residuals, decided), weights=found.weights, groups=held.groups
    )
    fits = found.largest_gap <= LARGEST_GAP
    if not (fits and may_be_released(space, rows, n_numbers)):
        return replace(_nothing(space, held.n_rows), shares=shares)
    spread = ScoreSpread(space.least_spread)
    spread.see(held.scores, held.rewards)
    added = _excess(space, decided, found.weights)
    return replace(released(space, query, rows, spread, added), shares=shares)


def answer_as_target(space: TargetWorkspace, query: ValueAtTarget) -> TransportedValues:
    """Mean of μ̂ over the target's contexts, with rare values masked."""
    query = to_digits_that_count(query)
    _once(space, query)
    whole = space.study_rows.whole
    contexts, own = whole.data.contexts, whole.data.weights_of()
    n_numbers = 2 * space.study.n_features + space.study.n_actions + 1
    space.limits.check_parameters(n_numbers, len(contexts))
    by_action = modelled_scores(space, query, contexts)
    decided = decided_by(space, query, contexts)
    values = with_policy(by_action, decided)
    rows = WeighedRows(values=values, weights=own / own.sum(), groups=whole.data.groups)
    if not may_be_released(space, rows, n_numbers):
        raise RefusedError(RefusalCode.SMALL_CELLS)
    spread = ScoreSpread()
    spread.see(by_action, values[:, 0])
    shares = shares_in_regions(space, query, contexts)
    return replace(released(space, query, rows, spread), shares=shares)


def _once(space: Workspace, query: ValueAtTarget) -> None:
    """Answer this once: what two sets of weights differ in may be a few rows."""
    if space.limits.minimum_cell:
        space.history.require_first("transported", **dict(query.named_arrays()))


class _HeldOut:
    """The held-out rows of a source, which are in memory though the others may be on disk."""

    def __init__(self, space: Workspace) -> None:
        parts = []
        for chunk in space.chunks():
            rows = chunk.rows(RowSplit.EVALUATION)
            data, rewards = chunk.data, net_rewards(chunk.data, rows, space.study)
            weights = chunk.weights(rows)
            own = np.ones(len(rewards)) if weights is None else weights
            parts.append((data.contexts[rows], chunk.scores[rows], rewards, own))
        self._groups = [c.data.groups_of(c.rows(RowSplit.EVALUATION)) for c in space.chunks()]
        self.contexts, self.scores, self.rewards, self.weights = map(
            np.concatenate, zip(*parts, strict=True)
        )

    @property
    def groups(self) -> IntArray | None:  # (n_rows,)
        known = [own for own in self._groups if own is not None]
        return np.concatenate(known) if known else None

    @property
    def n_rows(self) -> int:
        return len(self.contexts)


def _excess(
    space: Workspace, decided: IntArray, weights: FloatArray
) -> FloatArray | float:  # (n_actions + 1, n_actions + 1)
    """What means vary by, and the rows at hand do not show."""
    if not space.scored.adds_variance:
        return 0.0
    arms = np.tile(np.arange(space.study.n_actions), (len(decided), 1))
    return space.scored.added_covariances(np.column_stack([decided, arms]), weights)


def _nothing(space: Workspace, n_rows: int) -> TransportedValues:
    """The answer of a source whose rows cannot be made to look like the target."""
    size = space.study.n_actions + 1
    return TransportedValues(
        released=0,
        n_rows=n_rows,
        effective_rows=0.0,
        known=np.zeros(size),
        means=np.zeros(size),
        covariances=np.zeros((size, size)),
        shares=np.empty(0),
    )
