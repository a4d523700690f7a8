"""Learning with differential privacy: everything here is computed from noisy sums.

The first sums give models of every action's outcome. Each step then moves the models by their
residuals over propensities. So the models become doubly robust, although no scores are ever summed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.decompositions import inv
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.messages.private.residual_step import SumResiduals
from fedopl.policies.linear import LinearPolicy, constant_policy
from fedopl.policies.policy import Policy
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.value_tables import LEARNED, arm_name
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.private_gradients import gradient_steps, share_passed
from fedopl.server.private_totals import Totals, first_totals
from fedopl.solvers.private_regression import FirstFit, first_fit, stepped
from fedopl.study.private.private_setting import PrivateSetting
from fedopl.study.study import Study


class LearnedPrivately(NamedTuple):
    """What was learned from noisy sums."""

    totals: Totals
    setting: Setting
    policy: Policy
    models: FloatArray  # (n_actions, n_columns), of outcomes in their own unit
    valued: Mapping[str, Policy]  # the learned policy first, then the policy it is compared with
    best_arm: str


@dataclass(frozen=True, eq=False, kw_only=True)
class StartedPrivately:
    """The first sums over all clients, and the first outcome models."""

    study: Study
    totals: Totals
    fit: FirstFit

    def setting(self, private: PrivateSetting, parameters: FloatArray) -> Setting:
        """The setting with these models, given in units of the study."""
        rows, weights = self.totals.rows, self.totals.weights
        own = _score_sums(private, self.totals, parameters)
        statistics = ScoreStatistics(study=self.study, sums=own, rows=rows)
        return Setting(study=self.study, rows=rows, weights=weights, statistics=statistics)


def start_privately(conversation: Conversation) -> StartedPrivately:
    """Enrol all clients, and model every action's outcome from the first sums."""
    totals = first_totals(conversation)
    private = PrivateSetting(conversation.study)
    noise, total = private.first_noise.times(totals.noise), totals.total
    fit = first_fit(total.squares, total.products, noise, private.families)
    return StartedPrivately(study=conversation.study, totals=totals, fit=fit)


def learn_privately(conversation: Conversation) -> LearnedPrivately:
    """Enrol all clients, and learn a linear policy in a few steps from noisy sums."""
    started = start_privately(conversation)
    study, private = started.study, PrivateSetting(started.study)
    if private.by_gradients:
        parameters = gradient_steps(conversation, private, started.fit, started.totals)
    else:
        parameters = _steps(private, started.fit, started.totals)
    raw = private.scales.parameters(parameters)
    policy = LinearPolicy(raw, study.actions, study.features, terms=study.terms)
    setting = started.setting(private, parameters)
    arm = constant_policy(setting.best_arm, study.actions, study.features)
    valued = {LEARNED: policy, arm_name(setting.best_arm): arm}
    return LearnedPrivately(started.totals, setting, policy, raw, valued, setting.best_arm)


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
