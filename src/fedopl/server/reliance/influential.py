"""The clients whose sums change the solution most, and the policies learned without each."""

import heapq
import math
from collections.abc import Collection, Mapping

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.policies.linear import constant_policy
from fedopl.policies.policy import ByFold, Policy, Version
from fedopl.results.reliance import follows_from_sums
from fedopl.results.spending.priced_policies import solved_at
from fedopl.results.sums.any_mixture import Solved, Statistics
from fedopl.results.sums.statistics_by_fold import StatisticsByFold
from fedopl.results.value_tables import BEST_ARM, arm_name
from fedopl.server.aggregate.setting import Setting, best_of_arms
from fedopl.server.learn_by_fold import arms_by_fold, solved_by_fold
from fedopl.server.learn_policy import Learned
from fedopl.server.policy_comparison import room_for_policies
from fedopl.solvers import least_squares
from fedopl.study.mixture import Weights, renormalised

# The most clients that are left out, one at a time; and the most that are examined to find them.
MOST_LEFT_OUT = 3
MOST_SCREENED = 100
MOST_BESIDE = 2 * MOST_LEFT_OUT  # policies that are valued only for this purpose


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
    setting, statistics = learned.setting, learned.to_value
    if statistics is None or not follows_from_sums(setting.study, learned.tree):
        return {}
    if setting.study.budget and setting.study.policy.compares_candidates:
        return {}  # clients did not report what candidates spend on training rows
    found: dict[str, Solved] = {}
    for client in influential(gaps_to_solution(setting), setting.weights):
        others = [name for name in statistics.clients if name != client]
        if any(setting.weights.get(name, 0.0) > 0 for name in others):
            found[client] = _solved(statistics.restricted(others), setting, learned.price)
    return found


def _solved(statistics: Statistics, setting: Setting, price: float) -> Solved:
    """The policy for the mixture of the clients of these statistics, for each fold if they are."""
    if isinstance(statistics, StatisticsByFold):
        return solved_by_fold(statistics, setting, price)
    weights = {name: setting.weights.get(name, 0.0) for name in statistics.clients}
    return solved_at(statistics, renormalised(weights, weights), price, setting.study)


def asked_beside(
    setting: Setting, solved: Mapping[str, Solved], asked: Collection[str]
) -> dict[str, Version | ByFold]:
    """The policies without each client, and their best arms, as many as fit in the same query."""
    wanted: dict[str, Version | ByFold] = {}
    for client, policy in solved.items():
        if not isinstance(policy, str):
            wanted[without(client)] = policy
        name, arm = valued_arm_without(setting, client)
        wanted[name] = arm
    new = [name for name in wanted if name not in asked]
    room = min(room_for_policies(setting, len(asked)), MOST_BESIDE)
    return {name: wanted[name] for name in new[:room]}


def best_arm_without(setting: Setting, client: str) -> str:
    """The best constant arm on the training rows of all others."""
    values = setting.statistics.arm_values_without(setting.weights, client)
    return best_of_arms(setting.study, values)


def valued_arm(setting: Setting, asked: Collection[str]) -> str:
    """The name of the best arm as it was valued: if folds differ, the one chosen fold by fold."""
    return BEST_ARM if BEST_ARM in asked else arm_name(setting.best_arm)


def valued_arm_without(setting: Setting, client: str) -> tuple[str, Policy | ByFold]:
    """The best arm without this client as it is valued, and its name: if folds differ, by fold."""
    study, arm = setting.study, best_arm_without(setting, client)
    by_fold = arms_by_fold(setting, client) if study.evaluation.is_cross_fitted else []
    if {arm, *by_fold} != {arm}:
        return f"best arm {without(client)}", ByFold(map(arm_name, by_fold))
    return arm_name(arm), constant_policy(arm, study.actions, study.features)


def without(client: str) -> str:
    """The name of the policy learned without this client, among the candidates."""
    return f"without {client}"
