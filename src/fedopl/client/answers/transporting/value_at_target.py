"""What a policy is worth at a site without outcomes: the source's part and the target's part."""

from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.transporting.balance_contexts import weigh_jointly
from fedopl.client.answers.transporting.source_rows import SourceRows, rows_for
from fedopl.client.answers.transporting.transported_rows import (
    WeighedRows,
    as_means,
    decided_by,
    is_enough,
    modelled_scores,
    share_apart,
    shares_in_regions,
    with_policy,
)
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.workspace import TargetWorkspace, Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.target.joint_values import JointValues, ValueJointly
from fedopl.messages.target.transported_values import TransportedValues, ValueAtTarget
from fedopl.solvers.entropy_balance import LARGEST_GAP, balance

# A row with more of all sources' weight than this leaves nothing to compare it with.
_MOST_OF_WEIGHT = 0.5


def answer_as_source(space: Workspace, query: ValueAtTarget) -> TransportedValues:
    """Mean of Γ̂ − μ̂ over rows, weighted to look like the target's rows."""
    source = rows_for(space)
    found = balance(source.contexts, query.means[:-1], query.squares[:-1], source.weights)
    fits = found.largest_gap <= LARGEST_GAP
    rows, fields = _corrections(space, query, source, found.weights, share=1.0)
    fits = fits and is_enough(space, rows.by_unit)
    fields = fields if fits else _nothing(space, source)
    del fields["crossed"]
    return TransportedValues(**fields, shares=shares_in_regions(space, query, source.contexts))


def answer_jointly(space: Workspace, query: ValueJointly) -> JointValues:
    """The same under weights by which only all sources together look like the target's."""
    source = rows_for(space)
    _, weights, _ = weigh_jointly(source, query)
    rows, fields = _corrections(space, query, source, weights, query.share)
    units = rows.by_unit
    fits = is_enough(space, units, jointly=True)
    fits = fits and query.share * float(units.max()) <= _MOST_OF_WEIGHT
    fields = fields if fits else _nothing(space, source)
    return JointValues(**fields, shares=shares_in_regions(space, query, source.contexts))


def answer_as_target(space: TargetWorkspace, query: ValueAtTarget) -> TransportedValues:
    """Mean of μ̂ over the target's contexts, with what few rows have held."""
    fields = _of_target(space, query)
    del fields["crossed"]
    return TransportedValues(**fields)


def answer_jointly_as_target(space: TargetWorkspace, query: ValueJointly) -> JointValues:
    """The same, where sources find their weights together."""
    return JointValues(**_of_target(space, query))


# --- a source's part ----------------------------------------------------------------------------


def _corrections(
    space: Workspace,
    query: ValueAtTarget | ValueJointly,
    source: SourceRows,
    weights: FloatArray,
    share: float,
) -> tuple[WeighedRows, dict[str, Any]]:
    """What scores have beyond models, of the policy and of every action; and means, by field.

    Both are of the version of policy and models for the row.
    """
    versions = decided_by(space, query, source.contexts)
    row = np.arange(source.n_rows)
    decided = versions[source.version, row]
    modelled = modelled_scores(space, query, source.contexts)[source.version, row]
    values = with_policy(source.scores - modelled, decided)
    rows = WeighedRows(values=values, weights=weights, groups=source.groups, share=share)
    fields = as_means(rows, _excess(space, decided, weights))
    return rows, {**fields, "apart": share_apart(versions, weights)}


def _excess(
    space: Workspace, decided: IntArray, weights: FloatArray
) -> FloatArray | float:  # (n_actions + 1, n_actions + 1)
    """What means vary by, and the rows at hand do not show."""
    if not space.scored.adds_variance:
        return 0.0
    arms = np.tile(np.arange(space.study.n_actions), (len(decided), 1))
    return space.scored.added_covariances(np.column_stack([decided, arms]), weights)


def _nothing(space: Workspace, source: SourceRows) -> dict[str, Any]:
    """The answer of a source whose rows cannot be made to look like the target, by field."""
    size = space.study.n_actions + 1
    return {
        "released": 0,
        "n_rows": source.n_rows,
        "effective_rows": 0.0,
        "known": np.zeros(size),
        "means": np.zeros(size),
        "covariances": np.zeros((size, size)),
        "crossed": np.zeros(size),
        "apart": 0.0,
    }


# --- the target's part --------------------------------------------------------------------------


def _of_target(space: TargetWorkspace, query: ValueAtTarget | ValueJointly) -> dict[str, Any]:
    """Means of μ̂, over versions of models and policy, and shares of rows in regions, by field."""
    whole = space.study_rows.whole
    contexts, own = whole.data.contexts, whole.data.weights_of()
    versions = zip(
        modelled_scores(space, query, contexts), decided_by(space, query, contexts), strict=True
    )
    values = np.mean([with_policy(modelled, decided) for modelled, decided in versions], axis=0)
    rows = WeighedRows(values=values, weights=own / own.sum(), groups=whole.data.groups)
    if not is_enough(space, rows.by_unit):
        raise RefusedError(RefusalCode.SMALL_CELLS)
    shares = shares_in_regions(space, query, contexts)
    return {**as_means(rows), "apart": 0.0, "shares": shares}
