"""How far a result rests on single clients, and whose answers contradict each other or all others'.

The clients whose sums change the solution most are left out in turn. What is learned without each
of them is valued on the rows of all others.

Contradictions are warnings, not proofs. Values and sums are about two random parts of the same
table, or about all of it. So a constant arm has about the same value on both, up to a few standard
errors. So does the mean outcome.
"""

import heapq
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

import numpy as np

from fedopl.base.estimates import Estimate
from fedopl.messages.evaluation.policy_values import Values
from fedopl.policies.linear import constant_policy
from fedopl.policies.policy import ByFold, Policy, Version
from fedopl.results.reliance import Contradiction, LeftOut, Reliance, follows_from_sums
from fedopl.results.spending.priced_policies import solved_at
from fedopl.results.sums.any_mixture import Solved, Statistics
from fedopl.results.value_tables import BEST_ARM, LOGGING, arm_name, valued_as
from fedopl.server.aggregate.evaluation import mixture_estimate
from fedopl.server.aggregate.setting import Setting, best_of_arms
from fedopl.server.exchange.cross_checks import BY_MEDIAN_DEVIATION, outlying_lengths
from fedopl.server.learn_by_fold import StatisticsByFold, arms_by_fold, solved_by_fold
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
        grams = np.broadcast_to(own.grams, (len(theta), *own.grams.shape[1:]))
        predicted = np.einsum("aij,aj->ai", grams, theta)
        gap = own.shares[:, None] * (predicted - own.products)
        scales = np.sqrt(np.diagonal(own.grams, axis1=1, axis2=2).max(axis=0))
        gaps[name] = float(np.linalg.norm((gap / np.where(scales > 0, scales, 1.0))[usable]))
    return gaps


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


MeanAndVariance = tuple[float, float]  # mean and variance

# Two means of the same client apart by more standard errors than this are no chance; nor is a gain
# that lies further from the other clients', in robust ones, where enough are compared.
MOST_ERRORS = 6.0
ENOUGH_CLIENTS = 5
# Scores on held-out rows vary as those on training rows do, but for chance, weights and groups.
LEAST_VARIANCE, MOST_VARIANCE = 1 / 30, 100.0
ENOUGH_ROWS = 20  # to speak of their variance
# The most contradictions that are kept, those of clients with the largest weight first.
MOST_KEPT = 20


def what_rests_on_whom(
    learned: Learned,
    solved: Mapping[str, Solved],
    answers: Mapping[str, Values],
    places: Mapping[str, int],
    outcomes: Mapping[str, MeanAndVariance],
) -> Reliance | None:
    """The result without each influential client, and which clients contradict themselves."""
    setting = learned.setting
    if len(setting.weights) < 2:
        return None
    gaps = gaps_to_solution(setting)
    pulling = influential(gaps, setting.weights)
    judged = (_without(one, solved.get(one), learned, answers, places) for one in pulling)
    found = [
        *contradictions(setting, answers, places, outcomes),
        *outlying_sums(gaps, setting.rows),
        *outlying_gains(
            answers, places, valued_as(learned.chosen, places), valued_arm(setting, places)
        ),
    ]
    found.sort(key=lambda one: (-setting.weights[one.client], one.client))
    return Reliance(
        left_out=tuple(one for one in judged if one is not None),
        contradictions=tuple(found[:MOST_KEPT]),
    )


def _without(
    client: str,
    solved: Solved | None,
    learned: Learned,
    answers: Mapping[str, Values],
    places: Mapping[str, int],
) -> LeftOut | None:
    """The result without this client; None if no other client reported values."""
    setting, chosen = learned.setting, valued_as(learned.chosen, places)
    others = {name: told for name, told in answers.items() if name != client}
    if not any(setting.weights[name] > 0 for name in others):
        return None
    now, (then, _) = valued_arm(setting, places), valued_arm_without(setting, client)
    instead = solved if isinstance(solved, str) else without(client)
    is_valued = solved is not None and instead in places
    units = np.eye(len(next(iter(others.values())).means))

    def gain(policy: str, against: str) -> Estimate | None:
        if policy == against:
            return None
        contrast = units[places[policy]] - units[places[against]]
        return mixture_estimate(others, setting.weights, contrast)

    changed = units[places[instead]] - units[places[chosen]] if is_valued else 0 * units[0]
    return LeftOut(
        client=client,
        weight=setting.weights[client],
        best_arm=best_arm_without(setting, client),
        gain=gain(chosen, now),
        gain_without=gain(instead, then if then in places else now) if is_valued else None,
        difference=gain(instead, chosen) if is_valued else None,
        better_off=sum(float(told.means @ changed) > 0 for told in others.values()),
        others=len(others),
    )


