"""Checks whether the messages of a study would be too large."""

from typing import TYPE_CHECKING

from fedopl.base.triangles import triangle_size
from fedopl.base.validation import PlacedError
from fedopl.policies.neural import NeuralPolicy
from fedopl.study.policy_plans import MOST_NUMBERS

# The number of policies that one query can ask about, at least, in a study that diagnoses.
MOST_DIAGNOSED = 128

if TYPE_CHECKING:  # a study is checked by this as it is made
    from fedopl.study.study import Study


def check_message_sizes(study: "Study") -> None:
    """Refuse a study if one of its messages would hold more numbers than a message may."""
    n_actions, folds = study.n_actions, study.nuisances.folds
    n_features = study.most_terms
    n_pairs = n_actions * (n_actions - 1) // 2
    n_numbers = n_pairs * (triangle_size(n_features + 1) + n_features + 1)
    if study.linear.oracle == "wap" and n_numbers > MOST_NUMBERS:
        message = (
            f"wap sums squares of {n_features:,} features for {n_pairs:,} pairs of "
            f"actions, {n_numbers:,} numbers of which a message holds {MOST_NUMBERS:,}; use "
            "csoaa-exact, or fewer actions or features"
        )
        raise PlacedError("oracle", message, ("policy", "oracle"))
    n_numbers = (n_actions + 4) * NeuralPolicy.numbers_shape(study)[0]
    if n_numbers > MOST_NUMBERS:
        message = (
            f"a query about policies may hold {n_numbers:,} numbers of networks, a message "
            f"holds {MOST_NUMBERS:,}; use fewer or narrower layers"
        )
        raise PlacedError("hidden", message, ("policy", "neural", "hidden"))
    at_once = n_actions + 4 + (MOST_DIAGNOSED if study.joining.diagnose else 0)
    at_once = (at_once + 4) * folds if study.evaluation.is_cross_fitted else at_once
    n_numbers = at_once * n_actions * (n_features + 1) * (n_features + 4) // 2
    if study.is_cautious and n_numbers > MOST_NUMBERS:
        message = (
            f"a query about policies may hold {n_numbers:,} numbers of doubts about {n_features:,} "
            f"terms, a message holds {MOST_NUMBERS:,}; use fewer features, or caution = 0"
        )
        raise PlacedError("caution", message, ("policy", "caution"))
    n_numbers = folds * n_actions * (triangle_size(n_features + 2) + 1)
    if study.nuisances.kind == "federated" and n_numbers > MOST_NUMBERS:
        message = (
            f"federated outcome models take squares of {n_features:,} features for "
            f"{n_actions:,} actions in {folds:,} folds, {n_numbers:,} numbers of which a "
            f"message holds {MOST_NUMBERS:,}; use local ones, or fewer folds or features"
        )
        raise PlacedError("nuisances", message)
    n_numbers = study.n_outcome_models * n_actions * (n_features + 2)
    if n_numbers > MOST_NUMBERS:
        message = (
            f"clients would be sent {study.n_outcome_models:,} outcome models of {n_features:,} "
            f"terms for {n_actions:,} actions, {n_numbers:,} numbers of which a message holds "
            f"{MOST_NUMBERS:,}; use local ones, or fewer folds or features"
        )
        raise PlacedError("nuisances", message)
