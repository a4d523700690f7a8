"""How far a client's values of policies differ from the mixture's.

The server learns policies that make this difference as large as possible.
"""

from fedopl.results.diagnosis import MeasuredDiscrepancy
from fedopl.results.sums.any_mixture import Statistics, contrast_with_mixture, negative
from fedopl.server.mixtures.value_queries import Valued, ValueQueries
from fedopl.study.mixture import Weights


def measure_discrepancies(
    statistics: Statistics, weights: Weights, values: ValueQueries
) -> dict[str, MeasuredDiscrepancy]:
    """The discrepancy of each client from the mixture; none for a client that is all of it.

    Each client has two policies, which must be in the same query.
    """
    contrasts = {name: contrast_with_mixture(weights, name) for name in sorted(weights)}
    contrasts = {name: signed for name, signed in contrasts.items() if any(signed.values())}
    pairs = [
        [statistics.solve_contrast(signed), statistics.solve_contrast(negative(signed))]
        for signed in contrasts.values()
    ]
    valued = values.value(pairs)
    return {
        name: _measured(name, signed, found)
        for (name, signed), found in zip(contrasts.items(), valued, strict=True)
    }


def _measured(client: str, signed: Weights, valued: list[Valued]) -> MeasuredDiscrepancy:
    first, second = valued
    return MeasuredDiscrepancy(
        client=client,
        above=first.value(signed),
        below=second.value(negative(signed)),
        gap=first.gain(signed, second.place),
    )