def contradictions(
    setting: Setting,
    answers: Mapping[str, Values],
    places: Mapping[str, int],
    outcomes: Mapping[str, MeanAndVariance],
) -> Iterator[Contradiction]:
    """All values that contradict the client's own sums or the mean outcome it reported before."""
    sign = setting.study.reward_sign  # results have the sign of the logged outcome
    permissions, actions = setting.study.permissions, setting.study.actions
    limited = permissions.limited(actions) if permissions else ()
    for client, answer in sorted(answers.items()):
        values = replace(answer, means=sign * answer.means)
        n_training = setting.rows[client]
        sums = setting.statistics.sums[client]
        for action, name in enumerate(actions):
            # If some may not get an arm, its value includes the actions given in its place.
            place = places.get(arm_name(name)) if name not in limited else None
            if place is not None and sums.shares[action] > 0:
                what = (client, f"the value of giving everybody '{name}'")
                mean = float(sums.products[action, -1])
                variance = max(float(sums.squares[action]) - mean**2, 0.0)
                yield from _apart(what, values, place, (sign * mean, variance), n_training)
        if client in outcomes:
            what, place = (client, "its mean outcome"), places[LOGGING]
            mean, variance = outcomes[client]
            yield from _apart(what, values, place, (sign * mean, variance), n_training)


def _apart(
    what: tuple[str, str], values: Values, place: int, expected: MeanAndVariance, n_training: int
) -> Iterator[Contradiction]:
    """A contradiction if means differ by more than chance, or else if variances differ too much."""
    (client, about), (mean, variance), n_rows = what, expected, values.n_rows
    reported, own = float(values.means[place]), float(values.covariances[place, place]) * n_rows
    # A client must not look more precise by reporting too small a variance, nor less precise by
    # reporting far too large a one.
    usual = variance if own > MOST_VARIANCE * variance else max(variance, own)
    error = math.sqrt(usual / n_rows + usual / n_training)
    if abs(reported - mean) > MOST_ERRORS * error + 1e-9 * (1 + abs(mean)):
        errors = abs(reported - mean) / error if error else math.inf
        yield Contradiction(
            client=client, about=about, reported=reported, implied=mean, deviations=errors
        )
    elif n_rows >= ENOUGH_ROWS and variance > 0:
        ratio = own / variance
        if not LEAST_VARIANCE < ratio < MOST_VARIANCE:
            yield Contradiction(
                client=client,
                about=f"how much {about} varies from row to row",
                reported=own,
                implied=variance,
                deviations=ratio,
            )


def outlying_gains(
    answers: Mapping[str, Values], places: Mapping[str, int], chosen: str, against: str
) -> Iterator[Contradiction]:
    """Clients at which the learned policy gains far more, or far less, than at most others."""
    if len(answers) < ENOUGH_CLIENTS or chosen == against:
        return
    names = sorted(answers)
    contrast = np.zeros(len(answers[names[0]].means))
    contrast[places[chosen]], contrast[places[against]] = 1.0, -1.0
    gains = np.array([answers[name].means @ contrast for name in names])
    variances = np.array([answers[name].variance(contrast) for name in names])
    middle = float(np.median(gains))
    spread = BY_MEDIAN_DEVIATION * float(np.median(np.abs(gains - middle)))
    usual = float(np.median(variances))
    for name, gain, variance in zip(names, gains.tolist(), variances.tolist(), strict=True):
        # A client's variance counts only from the usual one up to a multiple of it.
        error = math.sqrt(min(max(variance, usual), MOST_VARIANCE * usual) + spread**2)
        if abs(gain - middle) > MOST_ERRORS * error > 0:
            yield Contradiction(
                client=name,
                about="what the learned policy gains there over the best single action",
                reported=gain,
                implied=middle,
                deviations=abs(gain - middle) / error,
            )


def outlying_sums(gaps: Mapping[str, float], rows: Mapping[str, int]) -> Iterator[Contradiction]:
    """Clients whose sums are much further from the solution than those of most others."""
    if len(gaps) < ENOUGH_CLIENTS:
        return
    middle = float(np.median(list(gaps.values())))
    for name, times in sorted(outlying_lengths(gaps, rows).items()):
        yield Contradiction(
            client=name,
            about="how far its sums of scores are from everybody's solution",
            reported=gaps[name],
            implied=middle,
            deviations=times,
        )
