"""Selects how a policy is explained in text, JSON and the report: weights, curves or a tree."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedopl.policies.policy import Policy
from fedopl.report.explain.curve_words import policy_as_json, policy_as_text
from fedopl.report.explain.explain_network import network_as_json, network_as_text
from fedopl.report.explain.explain_tree import tree_as_json, tree_as_text
from fedopl.report.parts import Heading, Part, Text
from fedopl.report.sections.feature_weights import WEIGHTS_TITLE, network_parts, weight_parts
from fedopl.report.sections.tree_leaves import tree_parts
from fedopl.results.record import Record


class Explainer(NamedTuple):
    """A way to explain policies; its functions receive only policies of its own kind."""

    as_text: Callable[[Any, Record | None, int], str]  # with so many features for each action
    as_json: Callable[[Any, Record | None], dict[str, Any]]
    parts: Callable[[Record, Any], tuple[Part, ...]]  # of the report


# Keyed by the policy's own `explained_by`.
_EXPLAINERS = {
    "weights": Explainer(policy_as_text, policy_as_json, weight_parts),
    "tree": Explainer(tree_as_text, tree_as_json, tree_parts),
    "profiles": Explainer(network_as_text, network_as_json, network_parts),
}


def explainer_of(policy: Policy) -> Explainer:
    """The explainer of this policy."""
    return _EXPLAINERS[policy.explained_by]


def policy_parts(record: Record) -> tuple[Part, ...]:
    """The features that the policy uses, or why it uses none."""
    if record.policy is None:
        why = f"'{record.chosen}' is a rule in the clients' own code: it has no weights to show."
        return (Heading(WEIGHTS_TITLE), Text(why))
    return explainer_of(record.policy).parts(record, record.policy)
