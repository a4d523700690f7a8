"""Policies for any mixture and any part of the clients, from what they told already."""

from collections.abc import Collection
from dataclasses import replace

from fedopl.errors import OptionError
from fedopl.labels import quoted
from fedopl.mixture import Weights
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.tree import TreePolicy
from fedopl.server.oracles.tree import TreeStatistics
from fedopl.server.statistics import Statistics

AnyStatistics = Statistics | TreeStatistics


def clients_of(statistics: AnyStatistics) -> list[str]:
    """Those whose sums are there."""
    told = statistics.cells if isinstance(statistics, TreeStatistics) else statistics.sums
    return sorted(told)


def solve(statistics: AnyStatistics, weights: Weights) -> LinearPolicy | TreePolicy:
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
    return replace(statistics, sums={name: statistics.sums[name] for name in sorted(names)})
