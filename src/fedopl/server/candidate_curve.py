"""Candidates within a budget: clients report once what each candidate gains and spends."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedopl.messages.evaluation.policy_fields import fields_about
from fedopl.messages.evaluation.price_curve import ValueSpending
from fedopl.results.spending.budget_curve import BudgetCurve
from fedopl.results.spending.priced_candidates import corners
from fedopl.results.value_tables import arm_name
from fedopl.server.aggregate.price_curves import cheapest_action, curve_of
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.policy_comparison import Candidates


def ask_for_candidates(
    candidates: Candidates, setting: Setting, conversation: Conversation
) -> tuple[BudgetCurve, dict[str, float]]:
    """What each candidate gains and spends, and what it spends in the mixture.

    On held-out rows, or on all rows: candidates are the same in all folds.
    """
    study, against = setting.study, cheapest_action(setting)
    arms = [arm_name(action) for action in study.actions]
    named = [name for name in candidates.names() if name not in arms]
    fields = fields_about(named, study, candidates.known)
    query = ValueSpending(against=against, **fields)
    answers = conversation.require_quorum(conversation.each(query, setting.weights))
    told = curve_of(setting, [0.0] * len(named), against, answers)
    # Costs of each candidate, then of each action for everybody, then of what was done.
    each = (told.mixture[name] * np.array(own.costs) for name, own in told.clients.items())
    return told, dict(zip([*named, *arms], np.sum([*each], axis=0).tolist(), strict=False))


def at_corners(
    told: BudgetCurve, costs: Mapping[str, float], worth: Sequence[float]
) -> BudgetCurve:
    """The curve of those candidates that are best at some price, by what each is worth."""
    names, n_named = [*costs], len(costs) - len(told.actions)
    places, prices = corners(worth, [*costs.values()])
    kept = [*places, *range(n_named, len(costs) + 1)]
    return replace(
        told,
        prices=tuple(prices),
        clients={name: own.at_places(kept) for name, own in told.clients.items()},
        in_steps=True,
        names=tuple(names[place] for place in places),
    )
