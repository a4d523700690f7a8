"""Learning with differential privacy: everything here is computed from noisy sums.

The first sums give models of every action's outcome. Each step then moves the models by their
residuals over propensities. So the models become doubly robust, although no scores are ever summed.

`csoaa-sgd` takes steps along noisy gradients (DP-SGD). The gradient of the least-squares loss on
doubly robust scores is a sum over rows, which may be sampled. A row contributes the residual of its
outcome, times features, over its propensity. No noisy matrix is inverted. This helps if noise is
large: steps are then short, and their mean has little noise.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.decompositions import eigvalsh, inv
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.messages.private.noised_sums import SumResiduals
from fedopl.policies.linear import LinearPolicy, constant_policy
from fedopl.policies.policy import Policy
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.value_tables import LEARNED, arm_name
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.private_totals import Totals, first_totals
from fedopl.solvers.averaged_rounds import AveragedRounds
from fedopl.solvers.private_regression import FirstFit, first_fit, stepped
from fedopl.study.private.private_setting import Bounds, PrivateSetting
from fedopl.study.study import Study


class LearnedPrivately(NamedTuple):
    """What was learned from noisy sums."""

    totals: Totals
    setting: Setting
    policy: Policy
    models: FloatArray  # (n_actions, n_columns), of outcomes in their own unit
    valued: Mapping[str, Policy]  # the learned policy first, then the policy it is compared with
    best_arm: str


class StartedPrivately(NamedTuple):
    """The first sums over all clients, and the first outcome models."""

    study: Study
    private: PrivateSetting
    totals: Totals
    fit: FirstFit

    @property
    def models(self) -> FloatArray:  # (n_actions, n_columns)
        """The first models, of outcomes in their own unit."""
        return self.private.scales.parameters(self.fit.parameters)

    def setting(self, parameters: FloatArray) -> Setting:
        """The setting with these models, given in units of the study."""
        rows, weights = self.totals.rows, self.totals.weights
        own = _score_sums(self.private, self.totals, parameters)
        statistics = ScoreStatistics(study=self.study, sums=own, rows=rows)
        return Setting(study=self.study, rows=rows, weights=weights, statistics=statistics)


def start_privately(conversation: Conversation) -> StartedPrivately:
    """Enrol all clients, and model every action's outcome from the first sums."""
    totals = first_totals(conversation)
    private = PrivateSetting(conversation.study)
    noise, total = private.first_noise.times(totals.noise), totals.total
    fit = first_fit(total.squares, total.products, noise, private.families)
    return StartedPrivately(conversation.study, private, totals, fit)


def learn_privately(conversation: Conversation) -> LearnedPrivately:
    """Enrol all clients, and learn a linear policy in a few steps from noisy sums."""
    started = start_privately(conversation)
    study, private, totals, fit = started
    if private.by_gradients:
        parameters = gradient_steps(conversation, private, fit, totals)
    else:
        parameters = _steps(private, fit, totals)
    raw = private.scales.parameters(parameters)
    policy = LinearPolicy(raw, study.actions, study.features, terms=study.terms)
    setting = started.setting(parameters)
    arm = constant_policy(setting.best_arm, study.actions, study.features)
    valued = {LEARNED: policy, arm_name(setting.best_arm): arm}
    return LearnedPrivately(totals, setting, policy, raw, valued, setting.best_arm)


def _steps(private: PrivateSetting, fit: FirstFit, totals: Totals) -> FloatArray:
    """The mean of the results of all steps, in units; each step starts from the mean so far.

    Each step has its own noise. The more steps share the privacy budget, the more noise each has.
    Their mean has as little noise as one step with the whole budget would have.
    """
    parameters = fit.parameters  # (n_actions, n_columns)
    # Rows are weighted so that each client counts as in the mixture.
    rows, noise = totals.rows, private.deviation("squares") * totals.noise
    per_row = {name: totals.weights[name] * sum(rows.values()) / rows[name] for name in rows}
    passed = share_passed(len(parameters), fit.n_terms)
    for step in range(private.plan.steps):
        query = SumResiduals(number=step, n_terms=fit.n_terms, parameters=parameters)
        ahead = stepped(parameters, totals.step(query, per_row), fit, passed=passed, noise=noise)
        parameters = parameters + (ahead - parameters) / (step + 1)
    return parameters


def _score_sums(
    private: PrivateSetting, totals: Totals, parameters: FloatArray
) -> dict[str, ScoreSums]:
    """Sums as if the models' predictions were the scores; any mixture has the same solution."""
    back = inv(private.scales.to_units)
    raw = private.scales.parameters(parameters)
    own = {}
    noise = private.first_noise.times(totals.noise_of_first)
    for name, answer in totals.first.items():
        fit = first_fit(answer.squares, answer.products, noise, private.families[-1:])
        gram = back @ (fit.square / fit.square[-1, -1]) @ back.T
        own[name] = ScoreSums(
            grams=gram[None],
            products=raw @ gram,
            squares=np.einsum("ai,ij,aj->a", raw, gram, raw),
            shares=np.ones(len(raw)),
        )
    return own


# The share of steps, at the start, that are left out of the mean.
_LEFT_OUT = 1 / 4
# How much noise shortens steps: if it is as large as the coefficients, 1 + this many times.
_SHORTER = 10.0


def gradient_steps(
    conversation: Conversation, private: PrivateSetting, fit: FirstFit, totals: Totals
) -> FloatArray:  # (n_actions, n_columns), in units
    """The mean of the parameters over all but the first steps; they start at zero."""
    rows, weights = totals.rows, totals.weights
    plan = conversation.study.linear.training
    rounds = AveragedRounds(fit.parameters.shape, plan.rounds, plan.momentum, "steps")
    per_row = {name: weights[name] / (private.plan.sampled * rows[name]) for name in rows}
    deviation = private.step_deviation(fit.n_terms) * np.linalg.norm(list(per_row.values()))
    length = plan.rate * _longest_step(fit, sum(rows.values()), float(deviation))
    for step in range(plan.rounds):
        query = SumResiduals(number=step, n_terms=fit.n_terms, parameters=rounds.parameters)
        rounds.move_to(rounds.parameters + length * totals.step(query, per_row))
    return rounds.mean_after(_LEFT_OUT)


def _longest_step(fit: FirstFit, n_rows: int, deviation: float) -> float:
    """The inverse of the loss's largest curvature, reduced if gradients have much noise.

    An action's coefficients together are about one in size. Noise is compared with that size.
    """
    curvature = float(eigvalsh(fit.square / n_rows)[-1])
    noise = (fit.n_terms + 1) * (deviation / curvature) ** 2
    passed = share_passed(len(fit.parameters), fit.n_terms)
    return 1 / (curvature * passed * (1 + _SHORTER * noise))


def share_passed(n_actions: int, n_terms: int) -> float:
    """About which share of a residual remains after clipping.

    Residuals are taken as normal, and actions as equally likely.
    """
    bound = Bounds(n_terms, n_actions).step / math.sqrt(n_terms + 1) / n_actions
    return math.erf(bound / math.sqrt(2))
