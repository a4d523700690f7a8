"""The gains and costs of policies along a path of prices, on the client's held-out rows."""

from dataclasses import replace

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray, to_eight_digits
from fedopl.client.answers.asked_policies import policies_in
from fedopl.client.answers.valuing.estimate_values import ScoreSpread, check_not_selected
from fedopl.client.answers.valuing.priced_paths import (
    AtPrices,
    CandidatePath,
    PricedPath,
    TreePath,
)
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.noise import values_with_noise
from fedopl.client.scoring.net_scores import net_rewards
from fedopl.client.scoring.values import JointEstimate, JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.candidate_spending import ValueSpending
from fedopl.messages.evaluation.price_curve import (
    PriceCurve,
    ValuePrices,
    most_on_path,
    n_points,
)
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.trees.tree_path import ValueTrees

_HELD_OUT = RowSplit.EVALUATION


def value_prices(space: Workspace, query: ValuePrices) -> PriceCurve:
    """The gains and costs of a linear policy at each price.

    Parameters and prices are rounded to eight digits, as for other values.
    """
    query = replace(
        query,
        parameters=to_eight_digits(query.parameters),
        prices=to_eight_digits(query.prices),
    )
    asked = ("prices", query.parameters, query.prices, np.array([float(query.against)]))
    return _told(space, AtPrices(space, query), asked)


def value_trees(space: Workspace, query: ValueTrees) -> PriceCurve:
    """The gains and costs of each of these trees."""
    asked = ("tree path", query.trees, np.array([float(query.against)]))
    return _told(space, TreePath(space, query), asked)


def value_spending(space: Workspace, query: ValueSpending) -> PriceCurve:
    """The gains and costs of each of the study's candidates."""
    # Names and arrays are separate items: all numbers of an array count for the noise.
    policies = [part for one in policies_in(query) for item in one.items() for part in item]
    asked = ("candidates", *policies, np.array([float(query.against)]))
    return _told(space, CandidatePath(space, query), asked)


def _told(space: Workspace, path: PricedPath, asked: tuple[object, ...]) -> PriceCurve:
    """Means and covariances of gains and costs, with the noise that values of policies have."""
    n_rows, n_told = space.n_rows(_HELD_OUT), n_points(space.study)
    if n_rows < max(space.limits.minimum_cell, 1):
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    space.limits.check_parameters(n_told, n_rows)
    apart = np.zeros((n_told, n_told))
    sums, costs = [JointSums() for _ in range(n_told)], _CostSpread()
    spread = ScoreSpread(space.least_spread)
    for chunk in space.chunks():
        rows = chunk.rows(_HELD_OUT)
        spread.see(chunk.scores[rows], net_rewards(chunk.data, rows, space.study))
        costs.see(path.costs(chunk, rows))
        known, decided = path.known(chunk, rows), list(path.decided(chunk, rows))
        weights, groups = chunk.weights(rows), chunk.data.groups_of(rows)
        for own, columns in zip(sums, path.columns(chunk, rows, decided), strict=True):
            own.add(np.where(known[:, None], columns, np.nan), weights, groups)
        if space.limits.minimum_cell > 1:
            apart += _rows_apart(decided)
    found = [one for own in sums if (one := own.estimate())]
    if space.scored.adds_variance and found:
        found = path.with_excess(found, space)
    if len(found) < n_told:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    return _released(space, asked, (found, apart), (spread, costs.usual))


def _rows_apart(decided: list[IntArray]) -> FloatArray:  # (n_told, n_told)
    """The number of rows in which each two of these decide differently."""
    each = np.array(decided, np.int16)
    return np.array([(each != one).sum(axis=1) for one in each], np.float64)


def _told_as(apart: FloatArray, minimum_cell: int) -> list[int]:
    """For each price, the place of the price whose numbers are released for it.

    It is the first released price at which fewer than `minimum_cell` rows are decided differently,
    or else the price itself. Otherwise the difference of the two would describe these few rows. And
    the more often the same numbers are released with new noise, the less the noise hides them.
    """
    own: list[int] = []
    for place, counts in enumerate(apart):
        alike = [first for first in dict.fromkeys(own) if counts[first] < minimum_cell]
        own.append(alike[0] if alike else place)
    return own


class _CostSpread:
    """How far apart a usual row's costs lie, and so how much it can change spending."""

    def __init__(self) -> None:
        self._squares, self._n_rows = 0.0, 0

    def see(self, costs: FloatArray) -> None:
        """Include these rows."""
        self._squares += float((np.ptp(costs, axis=1) ** 2).sum())
        self._n_rows += len(costs)

    @property
    def usual(self) -> float:
        """The root mean square."""
        return float(np.sqrt(self._squares / max(self._n_rows, 1)))


def _released(
    space: Workspace,
    asked: tuple[object, ...],
    valued: tuple[list[JointEstimate], FloatArray],
    spreads: tuple[ScoreSpread, float],
) -> PriceCurve:
    n_rows, (found, apart), (spread, usual_cost) = space.n_rows(_HELD_OUT), valued, spreads
    n_used = found[0].n_rows
    if n_used < n_rows:
        noisy = space.noisy(np.array([float(n_used)]), *asked)
        n_used = min(max(int(noisy[0]), 1), n_rows)
        check_not_selected(space, _HELD_OUT, n_used)
    # With noise, because the places also disclose whether few rows are decided differently.
    places = _told_as(space.noisy(apart, *asked, "apart"), space.limits.minimum_cell)
    scales = np.array([spread.usual or 1.0, usual_cost or 1.0])
    both = np.outer(scales, scales)
    influence = space.limits.value_noise / found[0].n_rows
    told = {}
    for place in dict.fromkeys(places):
        draws = [space.noise_for(*asked, f"{place} {what}") for what in ("gain", "cost", "both")]
        mean, covariance = values_with_noise(
            found[place].means / scales,
            found[place].covariances / both,
            influence,
            draws,
            most_on_path(space.study),
        )
        told[place] = mean * scales, covariance * both
    return PriceCurve(
        n_rows=n_used,
        of_rows=n_rows,
        degrees_of_freedom=max(min(found[0].degrees_of_freedom, n_used - 1), 0),
        means=np.array([told[place][0] for place in places]),
        covariances=np.array([told[place][1] for place in places]),
    )
