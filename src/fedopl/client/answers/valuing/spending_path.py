"""The gains and costs of policies along a path of prices, on the client's held-out rows."""

import numpy as np

from fedopl.client.answers.valuing.estimate_values import check_not_selected
from fedopl.client.answers.valuing.priced_paths import (
    AtPrices,
    CandidatePath,
    PricedPath,
    TreePath,
)
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.scoring.values import JointSums
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.candidate_spending import ValueSpending
from fedopl.messages.evaluation.price_curve import (
    PriceCurve,
    ValuePrices,
    n_points,
)
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.messages.trees.tree_path import ValueTrees

_HELD_OUT = RowSplit.EVALUATION


def value_prices(space: Workspace, query: ValuePrices) -> PriceCurve:
    """The gains and costs of a linear policy at each price."""
    return _told(space, AtPrices(space, query))


def value_trees(space: Workspace, query: ValueTrees) -> PriceCurve:
    """The gains and costs of each of these trees."""
    return _told(space, TreePath(space, query))


def value_spending(space: Workspace, query: ValueSpending) -> PriceCurve:
    """The gains and costs of each of the study's candidates."""
    return _told(space, CandidatePath(space, query))


def _told(space: Workspace, path: PricedPath) -> PriceCurve:
    """Means and covariances of gains and costs."""
    space.check_held_out()
    n_rows, n_told = space.n_rows(_HELD_OUT), n_points(space.study)
    sums = [JointSums() for _ in range(n_told)]
    for chunk in space.chunks():
        rows = chunk.rows(_HELD_OUT)
        known, decided = path.known(chunk, rows), list(path.decided(chunk, rows))
        weights, groups = chunk.weights(rows), chunk.data.groups_of(rows)
        for own, columns in zip(sums, path.columns(chunk, rows, decided), strict=True):
            own.add(np.where(known[:, None], columns, np.nan), weights, groups)
    found = [one for own in sums if (one := own.estimate())]
    if len(found) < n_told:
        raise RefusedError(RefusalCode.NOTHING_TO_SAY)
    if space.scored.adds_variance:
        found = path.with_excess(found, space)
    check_not_selected(space, _HELD_OUT, found[0].n_rows)
    return PriceCurve(
        n_rows=found[0].n_rows,
        of_rows=n_rows,
        degrees_of_freedom=found[0].degrees_of_freedom,
        means=np.array([one.means for one in found]),
        covariances=np.array([one.covariances for one in found]),
    )
