"""Costs of actions, subtracted from scores and outcomes; and a check of columns of costs.

Costs are linear in features. The features are those of the rows as answers use them: rare values
are masked here, too. So sums of net scores disclose no more than sums of scores and of features.
"""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import DataError
from fedopl.client.table.logged_data import LoggedData
from fedopl.study.study import Study

_ROWS_AT_ONCE = 1 << 15


def costs_in(contexts: FloatArray, parameters: FloatArray) -> FloatArray:  # (n_rows, n_actions)
    """c_a(x) of each action in each of these contexts."""
    found = np.tile(parameters[:, -1], (len(contexts), 1))
    # One column at a time: the bits of a matrix product depend on the number of rows.
    for action, feature in np.argwhere(parameters[:, :-1]):
        found[:, action] += parameters[action, feature] * contexts[:, feature]
    return found


def net_rewards(data: LoggedData, rows: slice, study: Study) -> FloatArray:  # (n_rows,)
    """The net reward of each of these rows: the outcome, less the cost of the logged action."""
    rewards, parameters = data.rewards[rows], study.net_costs
    if parameters is None:
        return rewards
    costs = costs_in(data.contexts[rows], parameters)
    return rewards - costs[np.arange(len(costs)), data.actions[rows]]


def check_cost_columns(client: str, data: LoggedData, study: Study) -> None:
    """Raise a DataError if a column does not give the cost of an action in every row."""
    for column in study.costs.columns if study.costs else ():
        place, gap = study.features.index(column), f"{column} is missing"
        marks = study.features.index(gap) if gap in study.features else None
        n_gaps = n_negative = 0
        for rows in data.slices(_ROWS_AT_ONCE):
            contexts = data.contexts[rows]
            n_gaps += 0 if marks is None else int(contexts[:, marks].sum())
            n_negative += int((contexts[:, place] < 0).sum())
        if n_gaps:
            raise DataError(
                f"{client}: column '{column}' gives the cost of an action, and has no value in "
                f"{n_gaps:,} of {data.n_rows:,} rows; complete it, or leave such rows out "
                '(missing = "drop")'
            )
        if n_negative:
            raise DataError(
                f"{client}: column '{column}' gives the cost of an action, and is below 0 in "
                f"{n_negative:,} of {data.n_rows:,} rows; costs are 0 or more"
            )
