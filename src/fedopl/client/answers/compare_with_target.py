"""What a site without outcomes tells, and sources whose rows are weighted to look like its rows."""

from itertools import combinations
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.answers.asked_policies import deciders, policies_in
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.workspace import TargetWorkspace, Workspace
from fedopl.messages.about_target import (
    BalanceContexts,
    BalanceSums,
    ContextMoments,
    TellContexts,
    TransportedValues,
    ValueAtTarget,
)
from fedopl.messages.evaluation.policy_fields import valued_split
from fedopl.messages.refusal import RefusalCode
from fedopl.solvers.entropy_balance import LARGEST_GAP, Units, balance, rows_behind, weights_at


class SourceRows:
    """Contexts, scores, weights and groups; and which version of a policy each row is valued by.

    That is the version without the row's fold. On held-out rows there is only one.
    """

    def __init__(self, space: Workspace) -> None:
        split, is_by_fold = valued_split(space.study), space.study.evaluation.is_cross_fitted
        if not is_by_fold:
            space.check_held_out()
        scored = space.scored.evaluated(space.unscored_chunks()) if is_by_fold else space.chunks()
        parts, groups = [], list[IntArray]()
        for chunk in scored:
            rows = chunk.rows(split)
            data, scores, weights = chunk.data, chunk.scores[rows], chunk.weights(rows)
            own = np.ones(len(scores)) if weights is None else weights
            fold = chunk.folds.of_row[rows] * is_by_fold
            parts.append((data.contexts[rows], scores, own, fold))
            groups += [] if (known := data.groups_of(rows)) is None else [known]
        self.groups = np.concatenate(groups) if groups else None
        self.contexts, self.scores, self.weights, self.version = map(
            np.concatenate, zip(*parts, strict=True)
        )

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return len(self.contexts)

    def weighed_by(
        self, query: BalanceContexts | ValueAtTarget
    ) -> tuple[FloatArray, FloatArray, float]:
        """B of the rows, their weights at this η, and the logarithm of the mean weight."""
        terms = Units(centres=query.centres, scales=query.scales).of(self.contexts)
        with np.errstate(over="ignore", invalid="ignore"):
            weights, log_weight = weights_at(terms, query.slopes, self.weights)
        if not (np.isfinite(weights).all() and np.isfinite(log_weight)):
            raise RefusedError(RefusalCode.NOT_FINITE)
        return terms, weights, log_weight


def by_unit(numbers: FloatArray, groups: IntArray | None) -> FloatArray:  # (n_units, …)
    """The numbers of rows, or their sums by group where rows come in some."""
    if groups is None:
        return numbers
    _, codes = np.unique(groups, return_inverse=True)
    found = np.zeros((int(codes.max()) + 1, *numbers.shape[1:]))
    np.add.at(found, codes, numbers)
    return found


def tell_contexts(space: TargetWorkspace, _query: TellContexts) -> ContextMoments:
    """The weighted means over all rows, with what few rows have held."""
    if not space.limits.adds_terms(2 * space.study.n_features + 1, space.n_training):
        raise RefusedError(RefusalCode.TOO_MANY_PARAMETERS)
    sums: Any = 0.0
    for chunk in space.unscored_chunks():
        contexts = chunk.data.contexts[chunk.training]
        weights = chunk.weights(chunk.training)
        features = np.column_stack([contexts, np.ones(len(contexts))])
        weighted = features if weights is None else features * weights[:, None]
        sums = sums + np.array([weighted.sum(axis=0), (weighted * features).sum(axis=0)])
    means, squares = sums / sums[0, -1]
    return ContextMoments(n_rows=space.n_training, means=means, squares=squares)


def balance_contexts(space: Workspace, query: BalanceContexts) -> BalanceSums:
    """Weighted means of b and its products, and the logarithm of the mean weight."""
    source = SourceRows(space)
    terms, weights, log_weight = source.weighed_by(query)
    scored = bool(np.isfinite(source.scores).all())
    behind = rows_behind(by_unit(weights, source.groups))
    told = scored and behind >= space.limits.minimum_cell
    if not told:
        log_weight, terms = 0.0, np.zeros_like(terms)
    return BalanceSums(
        released=int(told),
        scored=int(scored),
        n_rows=source.n_rows,
        log_weight=log_weight,
        means=weights @ terms,
        products=(terms * weights[:, None]).T @ terms,
    )


# The fewest effective rows behind a mean of one party, whatever the limits are. With fewer, its
# standard error says little.
FEWEST_EFFECTIVE = 10
# A row with more of all sources' weight than this leaves nothing to compare it with.
_MOST_OF_WEIGHT = 0.5


def value_as_source(space: Workspace, query: ValueAtTarget) -> TransportedValues:
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


def value_as_target(space: TargetWorkspace, query: ValueAtTarget) -> TransportedValues:
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
    rows = space.rows(valued_split(space.study))
    return space.scored.added_covariances(rows, np.column_stack([decided, arms]), weights)


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
