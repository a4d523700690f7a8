"""Candidates along prices of their spending: the corners of gain against spending.

At a price μ the best candidate has the largest value − μ·cost. Values are from the rows that the
choice uses, costs from held-out rows. So the gain of the chosen one there is not the number it was
chosen by.
"""

from collections.abc import Sequence

_ROUNDING = 1e-9


def corners(
    values: Sequence[float], costs: Sequence[float]
) -> tuple[list[int], list[float]]:  # places of candidates, and prices
    """The candidates that are best at some price, and the lowest price of each, rising from zero.

    Among candidates of the same value, the cheaper one is taken, then the first.
    """
    now = min(range(len(values)), key=lambda k: (-values[k], costs[k], k))
    places, prices = [now], [0.0]
    least = _ROUNDING * max(map(abs, costs))
    while cheaper := [k for k in range(len(costs)) if costs[k] < costs[now] - least]:
        rates = {k: (values[now] - values[k]) / (costs[now] - costs[k]) for k in cheaper}
        now = min(cheaper, key=lambda k: (rates[k], costs[k], k))
        if rates[now] > prices[-1]:
            places.append(now)
            prices.append(rates[now])
        else:  # as good at the same price, and cheaper
            places[-1] = now
    return places, prices
