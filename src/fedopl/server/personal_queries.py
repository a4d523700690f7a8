"""The queries with which each client solves for its personal policy, by kind of policy."""

from collections.abc import Callable
from dataclasses import dataclass

from fedopl.messages.evaluation.personal_values import (
    AsksPersonal,
    ValuePersonal,
    ValuePersonalChoice,
    ValuePersonalTree,
)
from fedopl.policies.tree import TreePolicy
from fedopl.server.aggregate.others_choices import choice_fields_for_each
from fedopl.server.aggregate.others_leaves import leaf_fields_for_each
from fedopl.server.aggregate.others_policies import Fields, fields_for_each
from fedopl.server.learn_policy import Learned


@dataclass(frozen=True, eq=False)
class PersonalQueries:
    """The kind of query, and by client the fields it has beside the policies to value."""

    kind: type[AsksPersonal]
    fields: dict[str, Fields]

    def asking(self, asked: Fields) -> dict[str, AsksPersonal]:
        """Each client's query, which also asks about these policies."""
        return {name: self.kind(**asked, **own) for name, own in self.fields.items()}


def personal_queries(learned: Learned) -> PersonalQueries | None:
    """Each client's query, with what all others learned; None without personal policies."""
    study = learned.setting.study
    return _ASKING[study.policy.kind](learned) if study.personalises else None


def _for_linear(learned: Learned) -> PersonalQueries:
    return PersonalQueries(ValuePersonal, fields_for_each(learned.setting))


def _for_trees(learned: Learned) -> PersonalQueries:
    policy, statistics = learned.policy, learned.tree
    if not isinstance(policy, TreePolicy) or statistics is None:
        raise TypeError("a tree on a grid is learned from cells")
    fields = leaf_fields_for_each(learned.setting, policy, statistics)
    return PersonalQueries(ValuePersonalTree, fields)


def _for_candidates(learned: Learned) -> PersonalQueries:
    fields = choice_fields_for_each(learned.names, learned.told, learned.setting.weights)
    return PersonalQueries(ValuePersonalChoice, fields)


# By the kind of policy that the study wants.
_ASKING: dict[str, Callable[[Learned], PersonalQueries]] = {
    "linear": _for_linear,
    "tree": _for_trees,
    "finite": _for_candidates,
}
