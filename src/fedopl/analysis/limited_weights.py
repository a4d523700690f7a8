"""How many rows had an action so unlikely that learning limits their weights."""

from typing import NamedTuple

from fedopl.messages.evaluation.description import CHANCE_CUTS
from fedopl.results.record import Record


class LimitedWeights(NamedTuple):
    """Rows of all clients that reported them. The counts include noise."""

    propensity: float  # learning raises smaller propensities to this
    below: float  # the nearest public cut at or below it; rows below this cut were counted
    rows: dict[str, int]  # by action, the training rows with a propensity below that cut


def limited_weights(record: Record) -> LimitedWeights | None:
    """The rows with limited weights, by action; None if no weight is limited or nobody reported."""
    plan, actions = record.study.nuisances, record.study.actions
    floor = plan.learning_floor(len(actions))
    cut = max((one for one in CHANCE_CUTS if one <= floor), default=None)
    if floor <= (plan.clip or 0.0) or cut is None or record.described is None:
        return None
    n_bins = CHANCE_CUTS.index(cut) + 1
    by_client = record.described.by_client.values()
    rows = sum(counts.chances[:, :n_bins].sum(axis=1) for counts in by_client)
    return LimitedWeights(floor, cut, {a: round(n) for a, n in zip(actions, rows, strict=True)})
