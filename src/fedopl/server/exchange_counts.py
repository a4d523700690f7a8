"""How many exchanges and trips a run takes at most, for a view of what is left."""

from math import ceil

from fedopl.messages.evaluation.policy_values import most_candidates
from fedopl.policies.trees.growing import n_levels
from fedopl.server.aggregate.grid_agreement import MOST_COUNTS
from fedopl.server.diagnosis.diagnose import diagnosing_exchanges
from fedopl.server.oracles.by_name import ORACLES
from fedopl.study.study import Study


def expected_exchanges(study: Study, n_clients: int) -> int:
    """How many exchanges a run takes at most."""
    diagnosis = diagnosing_exchanges(study, n_clients) if study.joining.diagnose else 0
    learning = _learning_exchanges(study) + _mixing_exchanges(study, n_clients)
    described = study.evaluation.describe + study.values_leaves
    return exchanges_to_evaluate(study) + learning + described + diagnosis


def expected_trips(study: Study, n_clients: int) -> int:
    """How many trips a run takes at most: enrolment rides with sums, descriptions with values.

    So do the cells of a tree with scores, where its grid is agreed beforehand.
    """
    together = (study.nuisances.kind == "federated") + (
        study.evaluation.describe and study.evaluation.share > 0
    )
    along = study.values_leaves + cells_come_along(study)
    return expected_exchanges(study, n_clients) - together - along


def exchanges_to_evaluate(study: Study) -> int:
    """How many exchanges it takes to value policies that are there already."""
    scoring = 2 + (study.nuisances.kind == "federated")
    return scoring + (study.evaluation.share > 0)


def cells_come_along(study: Study) -> bool:
    """Whether a tree's grid is known before anybody is asked."""
    return study.policy.kind == "tree" and study.tree.thresholds == "grid" and not study.cut_columns


def _learning_exchanges(study: Study) -> int:
    if study.policy.kind == "finite":
        return 1
    if study.policy.kind == "tree":
        return _tree_exchanges(study)
    return ORACLES[study.linear.oracle].exchanges(study)


def _tree_exchanges(study: Study) -> int:
    """Counts to agree on thresholds, and cells for each level."""
    if study.tree.thresholds == "observed":
        return 0
    return n_levels(study.tree.depth) + (MOST_COUNTS if study.cut_columns else 0)


def _mixing_exchanges(study: Study, n_clients: int) -> int:
    """Sums and values along a path; everybody's own policy, every step and the average."""
    plan = study.mixture
    if plan.kind == "path":
        # The policy that the path begins with comes in every query.
        room = len(plan.alphas) if study.policy.kind == "finite" else most_candidates(study) - 1
        return 1 + ceil(len(plan.alphas) / room)
    if plan.kind == "minimax" and study.policy.kind == "linear":
        return ceil(n_clients / most_candidates(study)) + plan.steps + 1
    return 0
