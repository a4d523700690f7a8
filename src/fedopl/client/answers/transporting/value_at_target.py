"""What a policy is worth at a site without outcomes: the source's part and the target's part."""

from itertools import combinations
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.asked_policies import deciders, policies_in
from fedopl.client.answers.transporting.source_rows import SourceRows, by_unit
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.target_workspace import TargetWorkspace
from fedopl.client.workspace import Workspace
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.target.transported_values import TransportedValues, ValueAtTarget
from fedopl.solvers.entropy_balance import LARGEST_GAP, balance, rows_behind

# The fewest effective rows behind a mean of one party, whatever the limits are. With fewer, its
# standard error says little.
FEWEST_EFFECTIVE = 10
# A row with more of all sources' weight than this leaves nothing to compare it with.
_MOST_OF_WEIGHT = 0.5


def answer_as_source(space: Workspace, query: ValueAtTarget) -> TransportedValues:
    """Mean of Γ̂ − μ̂ over rows, weighted so that they, or those of all sources, look like others.

    Of the policy and of every action, in each row by the version for it.
    """
    source = SourceRows(space)
    weights, fits = _weighed(space, query, source)
    versions, modelled = _by_version(space, query, source.contexts)
    own = source.version, np.arange(source.n_rows)
    values = _with_policy(source.scores - modelled[own], versions[own])
    excess = _excess(space, versions[own], weights)
    fields = _means(values, weights, source.groups, excess, query.share)
    if not fits:
        fields = {name: np.zeros_like(held)[()] for name, held in fields.items()}
    return TransportedValues(
        **fields,
        n_rows=source.n_rows,
        shares=_shares_in_regions(space, query, source.contexts),
        apart=_share_apart(versions, weights) * fits,
    )


def answer_as_target(space: TargetWorkspace, query: ValueAtTarget) -> TransportedValues:
    """Mean of μ̂ over contexts and versions of policy and models, with what few rows have held."""
    whole = space.study_rows.whole
    contexts, own, groups = whole.data.contexts, whole.data.weights_of(), whole.data.groups
    weights = own / own.sum()
    if not _is_enough(space, by_unit(weights, groups)):
        raise RefusedError(RefusalCode.SMALL_CELLS)
    versions = zip(*_by_version(space, query, contexts), strict=True)
    values = np.mean([_with_policy(modelled, decided) for decided, modelled in versions], axis=0)
    return TransportedValues(
        **_means(values, weights, groups),
        n_rows=len(contexts),
        shares=_shares_in_regions(space, query, contexts),
        apart=0.0,
    )


def _weighed(space: Workspace, query: ValueAtTarget, source: SourceRows) -> tuple[FloatArray, bool]:
    """Weights of rows, and whether they are near enough and rest on enough rows to tell of them.

    The server chooses what they are to look like, so it could have them look like somebody. Where
    they are some of many rows, whose error is that of all, only limits say what is enough.
    """
    if not query.is_joint:
        found = balance(source.contexts, query.means[:-1], query.squares[:-1], source.weights)
        near = found.largest_gap <= LARGEST_GAP
        return found.weights, near and _is_enough(space, by_unit(found.weights, source.groups))
    _, weights, _ = source.weighed_by(query)
    units = by_unit(weights, source.groups)
    fits = query.share * float(units.max()) <= _MOST_OF_WEIGHT
    return weights, fits and rows_behind(units) >= space.limits.minimum_cell


def _is_enough(space: Workspace, units: FloatArray) -> bool:
    return rows_behind(units) >= max(space.limits.minimum_cell, FEWEST_EFFECTIVE)


def _by_version(
    space: Workspace, query: ValueAtTarget, contexts: FloatArray
) -> tuple[IntArray, FloatArray]:  # (n_versions, n_rows), (n_versions, n_rows, n_actions)
    """What each version decides at the target, and μ̂(x; a) by the models that were sent."""
    assert space.study.target is not None  # noqa: S101  (or nobody would ask)
    found = deciders(space, policies_in(query), at=space.study.target.client)
    ((*versions,),) = query.of_candidates(found)
    decided = [decide(contexts) for decide in versions] * (len(query.models) // len(versions))
    terms = contexts if space.study.terms is None else space.study.terms.of(contexts)
    modelled = [terms @ models[:, :-1].T + models[:, -1] for models in query.models]
    return np.stack(decided), np.stack(modelled)


def _with_policy(by_action: FloatArray, decided: IntArray) -> FloatArray:  # (n_rows, n_actions + 1)
    """The values of the decided actions, then those of every action."""
    return np.column_stack([by_action[np.arange(len(decided)), decided], by_action])


def _share_apart(decided: IntArray, weights: FloatArray) -> float:
    """How often two versions (n_versions, n_rows) decide differently, under these weights."""
    pairs = [weights @ (one != other) for one, other in combinations(decided, 2)]
    return float(np.mean(pairs)) if pairs else 0.0


def _excess(
    space: Workspace, decided: IntArray, weights: FloatArray
) -> FloatArray | float:  # (n_actions + 1, n_actions + 1)
    """What means vary by, and the rows at hand do not show."""
    if not space.scored.adds_variance:
        return 0.0
    arms = np.tile(np.arange(space.study.n_actions), (len(decided), 1))
    return space.scored.added_covariances(np.column_stack([decided, arms]), weights)


def _means(
    values: FloatArray,  # (n_rows, n_actions + 1), NaN where there are none
    weights: FloatArray,  # that add up to one
    groups: IntArray | None,
    added: FloatArray | float = 0.0,
    share: float = 1.0,
) -> dict[str, Any]:
    """Weighted means, their covariances by leaving out each row, or group, in turn, and Σ W·u.

    Σ_g u_g·u_gᵀ with u_g = Σ_{i∈g} w_i·(v_i − mean)/(1 − W_g): a row of much weight is not taken
    for typical of others. W_g is the group's share of all weight there is, of which these rows may
    have a share. An action is known if every row has a value for it, and the policy if all actions
    are: a flag that depended on its decisions would disclose for whom it decides so.
    """
    arms = np.isfinite(values[:, 1:]).all(axis=0)
    known = np.concatenate([[arms.all()], arms]).astype(np.float64)
    values = np.where(known > 0, values, 0.0)
    means, units = weights @ values, by_unit(weights, groups)
    without = 1 - share * units
    moved = by_unit(weights[:, None] * (values - means), groups) / without[:, None]
    return {
        "released": 1,
        "effective_rows": rows_behind(units),
        "known": known,
        "means": means * known,
        "covariances": (moved.T @ moved + added) * np.outer(known, known),
        "crossed": (units / without) @ moved * known,
    }


def _shares_in_regions(
    space: Workspace, query: ValueAtTarget, contexts: FloatArray
) -> FloatArray:  # (n_regions,)
    """The share of rows in each region; none where only a few are in it."""
    inside = contexts @ query.regions[:, :-1].T + query.regions[:, -1] > 0
    counts = inside.sum(axis=0)
    return np.where(counts < space.limits.minimum_cell, 0.0, counts / max(len(contexts), 1))
