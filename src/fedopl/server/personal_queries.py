"""What each client is sent to make its personal policy from: what all others learned."""

from collections.abc import Callable

from fedopl.policies.tree import TreePolicy
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.results.sums.tree_statistics import Searched
from fedopl.server.aggregate.others_choices import choice_fields
from fedopl.server.aggregate.others_leaves import leaf_fields_for_each
from fedopl.server.aggregate.others_policies import Fields, by_version, fields_for_each
from fedopl.server.learn_policy import Learned


def learned_by_others(learned: Learned) -> dict[str, Fields] | None:
    """By client, what it is sent beside the policies to value; None without personal policies."""
    study = learned.setting.study
    return _BY_KIND[study.policy.kind](learned) if study.personalises else None


def _of_linear(learned: Learned) -> dict[str, Fields]:
    setting = learned.setting
    by_fold = setting.without_each_fold if setting.study.evaluation.is_cross_fitted else []
    return fields_for_each(setting, [*by_fold, setting.statistics])


def _of_trees(learned: Learned) -> dict[str, Fields]:
    policy, statistics = learned.policy, learned.tree
    if not isinstance(policy, TreePolicy) or statistics is None:
        raise TypeError("a tree on a grid is learned from cells")
    versions = [*learned.setting.trees_by_fold, Searched(policy, statistics)]
    return leaf_fields_for_each(learned.setting, versions)


def _of_candidates(learned: Learned) -> dict[str, Fields]:
    setting, statistics = learned.setting, learned.statistics
    assert isinstance(statistics, FiniteStatistics)  # noqa: S101  (candidates are compared)
    n, versions = len(statistics.names), zip(setting.study.left_out, learned.told, strict=True)
    return by_version(
        [choice_fields(n, told, setting.weights_without(fold)) for fold, told in versions]
    )


# By the kind of policy that the study wants.
_BY_KIND: dict[str, Callable[[Learned], dict[str, Fields]]] = {
    "linear": _of_linear,
    "tree": _of_trees,
    "finite": _of_candidates,
}
