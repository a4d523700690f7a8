"""Sentences about learning: which rows and clients count less, and caution."""

from typing import Any, NamedTuple

import numpy as np

from fedopl.messages.evaluation.description import CHANCE_CUTS
from fedopl.policies.cautious import CautiousPolicy
from fedopl.policies.policy import Policy
from fedopl.report.words.numbers import count, listed, percent, plain
from fedopl.report.words.policy_labels import SO_FAR, valued_clients
from fedopl.results.record import Record
from fedopl.results.sums.noise_weights import NoiseWeights
from fedopl.results.value_tables import LOGGING
from fedopl.study.private.private_setting import PrivateSetting

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


def noise_at_clients(record: Record) -> str:
    """A sentence on noise in clients' gains; empty if none was read separately under masks."""
    plan = record.study.privacy
    if plan is None or not plan.values_apart:
        return ""
    shares = [noise_share(record, client) for client in valued_clients(record)]
    least, most = percent(min(shares)), percent(max(shares))
    made = most if least == most else f"{least} to {most}"
    return (
        " Each client added all of the noise of the promise to its own values. The intervals "
        f"include it: {made} of the variance of gains over {SO_FAR} is noise."
    )


def noise_share(record: Record, client: str) -> float:
    """The share of noise in the variance of the learned policy's gain over the logging policy."""
    setting = PrivateSetting(record.study)
    gain = record.gains.over(LOGGING, client)
    names = list(dict.fromkeys(row.policy for row in record.values.rows))
    contrast = np.zeros(len(names))
    contrast[names.index(record.chosen)] = 1.0
    contrast[names.index(LOGGING)] = -1.0
    deviation = setting.scales.half_range * setting.deviation("values apart") / gain.n_rows
    noise = deviation**2 * float(contrast @ setting.noise_of_scores @ contrast)
    return min(noise / gain.standard_error**2, 1.0)


def limited_words(record: Record) -> str:
    """A sentence about the rows with limited weights; empty if there are none."""
    found = limited_weights(record)
    concerned = {a: n for a, n in found.rows.items() if n} if found else {}
    if not found or not concerned:
        return ""
    rows = listed([f"'{action}' in about {count(n)}" for action, n in concerned.items()], 3)
    return (
        f"Of the rows learned from, these had a chance below {percent(found.below)}: {rows}. "
        "For learning, rows that got such an action count as if its chance had been "
        f"{percent(found.propensity)}; otherwise a few large weights would decide the policy. "
        "Values are not limited in this way."
    )


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


def caution_words(policy: Policy | None, record: Record | None) -> str:
    """What is subtracted from scores before the largest is chosen; empty if nothing is."""
    if record and record.study.policy.compares_candidates and record.study.caution:
        return (
            "The candidate was chosen with caution: by its value on training rows less "
            f"{plain(record.study.caution, 3)} standard errors of it."
        )
    if record and record.tree and record.study.doubts_leaves:
        return (
            "The tree was searched for with caution: each action in each leaf counted as its "
            f"worth on training rows less {plain(record.study.caution, 3)} standard errors, which "
            "are large where people were unlikely to get the action. Thresholds are those of the "
            "grid."
        )
    if not isinstance(policy, CautiousPolicy):
        return ""
    how_many = plain(record.study.linear.caution, 3) if record else "some"
    return (
        f"The policy is cautious: it subtracts {how_many} standard errors from each action's "
        "score, and then takes the largest. Standard errors are large for people like whom "
        "next to nobody got the action, so the action has to look better there by more. What "
        "is said about scores here is about scores before that subtraction."
    )


def caution_as_json(policy: Policy | None, record: Record | None) -> dict[str, Any]:
    """The number of standard errors subtracted, if any; null if only the policy is known."""
    if record and record.tree and record.study.doubts_leaves:
        return {"caution": record.study.caution}
    if not isinstance(policy, CautiousPolicy):
        return {}
    return {"caution": record.study.linear.caution if record else None}
