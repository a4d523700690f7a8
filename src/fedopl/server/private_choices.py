"""Trees, or the best of named candidates and constant arms, by noisy sums of scores.

Outcome models come from the first sums. Clients score their rows with these models, and add up
scores of what each candidate decides; for a tree, in tables of every two columns, with a few bins
each. An exact search finds the best tree in these tables. Then each threshold moves within half a
unit to where the sums of narrow bins are largest.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.messages.private.noised_scores import LookPrivately, SumCandidates, SumCellsPrivately
from fedopl.policies.kinds import packed
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Leaf, as_array
from fedopl.policies.trees.search import FIRST_ACTION
from fedopl.results.sums.tree_statistics import grown_tree
from fedopl.results.value_tables import LEARNED, arm_name
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.policy_comparison import Candidates
from fedopl.server.private_learning import LearnedPrivately, start_privately
from fedopl.server.private_totals import Totals
from fedopl.solvers.private_regression import agreeing_cells
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study


def learn_tree_privately(conversation: Conversation) -> LearnedPrivately:
    """Enrol all clients, model outcomes, and search for a tree in noisy sums."""
    started = start_privately(conversation)
    study, private, totals, fit = started
    models, setting = started.models, started.setting(fit.parameters)
    means = totals.required(SumCellsPrivately(models=models), "cells")
    means = private.scales.outcome_unit * means
    numbers = np.ones((private.tables.grid.n_cells, FIRST_ACTION + study.n_actions))
    numbers[:, FIRST_ACTION:] = agreeing_cells(means, private.tables.grid, private.tables.released)
    policy = grown_tree(study, private.tables.grid, numbers)
    policy = _moved(totals, policy, models)
    arm = arm_as_tree(policy, setting.best_arm)
    valued = {LEARNED: policy, arm_name(setting.best_arm): arm}
    return LearnedPrivately(totals, setting, policy, models, valued, setting.best_arm)


def _moved(totals: Totals, policy: TreePolicy, models: FloatArray) -> TreePolicy:
    """The tree with thresholds moved to where they gain most; unchanged without a quorum."""
    study = totals.conversation.study
    look = PrivateSetting(study).tables.look(policy.root)
    if not look.moving:
        return policy
    gains = totals.wanted(LookPrivately(models=models, tree=as_array(look.root)), "gains")
    if gains is None:
        return policy
    return TreePolicy(look.moved(gains), study.actions, study.features, study.encoding)


def arm_as_tree(policy: TreePolicy, action: str) -> TreePolicy:
    """The policy that gives everybody this action, as a tree.

    So one field of a query can hold it together with another tree.
    """
    leaf = Leaf(policy.action_names.index(action))
    return TreePolicy(leaf, policy.action_names, policy.feature_names, policy.encoding)


def choose_privately(
    conversation: Conversation, policies: Mapping[str, Policy]
) -> LearnedPrivately:
    """Enrol all clients, model outcomes, and choose the candidate with the largest noisy score.

    It is compared with the best arm. If it is the best arm, it is compared with the next best
    candidate.
    """
    _check_candidates(conversation.study, policies)
    started = start_privately(conversation)
    study, models = started.study, started.models
    candidates = Candidates(study, policies)
    names = candidates.names()
    asked: dict[str, Any] = packed([candidates.policies[name] for name in names], study)
    query = SumCandidates(models=models, **asked)
    scores = started.totals.required(query, "sums")
    order = [names[place] for place in np.argsort(-scores, kind="stable")]
    arms = {arm_name(action): action for action in study.actions}
    best_arm = next(name for name in order if name in arms)
    beside = best_arm if best_arm != order[0] else order[1]
    valued = _of_one_kind({name: candidates.policies[name] for name in (order[0], beside)}, arms)
    setting, chosen = started.setting(started.fit.parameters), candidates.policies[order[0]]
    return LearnedPrivately(started.totals, setting, chosen, models, valued, arms[best_arm])


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
