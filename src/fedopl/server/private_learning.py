"""Learning with differential privacy: everything here is a function of sums that came with noise.

First sums give models of every action's outcome. Each step then moves them by what they leave of
outcomes, over propensities: so they become doubly robust, without scores of rows ever being summed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import combined
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.messages.private.noised_sums import NoisedSums, SumPrivately
from fedopl.messages.private.noised_values import NoisedValues, ValuePrivately
from fedopl.messages.private.residual_step import SumResiduals
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.policy import Policy
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.answers import Answers
from fedopl.server.exchange.conversation import Conversation
from fedopl.solvers.private_regression import FirstFit, first_fit, stepped
from fedopl.study.mixture import Weights
from fedopl.study.privacy_plan import Bounds, Deviations, PrivacyPlan, Scales
from fedopl.study.study import Study

# How far a step goes: with more of them each goes less far, so that noise averages out.
_DAMPING = {1: 1.0, 2: 0.8, 3: 0.7, 4: 0.6}
_LEAST_DAMPING = 0.3
# One-sided: a variance with noise is taken to be larger than it seems, with 95 % confidence.
_MARGIN = 1.64


@dataclass(frozen=True, eq=False)
class PrivateStudy:
    """A study with differential privacy, and the sizes of its noise."""

    study: Study
    plan: PrivacyPlan
    bounds: Bounds
    scales: Scales
    deviations: Deviations

    @classmethod
    def of(cls, study: Study, plan: PrivacyPlan) -> Self:
        """By the study's settings alone."""
        bounds = Bounds(study.n_features, study.n_actions)
        found = plan.deviations(bounds, study.declared.overlap)
        return cls(study, plan, bounds, plan.scales(study.features), found)


def learn_privately(conversation: Conversation, plan: PrivacyPlan) -> tuple[Setting, LinearPolicy]:
    """Enrol everybody, learn a linear policy in a few steps, and say what the sums tell."""
    private = PrivateStudy.of(conversation.study, plan)
    rows, sums = _first_sums(conversation)
    weights = conversation.study.mixture.weights(rows)
    total = combined(sums, weights={})
    fit = first_fit(total.squares, total.products, private.deviations.first * math.sqrt(len(sums)))
    parameters = _steps(conversation, private, fit, rows, weights)
    statistics = _statistics(private, sums, parameters, rows)
    setting = Setting(study=conversation.study, rows=rows, weights=weights, statistics=statistics)
    raw = private.scales.parameters(parameters)
    return setting, LinearPolicy(raw, conversation.study.actions, conversation.study.features)


def _first_sums(conversation: Conversation) -> tuple[dict[str, int], Answers[NoisedSums]]:
    enrolled, sums = conversation.together(conversation.transport.clients, Enrol(), SumPrivately())
    both = conversation.drop(
        enrolled, lambda name, _: None if name in sums else "gave no first sums"
    )
    rows = {name: own.n_rows for name, own in conversation.require_quorum(both).items()}
    kept = conversation.drop(sums, lambda name, _: None if name in rows else "did not enrol")
    return rows, kept


def _steps(
    conversation: Conversation,
    private: PrivateStudy,
    fit: FirstFit,
    rows: Mapping[str, int],
    weights: Weights,
) -> FloatArray:  # (n_actions, n_columns), in units
    """The mean over the later half of the steps."""
    n_steps, parameters = private.plan.steps, fit.parameters
    damping = _DAMPING.get(n_steps, _LEAST_DAMPING)
    # A row counts in a step as its client does in the mixture.
    per_row = {name: weights[name] * sum(rows.values()) / rows[name] for name in rows}
    noise = private.deviations.first * math.sqrt(len(rows))
    passed = _passed(private)
    path = []
    for step in range(n_steps):
        answers = conversation.require_quorum(
            conversation.each(SumResiduals(number=step, parameters=parameters), rows)
        )
        present = sum(weights[name] for name in answers)
        total = sum(per_row[name] / present * own.residuals for name, own in answers.items())
        ahead = stepped(parameters, np.asarray(total), fit, passed=passed, noise=noise)
        parameters = parameters + damping * (ahead - parameters)
        path.append(parameters)
    mean: FloatArray = np.mean(path[n_steps // 2 :], axis=0)
    return mean


def _passed(private: PrivateStudy) -> float:
    """About how much of a residual passes its bound, if it is normal and actions equally likely."""
    size = math.sqrt(private.study.n_features + 1)
    bound = private.bounds.step / size / private.study.n_actions
    return math.erf(bound / math.sqrt(2))


def _statistics(
    private: PrivateStudy,
    sums: Mapping[str, NoisedSums],
    parameters: FloatArray,
    rows: Mapping[str, int],
) -> ScoreStatistics:
    """Sums as if scores were what the models say: they have the same solution for any mixture."""
    back = np.linalg.inv(private.scales.to_units)
    raw = private.scales.parameters(parameters)
    own = {}
    for name, answer in sums.items():
        fit = first_fit(answer.squares, answer.products, private.deviations.first)
        gram = back @ (fit.square / fit.square[-1, -1]) @ back.T
        own[name] = ScoreSums(
            grams=gram[None],
            products=raw @ gram,
            squares=np.einsum("ai,ij,aj->a", raw, gram, raw),
            shares=np.ones(len(raw)),
        )
    return ScoreStatistics(study=private.study, sums=own, rows=dict(rows))


def value_privately(
    conversation: Conversation, setting: Setting, policies: Mapping[str, Policy], models: FloatArray
) -> Answers[Values] | None:
    """What these policies are worth to every client, with errors that know of the noise."""
    study = conversation.study
    if study.privacy is None or not study.evaluation.share:
        return None
    private = PrivateStudy.of(study, study.privacy)
    numbers = np.stack([policy.numbers() for policy in policies.values()])
    answers = conversation.each(ValuePrivately(models=models, policies=numbers), setting.weights)
    found = {name: _values(private, own) for name, own in answers.items()}
    return Answers(answers.exchange, found)


def _values(private: PrivateStudy, own: NoisedValues) -> Values:
    """Means as outcomes are, and covariances with what noise adds to them."""
    n_rows, half = own.n_rows, private.scales.half_range
    means, seconds = own.sums / n_rows, own.squares / n_rows
    centred = seconds - np.outer(means, means)
    if private.plan.most_rows_per_person > 1:
        centred = seconds  # rows of a person are alike; how alike is not known
    size, vectors = np.linalg.eigh(centred)
    spread = (vectors * np.maximum(size, 0.0)) @ vectors.T
    noise = (private.deviations.values / n_rows) ** 2
    noise += _MARGIN * private.deviations.value_squares / n_rows**2
    covariances = spread / n_rows + noise * np.eye(len(means))
    return Values(
        n_rows=n_rows,
        of_rows=n_rows,
        degrees_of_freedom=n_rows - 1,
        means=half * means + private.scales.outcome_centre,
        covariances=half**2 * covariances,
    )
