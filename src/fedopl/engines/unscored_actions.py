"""Actions that a client took but would have no score for, and what would help."""

import math
from collections.abc import Mapping

import numpy as np

from fedopl.base.labels import quoted
from fedopl.client.client_file import Client
from fedopl.client.inspect_table import Examined
from fedopl.results.record import Record

MOST_NAMED = 5


def without_scores(
    record: Record, examined: Mapping[str, Examined], clients: Mapping[str, Client]
) -> dict[str, str]:
    """By client, the actions that it took and has no score for in this rehearsal, in words."""
    found: dict[str, str] = {}
    if record.statistics.is_of_all:  # under masks, sums of single clients are not known
        return found
    for name, sums in record.statistics.sums.items():
        data = examined[name].data
        taken = np.zeros(record.study.n_actions) if data is None else data.rows_per_action
        lost = np.flatnonzero((sums.shares <= 0) & (taken > 0))
        if len(lost):
            names = {record.study.actions[action]: int(taken[action]) for action in lost}
            found[name] = _in_words(record, clients[name], names)
    return found


def _in_words(record: Record, client: Client, rows: Mapping[str, int]) -> str:
    """How many rows these actions have and need, and which settings give them scores again."""
    study, limits = record.study, client.settings.limits
    named = [*rows][:MOST_NAMED]
    more = f" or {len(rows) - len(named)} more" * (len(rows) > len(named))
    learned_from = 1 - study.evaluation.share
    fewest = min(rows.values())
    needed = limits.rows_needed(study.n_terms + 1)
    terms = "encoded features" if study.basis is None else "terms of the basis"
    enough = (study.n_terms + 1) / max(math.floor(learned_from * fewest), 1)
    return (
        f"has no score for {quoted(named)}{more}: taken in {fewest:,} rows or more, of which "
        f"{learned_from:.0%} are learned from, and {needed:,} are needed, ({terms} + 1) / "
        "parameter_share. No policy can choose them here, and what they are worth is not known. "
        f"To bring them back, raise parameter_share in its client.toml to {_up(enough):g}, use "
        f"fewer {terms}, or join them with another action"
    )


def _up(share: float) -> float:
    """The share with two digits, rounded up."""
    step = 10.0 ** (math.floor(math.log10(share)) - 1)
    return math.ceil(share / step - 1e-9) * step
