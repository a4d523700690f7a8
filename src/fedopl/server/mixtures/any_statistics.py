"""Policies for any mixture and any part of the clients, from what they told already."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.tree import TreePolicy
from fedopl.server.aggregate.score_statistics import Statistics
from fedopl.server.mixtures.finite_statistics import FiniteStatistics
from fedopl.server.oracles.tree_search import TreeStatistics
from fedopl.study.mixture import Weights

AnyStatistics = Statistics | TreeStatistics | FiniteStatistics
Solved = LinearPolicy | TreePolicy | str  # a candidate goes by its name


def clients_of(statistics: AnyStatistics) -> list[str]:
    """Those whose sums are there."""
    return sorted(_told(statistics))


def solve(statistics: AnyStatistics, weights: Weights) -> Solved:
    """The policy of those who are weighed; the others' rows count for nothing, not even in a leaf.

    Trees beyond depth two were grown by asking again, so they cannot be found for other weights.
    """
    if isinstance(statistics, TreeStatistics) and not statistics.is_exact:
        raise OptionError("tree: only trees of depth 1 and 2 can be solved again for other weights")
    weighed = {name: weight for name, weight in weights.items() if weight > 0}
    return restricted(statistics, weighed).solve(weighed)


def restricted(statistics: AnyStatistics, names: Collection[str]) -> AnyStatistics:
    """What these clients told, as if there were no others."""
    missing = sorted(set(names) - set(clients_of(statistics)))
    if missing or not names:
        raise OptionError(f"clients: expected some whose sums are there; not so {quoted(missing)}")
    if isinstance(statistics, TreeStatistics):
        return replace(
            statistics,
            cells={name: statistics.cells[name] for name in sorted(names)},
            lost={name: statistics.lost[name] for name in sorted(names)},
        )
    told = {name: _told(statistics)[name] for name in sorted(names)}
    if isinstance(statistics, FiniteStatistics):
        return replace(statistics, means=told)
    return replace(statistics, sums=told)


def _told(statistics: AnyStatistics) -> Mapping[str, Any]:
    """What each client told."""
    if isinstance(statistics, FiniteStatistics):
        return statistics.means
    return statistics.cells if isinstance(statistics, TreeStatistics) else statistics.sums
