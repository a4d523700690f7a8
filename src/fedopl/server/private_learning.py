"""Learning with differential privacy: everything here is a function of sums that came with noise.

First sums give models of every action's outcome. Each step then moves them by what they leave of
outcomes, over propensities: so they become doubly robust, without scores of rows ever being summed.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.combining import combined
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.messages.private.noised_sums import NoisedSums, SumPrivately
from fedopl.messages.private.residual_step import SumResiduals
from fedopl.messages.sensitivity import beyond_rows
from fedopl.policies.linear import LinearPolicy, constant_policy
from fedopl.policies.policy import Policy
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.value_tables import LEARNED, arm_name
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.answers import Answers
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.private_gradients import gradient_steps, share_passed
from fedopl.solvers.private_regression import FirstFit, first_fit, stepped
from fedopl.study.mixture import Weights
from fedopl.study.private_setting import PrivateSetting
from fedopl.study.study import Study


class LearnedPrivately(NamedTuple):
    """What was learned from sums with noise."""

    setting: Setting
    policy: Policy
    models: FloatArray  # (n_actions, n_columns), of outcomes, as these are
    valued: Mapping[str, Policy]  # itself by its name, and what it is compared with, in this order
    best_arm: str


@dataclass(frozen=True, eq=False, kw_only=True)
class StartedPrivately:
    """What the first sums tell, and whose they are."""

    study: Study
    rows: dict[str, int]
    weights: Weights
    sums: Answers[NoisedSums]
    fit: FirstFit

    def setting(self, private: PrivateSetting, parameters: FloatArray) -> Setting:
        """Where the run stands, with these models, in units of the study."""
        own = _score_sums(private, self.sums, parameters)
        statistics = ScoreStatistics(study=self.study, sums=own, rows=self.rows)
        return Setting(
            study=self.study, rows=self.rows, weights=self.weights, statistics=statistics
        )


def start_privately(conversation: Conversation) -> StartedPrivately:
    """Enrol everybody, and model every action's outcome from all first sums."""
    study, private = conversation.study, PrivateSetting(conversation.study)
    rows, sums = _first_sums(conversation)
    total = combined(sums, weights={})
    noise = private.first_noise.of_total(len(sums))
    fit = first_fit(total.squares, total.products, noise, private.families)
    weights = study.mixture.weights(rows)
    return StartedPrivately(study=study, rows=rows, weights=weights, sums=sums, fit=fit)


def learn_privately(conversation: Conversation) -> LearnedPrivately:
    """Enrol everybody, learn a linear policy in a few steps, and say what the sums tell."""
    study, private = conversation.study, PrivateSetting(conversation.study)
    started = start_privately(conversation)
    steps = gradient_steps if private.by_gradients else _steps
    parameters = steps(conversation, private, started.fit, started.rows, started.weights)
    raw = private.scales.parameters(parameters)
    policy = LinearPolicy(raw, study.actions, study.features, terms=study.terms)
    setting = started.setting(private, parameters)
    arm = constant_policy(setting.best_arm, study.actions, study.features)
    valued = {LEARNED: policy, arm_name(setting.best_arm): arm}
    return LearnedPrivately(setting, policy, raw, valued, setting.best_arm)


def _first_sums(conversation: Conversation) -> tuple[dict[str, int], Answers[NoisedSums]]:
    """Who takes part: whoever enrols, and gives sums that so many rows can have."""
    study = conversation.study
    enrolled, sums = conversation.together(conversation.transport.clients, Enrol(), SumPrivately())

    def fault_in(name: str, answer: NoisedSums) -> str | None:
        if name not in enrolled:
            return "did not enrol"
        return beyond_rows(answer, study, enrolled[name].n_rows)

    kept = conversation.require_quorum(conversation.drop(sums, fault_in))
    rows = {name: own.n_rows for name, own in enrolled.items() if name in kept}
    return rows, kept


def _steps(
    conversation: Conversation,
    private: PrivateSetting,
    fit: FirstFit,
    rows: Mapping[str, int],
    weights: Weights,
) -> FloatArray:  # (n_actions, n_columns), in units
    """The mean of where every step leads, each from the mean of those before.

    Steps have noise of their own, and the more of them share what is promised, the more each has.
    Their mean has as little as one step with all of it would have.
    """
    parameters = fit.parameters
    # A row counts in a step as its client does in the mixture.
    per_row = {name: weights[name] * sum(rows.values()) / rows[name] for name in rows}
    noise = private.deviation("squares") * math.sqrt(len(rows))
    passed = share_passed(len(parameters), fit.n_terms)
    for step in range(private.plan.steps):
        answers = conversation.require_quorum(
            conversation.each(
                SumResiduals(number=step, n_terms=fit.n_terms, parameters=parameters), rows
            )
        )
        present = sum(weights[name] for name in answers)
        total = sum(per_row[name] / present * own.residuals for name, own in answers.items())
        ahead = stepped(parameters, np.asarray(total), fit, passed=passed, noise=noise)
        parameters = parameters + (ahead - parameters) / (step + 1)
    return parameters


def _score_sums(
    private: PrivateSetting, sums: Mapping[str, NoisedSums], parameters: FloatArray
) -> dict[str, ScoreSums]:
    """Sums as if scores were what the models say: they have the same solution for any mixture."""
    back = np.linalg.inv(private.scales.to_units)
    raw = private.scales.parameters(parameters)
    own = {}
    for name, answer in sums.items():
        noise = private.first_noise
        fit = first_fit(answer.squares, answer.products, noise, private.families[-1:])
        gram = back @ (fit.square / fit.square[-1, -1]) @ back.T
        own[name] = ScoreSums(
            grams=gram[None],
            products=raw @ gram,
            squares=np.einsum("ai,ij,aj->a", raw, gram, raw),
            shares=np.ones(len(raw)),
        )
    return own
