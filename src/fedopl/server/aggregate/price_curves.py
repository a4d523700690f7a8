"""A policy within a budget: clients report once what it gains and spends at several prices."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.policy_fields import fields_about
from fedopl.messages.evaluation.price_curve import N_TREES, PriceCurve, ValueSpending
from fedopl.policies.by_fold import ByFold
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.results.spending.budget_curve import BudgetCurve
from fedopl.results.spending.priced_trees import tree_path
from fedopl.results.spending.weighed_curve import ClientCurve
from fedopl.results.sums.tree_statistics import TreeStatistics
from fedopl.server.aggregate.placed_prices import placed_prices
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.study.mixture import renormalised
from fedopl.study.study import Study


def ask_for_curve(
    policy: LinearPolicy, valued: Policy | ByFold, setting: Setting, conversation: Conversation
) -> BudgetCurve:
    """What the policy gains and spends at every price, at each client, on rows it has not seen.

    It is valued as it is on held-out rows, or else by fold.
    """
    costs = _mean_costs(setting, _spent(setting.study))
    against = cheapest_action(setting)
    prices = _prices(policy, setting, costs)
    query = ValueSpending(prices=prices, against=against, **fields_about([valued], setting.study))
    answers = conversation.require_quorum(conversation.each(query, setting.weights))
    return curve_of(setting, prices.tolist(), against, answers)


def ask_for_tree_curve(
    statistics: TreeStatistics,
    as_valued: Callable[[Policy, float], Policy | ByFold],
    setting: Setting,
    conversation: Conversation,
) -> BudgetCurve:
    """What every tree that is best at some price gains and spends, on rows it has not seen.

    `as_valued` makes the policy at a price one by fold, where no rows are held out.
    """
    study, costs = setting.study, _spent(setting.study)[:, -1]
    against = _cheapest(setting, costs)
    path = tree_path(statistics, setting.weights, costs, N_TREES)
    # The query has a fixed number of trees, so the last one is repeated if there are fewer.
    trees = [as_valued(one.tree, one.price) for one in path]
    trees += [trees[-1]] * (N_TREES - len(path))
    query = ValueSpending(against=against, **fields_about(trees, study))
    answers = conversation.require_quorum(conversation.each(query, setting.weights))
    curve = curve_of(setting, [one.price for one in path], against, answers)
    return replace(curve, in_steps=True)


def cheapest_action(setting: Setting) -> int:
    """The action that gains are measured against: of the cheapest, the best for everybody."""
    return _cheapest(setting, _mean_costs(setting, _spent(setting.study)))


def _spent(study: Study) -> FloatArray:  # (n_actions, n_features + 1)
    assert study.budget is not None  # noqa: S101
    return study.budget.spent(study)


def curve_of(
    setting: Setting, prices: list[float], against: int, answers: Mapping[str, PriceCurve]
) -> BudgetCurve:
    """The curve of gains and costs at these prices, from the clients' answers."""
    actions = setting.study.actions
    return BudgetCurve(
        prices=tuple(prices),
        actions=actions,
        against=actions[against],
        clients={
            name: _told(answer, len(prices), len(actions))
            for name, answer in sorted(answers.items())
        },
        mixture=renormalised(setting.weights, answers.keys()),
    )


def _mean_costs(setting: Setting, spent: FloatArray) -> FloatArray:  # (n_actions,)
    """The mean cost of each action over the training rows."""
    means, _ = setting.statistics.term_moments(setting.weights)
    return np.asarray(spent[:, :-1] @ means[: spent.shape[1] - 1] + spent[:, -1])


def _cheapest(setting: Setting, costs: FloatArray) -> int:
    """Of the cheapest actions, the best for everybody on training rows."""
    values = setting.statistics.arm_values(setting.weights)
    known = np.isfinite(values)
    least = known & np.isclose(costs, costs[known].min())
    return int(np.argmax(np.where(least, values, -np.inf)))


def _prices(policy: LinearPolicy, setting: Setting, costs: FloatArray) -> FloatArray:
    """The prices at which the policy's decisions are expected to change, from the same sums."""
    means, covariances = setting.statistics.term_moments(setting.weights)
    known = np.isfinite(setting.statistics.arm_values(setting.weights))
    weights = policy.parameters[:, :-1]
    level = weights @ means + policy.parameters[:, -1]
    return placed_prices(level, weights @ covariances @ weights.T, costs, known)


def _told(answer: PriceCurve, n_prices: int, n_actions: int) -> ClientCurve:
    """One client's curve: at each price, for each action, and for what was done."""
    n_told = len(answer.means)
    wanted = np.r_[:n_prices, n_told - n_actions - 1 : n_told]
    means, covariances = answer.means[wanted], answer.covariances[wanted]
    each = (covariances[:, 0, 0], covariances[:, 0, 1], covariances[:, 1, 1])
    return ClientCurve(
        n_rows=answer.n_rows,
        of_rows=answer.of_rows,
        degrees_of_freedom=answer.degrees_of_freedom,
        gains=tuple(means[:, 0].tolist()),
        costs=tuple(means[:, 1].tolist()),
        variances=tuple(zip(*(column.tolist() for column in each), strict=True)),
    )
