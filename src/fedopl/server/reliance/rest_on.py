"""How far a result rests on single clients, and whose answers contradict each other or all others'.

Contradictions are warnings, not proofs. Values and sums are about two random parts of the same
table, or about all of it. So a constant arm has about the same value on both, up to a few standard
errors. So does the mean outcome.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from fedopl.base.estimates import Estimate
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.results.reliance import Contradiction, LeftOut, Reliance
from fedopl.results.sums.any_mixture import Solved
from fedopl.results.value_tables import LOGGING, arm_name, valued_as
from fedopl.server.aggregate.evaluation import mixture_estimate
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.outlying_steps import BY_MEDIAN_DEVIATION, outlying_lengths
from fedopl.server.learn_policy import Learned
from fedopl.server.reliance.influential import (
    best_arm_without,
    gaps_to_solution,
    influential,
    valued_arm,
    valued_arm_without,
    without,
)

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
                mean, variance = _of_scores(sums, action)
                yield from _apart(what, values, place, (sign * mean, variance), n_training)
        if client in outcomes:
            what, place = (client, "its mean outcome"), places[LOGGING]
            mean, variance = outcomes[client]
            yield from _apart(what, values, place, (sign * mean, variance), n_training)


def _of_scores(sums: ScoreSums, action: int) -> MeanAndVariance:
    mean = float(sums.products[action, -1])
    return mean, max(float(sums.squares[action]) - mean**2, 0.0)


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
