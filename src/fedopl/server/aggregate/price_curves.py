"""A policy within a budget: clients are asked once what it gains and spends at prices."""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.price_curve import PriceCurve, ValuePrices, price_grid
from fedopl.policies.linear import LinearPolicy
from fedopl.results.spending.budget_curve import BudgetCurve, ClientCurve
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.study.mixture import renormalised

# At the highest price nearly nobody gets what costs more: effects so many times their root mean
# square are rare.
HIGHEST_EFFECTS = 8.0


def ask_for_curve(
    policy: LinearPolicy, setting: Setting, conversation: Conversation
) -> BudgetCurve:
    """What the policy gains and spends at every price, at each client, on held-out rows."""
    study = setting.study
    assert study.budget is not None  # noqa: S101
    spent = study.budget.spent(study)
    costs = _mean_costs(setting, spent)
    against = _cheapest(setting, costs)
    top = _highest_price(policy, setting, costs, against)
    query = ValuePrices(top=top, against=against, parameters=policy.numbers())
    answers = conversation.require_quorum(conversation.each(query, setting.weights))
    return BudgetCurve(
        prices=tuple(price_grid(top).tolist()),
        actions=study.actions,
        against=study.actions[against],
        clients={name: _told(answer) for name, answer in sorted(answers.items())},
        mixture=renormalised(setting.weights, answers.keys()),
    )


def _mean_costs(setting: Setting, spent: FloatArray) -> FloatArray:  # (n_actions,)
    """What each action would cost on average on the rows learned from."""
    means, _ = setting.statistics.term_moments(setting.weights)
    return np.asarray(spent[:, :-1] @ means[: spent.shape[1] - 1] + spent[:, -1])


def _cheapest(setting: Setting, costs: FloatArray) -> int:
    """Of the actions that cost least, the best for everybody on the rows learned from."""
    values = setting.statistics.arm_values(setting.weights)
    known = np.isfinite(values)
    least = known & np.isclose(costs, costs[known].min())
    return int(np.argmax(np.where(least, values, -np.inf)))


def _highest_price(
    policy: LinearPolicy, setting: Setting, costs: FloatArray, against: int
) -> float:
    """A price at which nearly nobody gets what costs more than the cheapest action."""
    means, covariances = setting.statistics.term_moments(setting.weights)
    known = np.isfinite(setting.statistics.arm_values(setting.weights))
    apart = policy.parameters - policy.parameters[against]
    level = apart[:, :-1] @ means + apart[:, -1]
    spread = np.einsum("aj,jk,ak->a", apart[:, :-1], covariances, apart[:, :-1])
    sizes = np.sqrt(level**2 + np.maximum(spread, 0.0))
    dearer = known & (costs > costs[against])
    prices = HIGHEST_EFFECTS * sizes[dearer] / (costs[dearer] - costs[against])
    return float(prices.max(initial=0.0)) or 1.0


def _told(answer: PriceCurve) -> ClientCurve:
    covariances = answer.covariances
    each = (covariances[:, 0, 0], covariances[:, 0, 1], covariances[:, 1, 1])
    return ClientCurve(
        n_rows=answer.n_rows,
        of_rows=answer.of_rows,
        degrees_of_freedom=answer.degrees_of_freedom,
        gains=tuple(answer.means[:, 0].tolist()),
        costs=tuple(answer.means[:, 1].tolist()),
        variances=tuple(zip(*(column.tolist() for column in each), strict=True)),
    )
