"""The value of a policy at a target: the model's value there, corrected by source clients.

V = E_target[μ̂(x; π(x))] + Σ_c a_c·Σ w(Γ̂(π) − μ̂(π)). The sources' weights w make their rows
resemble the target. The value is right if either the models or the weights are right (doubly
robust).
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.base.decompositions import eigh, symmetric_pinv


@dataclass(frozen=True, eq=False, kw_only=True)
class SourcePart:
    """One party's means of some columns, their covariances, and the effective rows behind them."""

    means: FloatArray  # (n_columns,)
    covariances: FloatArray  # (n_columns, n_columns)
    known: BoolArray  # (n_columns,)
    effective_rows: float


def combined_sources(parts: Mapping[str, SourcePart]) -> SourcePart:
    """The sources' mean, weighted by their effective rows, which do not depend on outcomes."""
    own = [parts[name] for name in sorted(parts)]
    # (n_sources, n_columns)
    counts = np.array([one.known * float(one.effective_rows) for one in own])
    totals = counts.sum(axis=0)
    shares = np.divide(counts, totals, out=np.zeros_like(counts), where=totals > 0)
    means = sum(share * one.means for share, one in zip(shares, own, strict=True))
    covariances = sum(
        np.outer(share, share) * one.covariances for share, one in zip(shares, own, strict=True)
    )
    return SourcePart(
        means=np.asarray(means),
        covariances=np.asarray(covariances),
        known=totals > 0,
        effective_rows=float(sum(one.effective_rows for one in own)),
    )


def joint_correction(
    parts: Mapping[str, SourcePart], shares: Mapping[str, float], crossed: Mapping[str, FloatArray]
) -> SourcePart:
    """The mean over all sources' rows, each source with its share of their weights.

    Covariances are those about this mean: Σ_c s_c²·Σ_g (u_g + W_g·a_c)(u_g + W_g·a_c)ᵀ, where a_c
    is how far a source's own mean is from it, and `crossed` are Σ W_g·u_g.
    """
    names = sorted(parts)
    mean = np.asarray(sum(shares[name] * parts[name].means for name in names))
    covariances = np.zeros((len(mean), len(mean)))
    spent = 0.0
    for name in names:
        own, share = parts[name], shares[name]
        apart = own.means - mean
        cross = np.outer(apart, crossed[name])
        between = np.outer(apart, apart) / own.effective_rows
        covariances += share**2 * (own.covariances + cross + cross.T + between)
        spent += share**2 / own.effective_rows
    sizes, axes = eigh(covariances)
    return SourcePart(
        means=mean,
        # With noise on its parts, it may not be one that numbers can have.
        covariances=(axes * np.maximum(sizes, 0.0)) @ axes.T,
        known=np.all([parts[name].known for name in names], axis=0),
        effective_rows=1 / spent,
    )


def transported_by(target: SourcePart, correction: SourcePart) -> SourcePart:
    """The values at the target: the models' values there plus the sources' correction."""
    return SourcePart(
        means=target.means + correction.means,
        covariances=target.covariances + correction.covariances,
        known=target.known & correction.known,
        effective_rows=correction.effective_rows,
    )


# --- sources whose outcomes do not transport ----------------------------------------------------


def disagreement(one: SourcePart, others: SourcePart) -> float:
    """The p-value of the difference between a source and the others at the same contexts.

    A Wald test of the part of all actions' scores that the shared models do not explain, which is
    Theorem 3's difference in outcomes. It uses the F distribution, since covariances come from few
    effective rows.
    """
    from scipy.special import fdtrc  # here, as it is slow to import

    both = one.known & others.known
    both[0] = False  # the policy is made of actions
    n_columns = int(both.sum())
    n_rows = min(one.effective_rows, others.effective_rows)
    if not n_columns or n_rows <= n_columns + 1:
        return 1.0
    apart = (one.means - others.means)[both]
    covariances = (one.covariances + others.covariances)[np.ix_(both, both)]
    statistic = float(apart @ symmetric_pinv(covariances) @ apart)
    ratio = statistic * (n_rows - n_columns) / (n_columns * (n_rows - 1))
    return float(fdtrc(n_columns, n_rows - n_columns, max(ratio, 0.0)))


def chances(parts: Mapping[str, SourcePart]) -> dict[str, float]:
    """Each source's p-value against all the others; empty if there are no others."""
    if len(parts) < 2:
        return {}
    return {
        name: disagreement(parts[name], combined_sources(_without(parts, {name})))
        for name in sorted(parts)
    }


@dataclass(frozen=True, kw_only=True)
class Screened:
    """The sources that are left out, and whether the remaining ones still disagree."""

    chances: Mapping[str, float]  # by source, as it was last compared with the others
    left_out: tuple[str, ...]
    disagree: bool


def screen(parts: Mapping[str, SourcePart], level: float) -> Screened:
    """Leave out sources one by one, the one that disagrees most first, but only a minority.

    A source is left out if its p-value is below `level` over the number of sources. If only two
    sources disagree, none is left out: no test shows which one is unusual.
    """
    found, left_out = chances(parts), list[str]()
    now = dict(found)
    most = (len(parts) - 1) // 2
    while now and min(now.values()) < level / len(parts) and len(left_out) < most:
        left_out.append(min(now, key=lambda name: (now[name], name)))
        now = chances(_without(parts, left_out))
        found |= now
    disagree = bool(now) and min(now.values()) < level / len(parts)
    return Screened(chances=found, left_out=tuple(left_out), disagree=disagree)


def _without(parts: Mapping[str, SourcePart], names: Collection[str]) -> dict[str, SourcePart]:
    return {name: part for name, part in parts.items() if name not in names}


# --- the mixture that matches -------------------------------------------------------------------

# Weight of the condition that shares add up to one.
_ONE = 1e4
# From penalties that almost ignore the distance to penalties that almost ignore skewness.
_PENALTIES = np.geomspace(1e3, 1e-6, 46)
# A smaller gain in distance, in standard deviations, is not worth more skewness.
_NEAR_ENOUGH = 0.05


def matching_mixture(gaps: Mapping[str, FloatArray], rows: Mapping[str, int]) -> dict[str, float]:
    """The least skewed λ whose mean contexts come about as near to the target's as possible.

    `gaps` are each client's means and mean squares minus the target's, in standard deviations. Each
    penalty κ has a minimum of |Σ λ_c·gap_c|² + κ·𝔰(λ‖n̄). The function returns the minimum with the
    largest κ whose distance exceeds the smallest by at most a twentieth of a standard deviation.
    """
    names = sorted(gaps)
    apart = np.column_stack([gaps[name] for name in names])  # (n_moments, n_clients)
    counts = np.array([rows[name] for name in names], np.float64)
    shares = counts / counts.sum()
    found = [_penalised(apart, shares, penalty) for penalty in _PENALTIES]
    distances = [float(np.linalg.norm(apart @ own)) for own in found]
    enough = min(distances) + _NEAR_ENOUGH
    best = next(own for own, far in zip(found, distances, strict=True) if far <= enough)
    return dict(zip(names, best.tolist(), strict=True))


def _penalised(apart: FloatArray, shares: FloatArray, penalty: float) -> FloatArray:
    """The λ ≥ 0 with sum one that minimises the distance plus its penalty."""
    from scipy.optimize import nnls  # here, as it is slow to import

    by_skew = np.diag(np.sqrt(penalty / shares))
    system = np.vstack([apart, by_skew, np.full(len(shares), _ONE)])
    found, _ = nnls(system, np.append(np.zeros(len(system) - 1), _ONE))
    return np.asarray(found / found.sum())
