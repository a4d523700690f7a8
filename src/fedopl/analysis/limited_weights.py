"""The number of rows whose actions were so unlikely that learning limits their weights."""

from typing import NamedTuple

from fedopl.messages.evaluation.description import CHANCE_CUTS
from fedopl.results.record import Record


class LimitedWeights(NamedTuple):
    """Rows of all clients, as far as reported; counts carry noise."""

    propensity: float  # what smaller ones count as, where policies are learned
    below: float  # the public cut next to it, below which rows were counted
    rows: dict[str, int]  # by action, the training rows in which it was less likely than that


def limited_weights(record: Record) -> LimitedWeights | None:
    """Rows with limited weights, by propensities; None if no weight is limited or none reported."""
    plan, actions = record.study.nuisances, record.study.actions
    floor = plan.learning_floor(len(actions))
    cut = max((one for one in CHANCE_CUTS if one <= floor), default=None)
    if floor <= (plan.clip or 0.0) or cut is None or record.described is None:
        return None
    n_bins = CHANCE_CUTS.index(cut) + 1
    by_client = record.described.by_client.values()
    rows = sum(counts.chances[:, :n_bins].sum(axis=1) for counts in by_client)
    return LimitedWeights(floor, cut, {a: round(n) for a, n in zip(actions, rows, strict=True)})
