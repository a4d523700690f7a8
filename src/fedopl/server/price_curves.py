"""A policy within a budget: clients report once what policies gain and spend at several prices.

They do so on rows that the policies have not seen: held-out rows, or all rows fold by fold.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.policy_fields import fields_about, valued_split
from fedopl.messages.evaluation.policy_values import N_PRICES, N_TREES, Value, ValuesByPart
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import ByFold, Policy
from fedopl.results.spending.budget_curve import BudgetCurve, ClientCurve
from fedopl.results.spending.priced_policies import corners, tree_path
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.results.sums.tree_statistics import TreeStatistics
from fedopl.results.value_tables import arm_name
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.learn_by_fold import learn_by_fold
from fedopl.study.mixture import renormalised
from fedopl.study.study import Study

# At the highest price hardly anybody gets an action that costs more. It is this many times the root
# mean square of effects per cost; larger effects are rare.
_HIGHEST_EFFECTS = 8.0
# Degrees of freedom of Student's t: some rows gain far more for their cost than others do.
_FREEDOM = 3.0
_N_QUANTILES = 4 * N_PRICES
# A price exceeds the one before by at least this share of the highest price.
_LEAST_STEP = 1e-9


def linear_curve(policy: LinearPolicy, setting: Setting, conversation: Conversation) -> BudgetCurve:
    """What the policy gains and spends at every price, at each client."""
    prices = _placed_prices(policy, setting)
    fields = fields_about([_as_valued(policy, 0.0, setting)], setting.study)
    told = _ask(setting, conversation, prices=prices, **fields)
    return _curve(told, range(len(prices)), prices.tolist(), setting)


def tree_curve(
    statistics: TreeStatistics, setting: Setting, conversation: Conversation
) -> BudgetCurve:
    """What every tree that is best at some price gains and spends."""
    costs = _spent(setting.study)[:, -1]
    path = tree_path(statistics, setting.weights, costs, N_TREES)
    asked = [_as_valued(one.tree, one.price, setting) for one in path]
    # The query has a fixed number of trees, so the last one is repeated if there are fewer.
    asked += [asked[-1]] * (N_TREES - len(path))
    told = _ask(setting, conversation, **fields_about(asked, setting.study))
    curve = _curve(told, range(len(path)), [one.price for one in path], setting)
    return replace(curve, in_steps=True)


def candidate_curve(
    statistics: FiniteStatistics,
    known: Mapping[str, Policy],
    setting: Setting,
    conversation: Conversation,
) -> tuple[BudgetCurve, dict[str, float]]:
    """What the candidates that are best at some price gain and spend, and what each spends.

    Candidates are the same in all folds.
    """
    arms = [arm_name(action) for action in setting.study.actions]
    names = [*(name for name in statistics.names if name not in arms), *arms]
    named = names[: -len(arms)]
    told = _ask(setting, conversation, **fields_about(named, setting.study, known))
    shares = renormalised(setting.weights, told.keys())
    each = [shares[name] * answer.means[0, :, 1] for name, answer in sorted(told.items())]
    costs = dict(zip(names, np.sum(each, axis=0).tolist(), strict=False))  # last, what was done
    worth = replace(statistics, costs=costs).worth(setting.weights)
    places, prices = corners(worth, [*costs.values()])
    curve = _curve(told, places, prices, setting)
    return replace(curve, in_steps=True, names=tuple(names[place] for place in places)), costs


def _as_valued(policy: Policy, price: float, setting: Setting) -> Policy | ByFold:
    """The policy at a price, by fold where no rows are held out."""
    cross_fitted = setting.study.evaluation.is_cross_fitted
    return learn_by_fold(setting, price) if cross_fitted else policy


def _ask(setting: Setting, conversation: Conversation, **fields: Any) -> Mapping[str, ValuesByPart]:
    """What clients say that these policies gain over the cheapest action, and spend."""
    split, against = valued_split(setting.study), _cheapest_action(setting)
    query = Value(split=split, against=against, **fields)
    return conversation.require_quorum(conversation.each(query, setting.weights))


def _curve(
    told: Mapping[str, ValuesByPart],
    places: Sequence[int],
    prices: Sequence[float],
    setting: Setting,
) -> BudgetCurve:
    """The curve of the policies at these places of answers, each best from its price on."""
    actions = setting.study.actions

    def of(answer: ValuesByPart) -> ClientCurve:
        """At each price, for each action, and for what was done."""
        n_told = answer.means.shape[1]
        wanted = [*places, *range(n_told - len(actions) - 1, n_told)]
        means, squares = answer.means[0, wanted], answer.covariances[0, wanted]
        return ClientCurve(
            n_rows=int(answer.n_rows.min()),
            of_rows=int(answer.of_rows[0]),
            degrees_of_freedom=int(answer.degrees_of_freedom.min()),
            gains=tuple(means[:, 0].tolist()),
            costs=tuple(means[:, 1].tolist()),
            variances=tuple(map(tuple, squares[:, [0, 0, 1], [0, 1, 1]].tolist())),
        )

    return BudgetCurve(
        prices=tuple(prices),
        actions=actions,
        against=actions[_cheapest_action(setting)],
        clients={name: of(answer) for name, answer in sorted(told.items())},
        mixture=renormalised(setting.weights, told.keys()),
    )


def _cheapest_action(setting: Setting) -> int:
    """The action that gains are measured against: of the cheapest, the best on training rows."""
    costs, values = _mean_costs(setting), setting.statistics.arm_values(setting.weights)
    known = np.isfinite(values)
    least = known & np.isclose(costs, costs[known].min())
    return int(np.argmax(np.where(least, values, -np.inf)))


def _mean_costs(setting: Setting) -> FloatArray:  # (n_actions,)
    """The mean cost of each action over the training rows."""
    spent = _spent(setting.study)
    means, _ = setting.statistics.term_moments(setting.weights)
    return np.asarray(spent[:, :-1] @ means[: spent.shape[1] - 1] + spent[:, -1])


def _spent(study: Study) -> FloatArray:  # (n_actions, n_features + 1)
    assert study.budget is not None  # noqa: S101
    return study.budget.spent(study)


# --- prices -----------------------------------------------------------------------------------


def _placed_prices(policy: LinearPolicy, setting: Setting) -> FloatArray:  # (N_PRICES,)
    """The prices at which the policy's decisions are expected to change, from the same sums.

    Between any two neighbouring prices, the decision changes in about as many rows. A row gets b
    instead of a while the price is below (τ_b(x) − τ_a(x)) / (c_b − c_a). The means and variances
    of these ratios follow from the sums that the policy was learned from. Prices are quantiles of
    distributions with these means and variances.
    """
    from scipy.special import stdtrit  # here, as it is slow to import

    terms, costs = setting.statistics.term_moments(setting.weights), _mean_costs(setting)
    known = np.isfinite(setting.statistics.arm_values(setting.weights))
    weights = policy.parameters[:, :-1]
    means = weights @ terms[0] + policy.parameters[:, -1]
    covariances = weights @ terms[1] @ weights.T
    cheap, dear = np.nonzero(known[:, None] & known & (costs[:, None] < costs))
    apart = costs[dear] - costs[cheap]
    variances = np.diagonal(covariances)
    spread = variances[dear] + variances[cheap] - 2 * covariances[dear, cheap]
    level, width = (means[dear] - means[cheap]) / apart, np.sqrt(np.maximum(spread, 0.0)) / apart
    top = _HIGHEST_EFFECTS * float(np.hypot(level, width).max(initial=0.0)) or 1.0
    ranks = (np.arange(_N_QUANTILES) + 0.5) / _N_QUANTILES
    points = (level[:, None] + width[:, None] * stdtrit(_FREEDOM, ranks)).ravel()
    points = points[(points > 0) & (points < top)]
    # If no row is expected to pay any price, put more prices near zero.
    points = points if len(points) else top * np.geomspace(1e-3, 1.0, N_PRICES)[:-1]
    between = np.quantile(points, (np.arange(N_PRICES - 2) + 0.5) / (N_PRICES - 2))
    prices = np.concatenate([[0.0], between, [top]])
    # A price that equals the one before is raised by a small step.
    steps = _LEAST_STEP * top * np.arange(N_PRICES)
    found: FloatArray = np.maximum.accumulate(prices - steps) + steps
    return found
