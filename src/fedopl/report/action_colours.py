"""The colour of each action, the same in every figure of a page."""

import numpy as np

from fedopl.base.arrays import IntArray
from fedopl.report.explain.groups import overall
from fedopl.report.figures.colours import ACTIONS
from fedopl.results.record import Record

MOST_OWN = 6  # actions with a colour of their own where there are too many


def action_order(record: Record) -> IntArray:  # (n_actions,)
    """Actions in the study's order; if there are too many, the most frequent ones first."""
    n_actions = record.study.n_actions
    if n_actions <= len(ACTIONS) or record.described is None:
        return np.arange(n_actions)
    everybody = overall(record.described)
    return np.argsort(-(everybody.decided + everybody.taken), kind="stable")


def colour_places(record: Record) -> dict[str, int]:
    """The position of each action's colour; actions without their own share the last."""
    order = action_order(record)
    most = len(order) if len(order) <= len(ACTIONS) else MOST_OWN
    return {record.study.actions[a]: min(place, most) for place, a in enumerate(order)}
