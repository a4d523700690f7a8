"""Learning with differential privacy: everything here is a function of sums that came with noise.

First sums give models of every action's outcome. Each step then moves them by what they leave of
outcomes, over propensities: so they become doubly robust, without scores of rows ever being summed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import FloatArray
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
    """What was learned from sums with noise."""

    totals: Totals
    setting: Setting
    policy: Policy
    models: FloatArray  # (n_actions, n_columns), of outcomes, as these are
    valued: Mapping[str, Policy]  # itself by its name, and what it is compared with, in this order
    best_arm: str


@dataclass(frozen=True, eq=False, kw_only=True)
class StartedPrivately:
    """The first sums, and the clients they come from."""

    study: Study
    totals: Totals
    fit: FirstFit

    def setting(self, private: PrivateSetting, parameters: FloatArray) -> Setting:
        """Where the run stands, with these models, in units of the study."""
        rows, weights = self.totals.rows, self.totals.weights
        own = _score_sums(private, self.totals, parameters)
        statistics = ScoreStatistics(study=self.study, sums=own, rows=rows)
        return Setting(study=self.study, rows=rows, weights=weights, statistics=statistics)


def start_privately(conversation: Conversation) -> StartedPrivately:
    """Enrol all clients, and model every action's outcome from all first sums."""
    totals = first_totals(conversation)
    private = PrivateSetting(conversation.study)
    noise, total = private.first_noise.times(totals.noise), totals.total
    fit = first_fit(total.squares, total.products, noise, private.families)
    return StartedPrivately(study=conversation.study, totals=totals, fit=fit)


def learn_privately(conversation: Conversation) -> LearnedPrivately:
    """Enrol all clients, learn a linear policy in a few steps, and say what the sums show."""
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
    """The mean of where every step leads, each from the mean of those before, in units.

    Steps have noise of their own, and the more of them share what is promised, the more each has.
    Their mean has as little as one step with all of it would have.
    """
    parameters = fit.parameters  # (n_actions, n_columns)
    # A row counts in a step as its client does in the mixture.
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
    """Sums as if scores were what the models say: they have the same solution for any mixture."""
    back = np.linalg.inv(private.scales.to_units)
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
