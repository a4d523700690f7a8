"""Sentences about a policy that subtracts standard errors from its scores."""

from typing import Any

from fedopl.policies.cautious import CautiousPolicy
from fedopl.policies.policy import Policy
from fedopl.report.words.numbers import plain
from fedopl.results.record import Record


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
