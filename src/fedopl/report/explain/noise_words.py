"""Sentences about weights by noise: how much more or less clients count in learning."""

from typing import Any

from fedopl.report.words.numbers import listed, percent
from fedopl.results.record import Record
from fedopl.results.sums.noise_weights import NoiseWeights

_MOST_NAMED = 3
_HARDLY = 0.005  # of all weight: less is not worth a name
_STARTS = {"direct": "In the policy that the steps start from"}


def noise_words(record: Record) -> str:
    """Which clients count more and which count less in learning; empty if none does."""
    found = weights_by_noise(record)
    if found is None:
        return ""
    where = _STARTS.get(record.study.linear.oracle, "In learning")
    said = f"{where}, clients with noisier scores count less, as far as the effects of actions "
    said += "are alike at all of them: "
    agreed = record.mixture
    moved = {name: abs(own - agreed[name]) for name, own in found.weights.items()}
    if sum(moved.values()) / 2 < _HARDLY:
        said += "that moves next to no weight. "
    else:
        most = sorted(moved, key=lambda name: (-moved[name], name))[:_MOST_NAMED]
        changes = [
            f"{name} counts for {percent(found.weights[name])} instead of {percent(agreed[name])}"
            for name in most
        ]
        more = " (those that move most)" if len(moved) > len(most) else ""
        said += f"in the mean over actions, {listed(changes)}{more}. "
    return said + (
        "The policy is still meant for the mixture. With more rows, these weights return to "
        "the mixture, unless actions have the same effects at all clients; then all weights "
        "lead to the same policy."
    )


def noise_as_json(record: Record | None) -> dict[str, Any]:
    """The weights of clients in learning, if they differ from the mixture."""
    found = weights_by_noise(record) if record else None
    return {} if found is None else {"weights_for_learning": found.weights}


def weights_by_noise(record: Record) -> NoiseWeights | None:
    """Weights of clients in learning; None if they equal the mixture."""
    return record.statistics.noise_weights(record.mixture)
