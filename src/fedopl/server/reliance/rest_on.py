"""What a finished run depends on, from what was learned and from the last answers."""

from collections.abc import Mapping

from fedopl.messages.evaluation.policy_values import Values
from fedopl.results.reliance import Reliance
from fedopl.results.sums.any_mixture import Solved
from fedopl.results.value_tables import valued_as
from fedopl.server.learn_policy import Learned
from fedopl.server.reliance.contradictions import (
    MeanAndVariance,
    contradictions,
    outlying_gains,
    outlying_sums,
)
from fedopl.server.reliance.influential import gaps_to_solution, influential, valued_arm
from fedopl.server.reliance.left_out import WithoutOne

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
    one_less = WithoutOne(learned, answers, places)
    gaps = gaps_to_solution(setting)
    pulling = influential(gaps, setting.weights)
    judged = (one_less.judged(client, solved.get(client)) for client in pulling)
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
