"""The result without one client, from values that clients reported with the learned policy's."""

from collections.abc import Mapping

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.estimates import Estimate
from fedopl.messages.evaluation.policy_values import Values
from fedopl.results.reliance import LeftOut
from fedopl.results.sums.any_mixture import Solved
from fedopl.results.value_tables import valued_as
from fedopl.server.aggregate.evaluation import mixture_estimate
from fedopl.server.learn_policy import Learned
from fedopl.server.reliance.influential import (
    best_arm_without,
    valued_arm,
    valued_arm_without,
    without,
)
from fedopl.study.mixture import Weights


class WithoutOne:
    """Values at all clients but one; `places` says where in an answer each policy's value is."""

    def __init__(
        self, learned: Learned, answers: Mapping[str, Values], places: Mapping[str, int]
    ) -> None:
        self._learned, self._answers, self._places = learned, answers, places

    def judged(self, client: str, solved: Solved | None) -> LeftOut | None:
        """The result without this client; None if no other client reported values."""
        setting, chosen = self._learned.setting, valued_as(self._learned.chosen, self._places)
        others = {name: reported for name, reported in self._answers.items() if name != client}
        if not others or not any(setting.weights[name] > 0 for name in others):
            return None
        now, (then, _) = valued_arm(setting, self._places), valued_arm_without(setting, client)
        instead = without(client) if not isinstance(solved, str) else solved
        is_valued = solved is not None and instead in self._places
        gain = self._contrast(chosen, now)
        changed = self._contrast(instead, chosen) if is_valued else None
        after = (
            self._contrast(instead, then if then in self._places else now) if is_valued else None
        )
        better_off = [name for name, reported in others.items() if _is_better(reported, changed)]
        return LeftOut(
            client=client,
            weight=setting.weights[client],
            best_arm=best_arm_without(setting, client),
            gain=_estimate(others, setting.weights, gain),
            gain_without=_estimate(others, setting.weights, after),
            difference=_estimate(others, setting.weights, changed),
            better_off=len(better_off),
            others=len(others),
        )

    def _contrast(self, policy: str, against: str) -> FloatArray | None:  # (n_candidates,)
        """The contrast of one policy's value with another's; None if they are the same policy."""
        if policy == against:
            return None
        size = len(next(iter(self._answers.values())).means)
        contrast = np.zeros(size)
        contrast[self._places[policy]] += 1
        contrast[self._places[against]] -= 1
        return contrast


def _is_better(reported: Values, contrast: FloatArray | None) -> bool:
    return contrast is not None and float(reported.means @ contrast) > 0


def _estimate(
    answers: Mapping[str, Values], weights: Weights, contrast: FloatArray | None
) -> Estimate | None:
    return None if contrast is None else mixture_estimate(answers, weights, contrast)
