"""Candidates within a budget: clients report once what each candidate gains and spends."""

from dataclasses import replace

import numpy as np

from fedopl.messages.evaluation.price_curve import ValueSpending
from fedopl.results.spending.budget_curve import BudgetCurve
from fedopl.results.spending.priced_candidates import corners
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.results.value_tables import arm_name
from fedopl.server.aggregate.price_curves import cheapest_action, curve_of
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.policy_comparison import Candidates


def ask_for_candidates(
    statistics: FiniteStatistics,
    candidates: Candidates,
    setting: Setting,
    conversation: Conversation,
) -> BudgetCurve:
    """What each candidate that is best at some price gains and spends, on held-out rows."""
    study, against = setting.study, cheapest_action(setting)
    arms = [arm_name(action) for action in study.actions]
    named = [name for name in candidates.names() if name not in arms]
    query = ValueSpending(against=against, **candidates.fields(named))
    answers = conversation.require_quorum(conversation.each(query, setting.weights))
    told = curve_of(setting, [0.0] * len(named), against, answers)
    # Costs of each candidate, then of each action for everybody, then of what was done.
    costs = {name: np.array(own.costs) for name, own in told.clients.items()}
    mixed = np.sum([told.mixture[name] * own for name, own in costs.items()], axis=0)
    names = [*named, *arms]
    values = statistics.judged({name: setting.weights[name] for name in statistics.means})
    worth = [float(values[statistics.names.index(name)]) for name in names]
    places, prices = corners(worth, mixed[: len(names)].tolist())
    kept = [*places, *range(len(named), len(mixed))]
    clients = {name: own.at_places(kept) for name, own in told.clients.items()}
    return replace(
        told,
        prices=tuple(prices),
        clients=clients,
        in_steps=True,
        names=tuple(names[place] for place in places),
    )
