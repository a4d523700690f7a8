"""Paths of mixtures: ever more weight for one client (Section 7's α), and what it brings."""

from collections.abc import Mapping, Sequence

from fedopl.base.errors import OptionError
from fedopl.results.mixture_search import PathPoint, SkewPath
from fedopl.results.sums.any_mixture import Statistics, solve_for
from fedopl.server.mixtures.valued_groups import Ask, Valued, value_groups
from fedopl.study import mixture
from fedopl.study.mixture import Weights, renormalised
from fedopl.theory.skew import skewness

ALPHAS = (0.1, 0.25, 0.5, 0.75, 1.0)
ANCHOR = 0  # the place of the policy for α = 0 in every answer


def skew_paths(
    statistics: Statistics,
    rows: Mapping[str, int],
    targets: Sequence[str],
    ask: Ask,
    *,
    most: int,
    alphas: Sequence[float] = ALPHAS,
) -> dict[str, SkewPath]:
    """Solve and value λ(α) = n̄ + ε̄ for every target and α, by target.

    The policy for α = 0, which all paths share, comes in every query.
    """
    if any(not 0 < alpha <= 1 for alpha in alphas) or not alphas:
        raise OptionError("alphas: expected numbers above 0 and at most 1; 0 is always there")
    grid = [0.0, *sorted(set(alphas))]
    steps = [(target, alpha) for target in targets for alpha in grid]
    shares = [mixture.skewed(target, alpha).weights(rows) for target, alpha in steps]
    policies = [solve_for(statistics, weights) for weights in shares]
    groups = [[policy] for policy in policies]
    valued = [one for (one,) in value_groups(ask, groups, most=most, anchor=policies[0])]
    points: dict[str, list[PathPoint]] = {target: [] for target in targets}
    for (target, alpha), weights, one in zip(steps, shares, valued, strict=True):
        base = renormalised(shares[0], one.answers.keys() & rows.keys())
        points[target].append(_point(target, rows, base, weights, alpha, one))
    return {name: SkewPath(target=name, points=tuple(found)) for name, found in points.items()}


def _point(
    target: str,
    rows: Mapping[str, int],
    base: Weights,
    weights: Weights,
    alpha: float,
    valued: Valued,
) -> PathPoint:
    skew = skewness(weights, rows)
    return PathPoint(
        alpha=alpha,
        weights=weights,
        skewness=skew,
        effective_rows=sum(rows.values()) / skew,
        at_target=valued.value({target: 1.0}),
        in_base=valued.value(base),
        target_gain=valued.gain({target: 1.0}, ANCHOR),
        base_gain=valued.gain(base, ANCHOR),
    )
