"""The clients whose sums change the solution most, and the policies learned without each."""

import heapq
import math
from collections.abc import Collection, Mapping

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.policies.linear import LinearPolicy, constant_policy
from fedopl.policies.policy import Policy
from fedopl.results.reliance import follows_from_sums
from fedopl.results.spending.budget_curve import at_price
from fedopl.results.spending.priced_trees import tree_at
from fedopl.results.sums.any_mixture import Solved, Statistics
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.results.sums.tree_statistics import TreeStatistics
from fedopl.results.value_tables import arm_name
from fedopl.server.aggregate.setting import Setting, best_of_arms
from fedopl.server.learn_policy import Learned
from fedopl.server.policy_comparison import room_for_policies
from fedopl.solvers import least_squares
from fedopl.study.mixture import Weights, renormalised

# The most clients that are left out, one at a time; and the most that are examined to find them.
MOST_LEFT_OUT = 3
MOST_SCREENED = 100
MOST_BESIDE = 5  # policies that are valued only for this purpose


def screened(setting: Setting) -> list[str]:
    """The clients with the most weight and the largest scores.

    Only these are examined further, so that very many clients take little time.
    """
    weights, sums = setting.weights, setting.statistics.sums
    sizes = {
        name: weights.get(name, 0.0) * math.sqrt(float((own.squares * own.shares).sum()))
        for name, own in sums.items()
    }
    largest = heapq.nlargest(MOST_SCREENED, sorted(sizes), key=lambda name: sizes[name])
    return [name for name in largest if sizes[name] > 0]


def influential(gaps: Mapping[str, float], weights: Weights) -> list[str]:
    """The clients whose removal would change the exact solution most, largest change first.

    These are found from their gaps to the solution.
    """
    pulls = {name: gap * weights[name] / max(1 - weights[name], 1e-9) for name, gap in gaps.items()}
    return heapq.nlargest(MOST_LEFT_OUT, pulls, key=lambda name: (pulls[name], name))


def gaps_to_solution(setting: Setting) -> dict[str, float]:
    """How far each client's own sums are from the mixture's solution: |G_c θ_a − b_c(a)|.

    At the solution θ, the weighted gaps of all clients add up to zero. Gaps are in units of the
    features. They are those of `screened` clients; there are none without two such clients.
    """
    statistics, names = setting.statistics, screened(setting)
    if len(names) < 2:
        return {}
    policy = statistics.solve(setting.weights)
    usable = ~statistics.unknown(setting.weights)
    theta = least_squares.narrow(np.where(usable[:, None], policy.parameters, 0), statistics.blocks)
    gaps = {}
    for name in names:
        own = statistics.sums[name]
        gap = own.shares[:, None] * (_predicted(own.grams, theta) - own.products)
        scales = np.sqrt(np.diagonal(own.grams, axis1=1, axis2=2).max(axis=0))
        gaps[name] = float(np.linalg.norm((gap / np.where(scales > 0, scales, 1.0))[usable]))
    return gaps


def _predicted(grams: FloatArray, theta: FloatArray) -> FloatArray:  # shaped as theta
    """G θ_a for every action."""
    each = np.broadcast_to(grams, (len(theta), *grams.shape[1:]))
    predicted: FloatArray = np.einsum("aij,aj->ai", each, theta)
    return predicted


def without_each(learned: Learned) -> dict[str, Solved]:
    """By influential client, the policy that would be learned without it.

    No client is asked. So this works only for policies that the available sums determine.
    """
    setting, statistics = learned.setting, learned.statistics
    if statistics is None or not follows_from_sums(setting.study, learned.tree):
        return {}
    if setting.study.budget and isinstance(statistics, FiniteStatistics):
        return {}  # clients did not report what candidates spend on training rows
    found: dict[str, Solved] = {}
    for client in influential(gaps_to_solution(setting), setting.weights):
        others = [name for name in statistics.clients if name != client]
        if any(setting.weights.get(name, 0.0) > 0 for name in others):
            weights = renormalised({n: setting.weights.get(n, 0.0) for n in others}, others)
            found[client] = _at_its_price(statistics.restricted(others), weights, learned)
    return found


def _at_its_price(statistics: Statistics, weights: Weights, learned: Learned) -> Solved:
    """The policy for these weights, at the price of the learned policy if there is a budget."""
    study = learned.setting.study
    if study.budget and isinstance(statistics, TreeStatistics):
        return tree_at(statistics, weights, learned.price, study.budget.spent(study)[:, -1])
    policy = statistics.solve(weights)
    if study.budget is None or not isinstance(policy, LinearPolicy):
        return policy
    return at_price(policy, learned.price, study.budget.spent(study))


def asked_beside(
    setting: Setting, solved: Mapping[str, Solved], asked: Collection[str]
) -> dict[str, Policy]:
    """The policies without each client, and their best arms, as many as fit in the same query."""
    wanted: dict[str, Policy] = {}
    for client, policy in solved.items():
        if isinstance(policy, Policy):
            wanted[without(client)] = policy
        arm = best_arm_without(setting, client)
        wanted[arm_name(arm)] = constant_policy(arm, setting.study.actions, setting.study.features)
    new = [name for name in wanted if name not in asked]
    room = min(room_for_policies(setting, len(asked)), MOST_BESIDE)
    return {name: wanted[name] for name in new[:room]}


def best_arm_without(setting: Setting, client: str) -> str:
    """The best constant arm on the training rows of all others."""
    values = setting.statistics.arm_values_without(setting.weights, client)
    return best_of_arms(setting.study, values)


def without(client: str) -> str:
    """The name of the policy learned without this client, among the candidates."""
    return f"without {client}"
