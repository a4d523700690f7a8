"""Paths of mixtures with more and more weight for one client (Section 7's α), and their values."""

from collections.abc import Mapping, Sequence

from fedopl.base.errors import OptionError
from fedopl.results.mixture_search import PathPoint, SkewPath
from fedopl.results.sums.any_mixture import Statistics, solve_for
from fedopl.server.mixtures.value_queries import ANCHOR, ValueQueries
from fedopl.study import mixture
from fedopl.study.mixture import ALPHAS, renormalised
from fedopl.theory.skew import skewness


def skew_paths(
    statistics: Statistics,
    rows: Mapping[str, int],
    values: ValueQueries,
    targets: Sequence[str],
    alphas: Sequence[float] = ALPHAS,
) -> dict[str, SkewPath]:
    """By target, the policies for λ(α) = n̄ + ε̄ at every α, with their values.

    Every query also has the policy for α = 0, which all paths share.
    """
    if any(not 0 < alpha <= 1 for alpha in alphas) or not alphas:
        raise OptionError("alphas: expected numbers above 0 and at most 1; 0 is always included")
    grid = [0.0, *sorted(set(alphas))]
    steps = [(target, alpha) for target in targets for alpha in grid]
    shares = [mixture.skewed(target, alpha).weights(rows) for target, alpha in steps]
    policies = [solve_for(statistics, weights) for weights in shares]
    points: dict[str, list[PathPoint]] = {target: [] for target in targets}
    valued = values.value_each(policies)
    for (target, alpha), weights, policy in zip(steps, shares, valued, strict=True):
        skew, only = skewness(weights, rows), {target: 1.0}
        base = renormalised(shares[0], policy.answers.keys() & rows.keys())
        point = PathPoint(
            alpha=alpha,
            weights=weights,
            skewness=skew,
            effective_rows=sum(rows.values()) / skew,
            at_target=policy.value({target: values.sign}),
            in_base=policy.value({name: values.sign * share for name, share in base.items()}),
            target_gain=policy.gain(only, ANCHOR),
            base_gain=policy.gain(base, ANCHOR),
        )
        points[target].append(point)
    return {name: SkewPath(target=name, points=tuple(found)) for name, found in points.items()}
