"""What a policy is worth at a site without outcomes: the source's part and the target's part."""

from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.transporting.balance_contexts import weigh_jointly
from fedopl.client.answers.transporting.held_out_rows import HeldOutRows, numbers_behind, rows_for
from fedopl.client.answers.transporting.transported_rows import (
    WeighedRows,
    decided_by,
    is_enough,
    modelled_scores,
    released,
    shares_in_regions,
    to_digits_that_count,
    with_policy,
)
from fedopl.client.answers.valuing.estimate_values import ScoreSpread
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.target_workspace import TargetWorkspace
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.target.joint_values import JointValues, ValueJointly
from fedopl.messages.target.transported_values import TransportedValues, ValueAtTarget
from fedopl.solvers.entropy_balance import LARGEST_GAP, balance

# A row with more of all sources' weight than this leaves nothing to compare it with.
_MOST_OF_WEIGHT = 0.5


def answer_as_source(space: Workspace, query: ValueAtTarget) -> TransportedValues:
    """Mean of Γ̂ − μ̂ over held-out rows, weighted to look like the target's rows."""
    query = to_digits_that_count(query)
    _once(space, "transported", query)
    held = rows_for(space, numbers_behind(space))
    found = balance(held.contexts, query.means[:-1], query.squares[:-1], held.weights)
    fits = found.largest_gap <= LARGEST_GAP
    rows, decided = _corrections(space, query, held, found.weights, share=1.0)
    fits = fits and is_enough(space, rows.by_unit, numbers_behind(space))
    fields = _of_source(space, query, held, rows, decided) if fits else _nothing(space, held)
    del fields["crossed"]
    return TransportedValues(**fields, shares=shares_in_regions(space, query, held.contexts))


def answer_jointly(space: Workspace, query: ValueJointly) -> JointValues:
    """The same under weights by which only all sources together look like the target's."""
    query = to_digits_that_count(query)
    _once(space, "transported jointly", query)
    held = rows_for(space, numbers_behind(space))
    _, weights, _ = weigh_jointly(held, query)
    rows, decided = _corrections(space, query, held, weights, query.share)
    units = rows.by_unit
    fits = is_enough(space, units, numbers_behind(space), jointly=True)
    fits = fits and query.share * float(units.max()) <= _MOST_OF_WEIGHT
    fields = _of_source(space, query, held, rows, decided) if fits else _nothing(space, held)
    return JointValues(**fields, shares=shares_in_regions(space, query, held.contexts))


def answer_as_target(space: TargetWorkspace, query: ValueAtTarget) -> TransportedValues:
    """Mean of μ̂ over the target's contexts, with rare values masked."""
    query = to_digits_that_count(query)
    _once(space, "transported", query)
    fields = _of_target(space, query)
    del fields["crossed"]
    return TransportedValues(**fields)


def answer_jointly_as_target(space: TargetWorkspace, query: ValueJointly) -> JointValues:
    """The same, where sources find their weights together."""
    query = to_digits_that_count(query)
    _once(space, "transported jointly", query)
    return JointValues(**_of_target(space, query))


def _once(space: Workspace, kind: str, query: ValueAtTarget | ValueJointly) -> None:
    """Answer this once: what two sets of weights differ in may be a few rows."""
    if space.limits.minimum_cell:
        space.history.require_first(kind, **dict(query.named_arrays()))


# --- a source's part ----------------------------------------------------------------------------


def _corrections(
    space: Workspace,
    query: ValueAtTarget | ValueJointly,
    held: HeldOutRows,
    weights: FloatArray,
    share: float,
) -> tuple[WeighedRows, IntArray]:
    """What scores have beyond models, of the policy and of every action; and what is decided."""
    decided = decided_by(space, query, held.contexts)
    residuals = held.scores - modelled_scores(space, query, held.contexts)
    values = with_policy(residuals, decided)
    rows = WeighedRows(values=values, weights=weights, groups=held.groups, share=share)
    return rows, decided


def _of_source(
    space: Workspace,
    query: ValueAtTarget | ValueJointly,
    held: HeldOutRows,
    rows: WeighedRows,
    decided: IntArray,
) -> dict[str, Any]:
    """What is released of them, by field."""
    spread = ScoreSpread(space.least_spread)
    spread.see(held.scores, held.rewards)
    return released(space, query, rows, spread, _excess(space, decided, rows.weights))


def _excess(
    space: Workspace, decided: IntArray, weights: FloatArray
) -> FloatArray | float:  # (n_actions + 1, n_actions + 1)
    """What means vary by, and the rows at hand do not show."""
    if not space.scored.adds_variance:
        return 0.0
    arms = np.tile(np.arange(space.study.n_actions), (len(decided), 1))
    return space.scored.added_covariances(np.column_stack([decided, arms]), weights)


def _nothing(space: Workspace, held: HeldOutRows) -> dict[str, Any]:
    """The answer of a source whose rows cannot be made to look like the target, by field."""
    size = space.study.n_actions + 1
    return {
        "released": 0,
        "n_rows": held.n_rows,
        "effective_rows": 0.0,
        "known": np.zeros(size),
        "means": np.zeros(size),
        "covariances": np.zeros((size, size)),
        "crossed": np.zeros(size),
    }


# --- the target's part --------------------------------------------------------------------------


def _of_target(space: TargetWorkspace, query: ValueAtTarget | ValueJointly) -> dict[str, Any]:
    """Means of μ̂ and shares of rows in regions, by field."""
    whole = space.study_rows.whole
    contexts, own = whole.data.contexts, whole.data.weights_of()
    n_numbers = numbers_behind(space)
    space.limits.check_parameters(n_numbers, len(contexts))
    by_action = modelled_scores(space, query, contexts)
    values = with_policy(by_action, decided_by(space, query, contexts))
    rows = WeighedRows(values=values, weights=own / own.sum(), groups=whole.data.groups)
    if not is_enough(space, rows.by_unit, n_numbers):
        raise RefusedError(RefusalCode.SMALL_CELLS)
    spread = ScoreSpread()
    spread.see(by_action, values[:, 0])
    shares = shares_in_regions(space, query, contexts)
    return {**released(space, query, rows, spread), "shares": shares}
