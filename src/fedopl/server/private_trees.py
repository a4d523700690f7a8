"""Trees with differential privacy: coarse tables choose questions, narrow bins choose thresholds.

Outcome models come from the first sums. Clients score their rows with these models, and add up
scores in tables of every two columns, with a few bins each. An exact search finds the best tree in
these tables. Then each threshold moves within half a unit to where the sums of narrow bins are
largest.
"""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.private.noised_cells import SumCellsPrivately
from fedopl.messages.private.noised_gains import LookPrivately
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Leaf, as_array
from fedopl.policies.trees.search import FIRST_ACTION
from fedopl.results.sums.tree_statistics import grown_tree
from fedopl.results.value_tables import LEARNED, arm_name
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.private_learning import LearnedPrivately, start_privately
from fedopl.server.private_totals import Totals
from fedopl.solvers.private_regression import agreeing_cells
from fedopl.study.private.private_setting import PrivateSetting


def learn_tree_privately(conversation: Conversation) -> LearnedPrivately:
    """Enrol all clients, model outcomes, and search for a tree in noisy sums."""
    started = start_privately(conversation)
    study, private = started.study, PrivateSetting(started.study)
    models = private.scales.parameters(started.fit.parameters)
    setting = started.setting(private, started.fit.parameters)
    query = SumCellsPrivately(models=models)
    means = private.scales.outcome_unit * started.totals.required(query, "cells")
    numbers = np.ones((private.tables.grid.n_cells, FIRST_ACTION + study.n_actions))
    numbers[:, FIRST_ACTION:] = agreeing_cells(means, private.tables.grid, private.tables.released)
    policy = grown_tree(study, private.tables.grid, numbers)
    policy = _moved(started.totals, policy, models)
    arm = arm_as_tree(policy, setting.best_arm)
    valued = {LEARNED: policy, arm_name(setting.best_arm): arm}
    return LearnedPrivately(started.totals, setting, policy, models, valued, setting.best_arm)


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
