"""Every coalition's policy, and what it is worth to the coalition's members.

A client alone has its local policy. A coalition S has the policy for n̄ restricted to S. Coalitions
differ only in whose scores they learn from. With federated outcome models, all scores are based on
all clients' rows.
"""

from collections.abc import Mapping
from itertools import combinations

from fedopl.base.errors import FederationError, OptionError
from fedopl.base.estimates import Estimate
from fedopl.base.labels import quoted
from fedopl.results.diagnosis import Coalition, Coalitions
from fedopl.results.sums.any_mixture import Statistics, solve_for
from fedopl.server.mixtures.value_queries import ANCHOR, Valued, ValueQueries
from fedopl.study.mixture import Empirical, Weights

# With more clients than the first number, only the whole and all but one client are compared. With
# more than the second, nothing is: clients value no more policies in a study.
MOST_EXHAUSTIVE, _MOST_LEFT_OUT = 6, 30


def compare_coalitions(
    statistics: Statistics, rows: Mapping[str, int], values: ValueQueries
) -> Coalitions:
    """The coalitions of these clients, with the values of their policies and of each one's data.

    Every query begins with the policy of all clients, so that the others are paired with it.
    """
    clients = tuple(sorted(rows))
    if not 2 <= len(clients) <= _MOST_LEFT_OUT:
        raise OptionError(
            f"coalitions: expected 2 to {_MOST_LEFT_OUT} clients, came {len(clients)}"
        )
    together = _subsets(clients)
    shares = [Empirical().weights({name: rows[name] for name in part}) for part in together]
    policies = [solve_for(statistics, weights) for weights in shares]
    valued = values.value_each(policies)
    missing = {name for one in valued for name in clients if name not in one.answers}
    if missing:
        raise FederationError(
            f"coalitions: no values of {quoted(sorted(missing))}; leave them out of the rows"
        )
    n_gains = sum(len(part) for part in together if len(part) > 1)
    compared = tuple(
        Coalition(
            members=part,
            weights=weights,
            gains={name: one.gain_over_local(name) for name in part},
            level=1 - 0.05 / n_gains,  # Bonferroni
        )
        for part, weights, one in zip(together, shares, valued, strict=True)
        if len(part) > 1
    )
    worth = _worth_of_data(clients, shares[0], together, valued)
    return Coalitions(clients=clients, compared=compared, worth_of_data=worth)


def _subsets(clients: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The coalitions, largest first; at least all clients, and all but one."""
    everybody = len(clients)
    fewest = 2 if everybody <= MOST_EXHAUSTIVE else everybody - 1
    sizes = range(everybody, min(fewest, everybody - 1) - 1, -1)
    return [part for size in sizes for part in combinations(clients, size)]


def _worth_of_data(
    clients: tuple[str, ...],
    weights: Weights,
    together: list[tuple[str, ...]],
    valued: list[Valued],
) -> dict[str, Estimate]:
    """Q̂_n̄(π_N) − Q̂_n̄(π_{N∖k}), paired."""
    without = {frozenset(part): one for part, one in zip(together, valued, strict=True)}
    found = {}
    for client in clients:
        one = without[frozenset(clients) - {client}]
        found[client] = Valued(one.answers, ANCHOR).gain(weights, one.place)
    return found
