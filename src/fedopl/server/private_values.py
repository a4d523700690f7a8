"""What policies are worth, from sums of scores that came with noise, and how surely."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.private.noised_values import NoisedValues, ValuePrivately
from fedopl.policies.kinds import packed
from fedopl.policies.policy import Policy
from fedopl.privacy.score_axes import score_axes
from fedopl.server.aggregate.setting import Setting
from fedopl.server.aggregate.values_with_noise import ValuesWithNoise
from fedopl.server.exchange.answers import Answers
from fedopl.server.exchange.conversation import Conversation
from fedopl.study.private_setting import PrivateSetting
from fedopl.study.study import Study


def value_privately(
    conversation: Conversation, setting: Setting, policies: Mapping[str, Policy], models: FloatArray
) -> Answers[Values] | None:
    """What these policies are worth to every client, with errors that know of the noise."""
    study = conversation.study
    if not study.evaluation.share:
        return None
    asked: dict[str, Any] = packed(list(policies.values()), study)
    answers = conversation.each(ValuePrivately(models=models, **asked), setting.weights)
    return Answers(answers.exchange, {name: values_of(study, own) for name, own in answers.items()})


def values_of(study: Study, own: NoisedValues) -> ValuesWithNoise:
    """Means as outcomes are, and unbiased covariances of them, noise included.

    Of persons with several rows, scores were added up before they were squared. What is taken off
    squares for the mean is then too little, as if each had one row: n ≤ Σ(rows of a person)².
    """
    private = PrivateSetting(study)
    n_rows, half, deviation = own.n_rows, private.scales.half_range, private.deviation("values")
    back = half * np.linalg.inv(score_axes(study.declared.overlap or 1.0))  # half-ranges and turns
    means = own.sums / n_rows
    added = (deviation / n_rows) ** 2 * np.eye(len(means))
    # Squares of means have the noise in them, too.
    spread = own.squares / n_rows - np.outer(means, means) + added
    n_units = n_rows / private.plan.most_rows_per_person  # at least
    return ValuesWithNoise(
        n_rows=n_rows,
        of_rows=n_rows,
        degrees_of_freedom=max(int(n_units) - 1, 0),
        means=back @ means + private.scales.outcome_centre,
        covariances=back @ (spread / n_rows + added) @ back.T,
        noise=back @ added @ back.T,
        doubt=private.deviation("value squares") / deviation**2,
    )
