"""How far a result rests on single clients: what it would be without each of them."""

from collections.abc import Mapping

import numpy as np

from fedopl.base.estimates import Estimate
from fedopl.messages.evaluation.policy_values import Values
from fedopl.results.reliance import LeftOut, Reliance
from fedopl.results.sums.any_mixture import Solved
from fedopl.results.value_tables import valued_as
from fedopl.server.aggregate.evaluation import mixture_estimate
from fedopl.server.learn_policy import Learned
from fedopl.server.reliance.contradictions import (
    MeanAndVariance,
    contradictions,
    outlying_gains,
    outlying_sums,
)
from fedopl.server.reliance.influential import (
    best_arm_without,
    gaps_to_solution,
    influential,
    valued_arm,
    valued_arm_without,
    without,
)

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
