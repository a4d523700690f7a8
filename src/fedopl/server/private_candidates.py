"""The best of named candidates and constant arms, by noisy sums of scores."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.messages.private.noised_scores import SumCandidates
from fedopl.policies.kinds import packed
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.policies.tree import TreePolicy
from fedopl.results.value_tables import arm_name
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.policy_comparison import Candidates
from fedopl.server.private_learning import LearnedPrivately, start_privately
from fedopl.server.private_trees import arm_as_tree
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study


def choose_privately(
    conversation: Conversation, policies: Mapping[str, Policy]
) -> LearnedPrivately:
    """Enrol all clients, model outcomes, and choose the candidate with the largest noisy score.

    It is compared with the best arm. If it is the best arm, it is compared with the next best
    candidate.
    """
    _check_candidates(conversation.study, policies)
    started = start_privately(conversation)
    study, private = started.study, PrivateSetting(started.study)
    candidates = Candidates(study, policies)
    models = private.scales.parameters(started.fit.parameters)
    setting = started.setting(private, started.fit.parameters)
    names = candidates.names()
    asked: dict[str, Any] = packed([candidates.policies[name] for name in names], study)
    query = SumCandidates(models=models, **asked)
    scores = started.totals.required(query, "sums")
    order = [names[place] for place in np.argsort(-scores, kind="stable")]
    arms = {arm_name(action): action for action in study.actions}
    best_arm = next(name for name in order if name in arms)
    beside = best_arm if best_arm != order[0] else order[1]
    valued = _of_one_kind({name: candidates.policies[name] for name in (order[0], beside)}, arms)
    return LearnedPrivately(
        started.totals,
        setting,
        candidates.policies[order[0]],
        models,
        valued=valued,
        best_arm=arms[best_arm],
    )


def _check_candidates(study: Study, policies: Mapping[str, Policy]) -> None:
    rules = [name for name in study.candidates if name not in policies]
    if rules:
        raise OptionError(
            f"candidates: {quoted(rules)} is a function, and may look at many rows at once; with "
            "differential privacy candidates are linear policies and trees"
        )
    others = [
        name for name, own in policies.items() if not isinstance(own, LinearPolicy | TreePolicy)
    ]
    if others:
        raise OptionError(
            f"candidates: {quoted(others)} is neither linear nor a tree; with differential privacy "
            "others are not valued"
        )


def _of_one_kind(valued: dict[str, Policy], arms: Mapping[str, str]) -> dict[str, Policy]:
    """The policies, with arms as trees if one is a tree. So answers keep this order."""
    tree = next((own for own in valued.values() if isinstance(own, TreePolicy)), None)
    if tree is None:
        return valued
    return {
        name: arm_as_tree(tree, arms[name]) if name in arms else own for name, own in valued.items()
    }
