"""Values of policies and their standard errors, from noisy sums of scores."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.decompositions import inv
from fedopl.base.labels import GLOBAL
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.private.noised_scores import (
    NoisedValues,
    ValueApart,
    ValuePrivately,
    ValuesApart,
)
from fedopl.policies.kinds import packed
from fedopl.policies.policy import Policy
from fedopl.server.aggregate.evaluation import ValuesWithNoise
from fedopl.server.exchange.answers import Answers
from fedopl.server.private_totals import Totals, UnderMasks
from fedopl.study.private.added_up import AddedUp
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study


def value_privately(
    totals: Totals, policies: Mapping[str, Policy], models: FloatArray
) -> Answers[Values] | None:
    """The values of these policies at every client, with errors that include the noise.

    Under masks, the values are those of all clients together, under the name GLOBAL. If the study
    says that values are also read for each client, those of the clients that answer are added.
    """
    conversation, study = totals.conversation, totals.conversation.study
    if not study.evaluation.share:
        return None
    asked: dict[str, Any] = packed(list(policies.values()), study)
    query = ValuePrivately(models=models, **asked)
    if isinstance(totals, UnderMasks):
        latest = len(conversation.rounds)
        apart = [ValueApart(models=models, **asked)] if ValueApart.needed(study) else []
        found, over, told = totals.sums_and_beside(query, *apart)
        # A client that was absent when weights were agreed has no weight, and is left out.
        each = {
            name: values_of(study, own)
            for one in told
            for name, own in one.items()
            if name in totals.weights
        }
        return Answers(latest, {GLOBAL: values_of_all(study, found, over), **each})
    answers = conversation.each(query, totals.weights)
    return Answers(answers.exchange, {name: values_of(study, own) for name, own in answers.items()})


def values_of(study: Study, own: NoisedValues | ValuesApart) -> ValuesWithNoise:
    """Means in the unit of the outcome, and unbiased covariances of them, noise included.

    If a person has several rows, their scores were added up before squaring. The squares are then
    reduced by too little for the mean, as if each person had one row: n ≤ Σ(rows of a person)².
    """
    private, apart = PrivateSetting(study), " apart" * isinstance(own, ValuesApart)
    n_rows, half = own.n_rows, private.scales.half_range
    deviation = private.deviation(f"values{apart}")
    back = half * inv(private.score_axes)  # undoes the scaling and the rotation
    means = own.sums / n_rows
    added = (deviation / n_rows) ** 2 * np.eye(len(means))
    # Squares of noisy means include the variance of the noise, so it is added back.
    spread = own.squares / n_rows - np.outer(means, means) + added
    n_units = n_rows / private.plan.most_rows_per_person  # at least
    return ValuesWithNoise(
        n_rows=n_rows,
        of_rows=n_rows,
        degrees_of_freedom=max(int(n_units) - 1, 0),
        means=back @ means + private.scales.outcome_centre,
        covariances=back @ (spread / n_rows + added) @ back.T,
        noise=back @ added @ back.T,
        doubt=private.deviation(f"value squares{apart}") / deviation**2,
    )


def values_of_all(study: Study, total: NoisedValues, together: AddedUp) -> ValuesWithNoise:
    """The same for all clients together; each client's own mean is not known.

    Let ρ be the weight of a row. The variance of Σρz is Σρ²z² minus what clients' own means
    explain, Σ(ρ_c·S_c)²/m_c. By Cauchy & Schwarz, this is at least (Σρ_c·S_c)²/Σm_c. Only the
    latter is subtracted, as if all rows came from one distribution. So intervals are wider if
    clients differ.
    """
    private, rows = PrivateSetting(study), together.counted(together.held_out)
    factor, weights = together.noise, together.of_held_out
    deviation = factor * private.deviation("values")
    n_rows, weight = sum(rows.values()), weights.total(rows)
    back = private.scales.half_range * inv(private.score_axes)
    unit, means = np.eye(len(total.sums)), total.sums / weight
    # Squares of noisy sums include the variance of the noise.
    taken_off = (np.outer(total.sums, total.sums) - deviation**2 * unit) / n_rows
    added = (deviation / weight) ** 2 * unit
    shares = {name: weights.by_client[name] / weights.scale for name in rows}
    squares, fourths = (
        sum(own**power * rows[name] for name, own in shares.items()) for power in (2, 4)
    )
    n_units = squares**2 / fourths / private.plan.most_rows_per_person  # effective, at least
    return ValuesWithNoise(
        n_rows=n_rows,
        of_rows=n_rows,
        degrees_of_freedom=max(int(n_units) - 1, 0),
        means=back @ means + private.scales.outcome_centre,
        covariances=back @ ((total.squares - taken_off) / weight**2 + added) @ back.T,
        noise=back @ added @ back.T,
        doubt=private.deviation("value squares") * factor / deviation**2,
    )
