"""Paths of mixtures with more and more weight for one client (Section 7's α), and their values."""

from collections.abc import Mapping, Sequence

from fedopl.base.errors import OptionError
from fedopl.results.mixture_search import PathPoint, SkewPath
from fedopl.results.sums.any_mixture import Solved, Statistics, solve_for
from fedopl.server.mixtures.value_queries import ANCHOR, Valued, ValueQueries
from fedopl.study import mixture
from fedopl.study.mixture import ALPHAS, Weights, renormalised
from fedopl.theory.skew import skewness

# A target, an α, and the mixture λ(α) = n̄ + ε̄.
PathStep = tuple[str, float, Weights]


def skew_paths(
    statistics: Statistics,
    rows: Mapping[str, int],
    values: ValueQueries,
    targets: Sequence[str],
    alphas: Sequence[float] = ALPHAS,
) -> dict[str, SkewPath]:
    """By target, the policies for λ(α) at every α, with their values.

    Every query also has the policy for α = 0, which all paths share.
    """
    steps = steps_toward(targets, rows, alphas)
    return paths_of(steps, rows, values.value_each(solved(steps, statistics)), values.sign)


def steps_toward(
    targets: Sequence[str], rows: Mapping[str, int], alphas: Sequence[float]
) -> list[PathStep]:
    """The steps of a path to each target, one path behind the other; each begins at n̄."""
    if any(not 0 < alpha <= 1 for alpha in alphas) or not alphas:
        raise OptionError("alphas: expected numbers above 0 and at most 1; 0 is always included")
    grid = [0.0, *sorted(set(alphas))]
    each = [(target, alpha) for target in targets for alpha in grid]
    return [(*one, mixture.skewed(*one).weights(rows)) for one in each]


def solved(steps: Sequence[PathStep], statistics: Statistics) -> list[Solved]:
    """The policy of each step."""
    return [solve_for(statistics, weights) for _, _, weights in steps]


def paths_of(
    steps: Sequence[PathStep], rows: Mapping[str, int], valued: Sequence[Valued], sign: float
) -> dict[str, SkewPath]:
    """By target, the path with the values of its policies, compared with the first of all."""
    points: dict[str, list[PathPoint]] = {target: [] for target, _, _ in steps}
    (_, _, first), *_ = steps
    for (target, alpha, weights), policy in zip(steps, valued, strict=True):
        skew, only = skewness(weights, rows), {target: 1.0}
        base = renormalised(first, policy.answers.keys() & rows.keys())
        point = PathPoint(
            alpha=alpha,
            weights=weights,
            skewness=skew,
            effective_rows=sum(rows.values()) / skew,
            at_target=policy.value({target: sign}),
            in_base=policy.value({name: sign * share for name, share in base.items()}),
            target_gain=policy.gain(only, ANCHOR),
            base_gain=policy.gain(base, ANCHOR),
        )
        points[target].append(point)
    return {name: SkewPath(target=name, points=tuple(found)) for name, found in points.items()}
