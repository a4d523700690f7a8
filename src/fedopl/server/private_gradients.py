"""`csoaa-sgd` with differential privacy: steps along gradients that came with noise (DP-SGD).

A gradient of the least squares that doubly robust scores lead to is a sum of what models leave of
outcomes, times features, over propensities. Its rows may be sampled. Nothing with noise is
inverted, which pays where noise is large: steps then are short, and their mean has little of it.
"""

import math

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.private.residual_step import SumResiduals
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.private_totals import Totals
from fedopl.solvers.averaged_rounds import AveragedRounds
from fedopl.solvers.private_regression import FirstFit
from fedopl.study.private.private_setting import Bounds, PrivateSetting

# The share of steps that are left out of the mean, the first ones.
_LEFT_OUT = 1 / 4
# How much shorter steps are for noise in a gradient as large as what is to be learned.
_SHORTER = 10.0


def gradient_steps(
    conversation: Conversation, private: PrivateSetting, fit: FirstFit, totals: Totals
) -> FloatArray:  # (n_actions, n_columns), in units
    """The mean over all but the first steps, from where nothing is known."""
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
    """The inverse of the loss's largest curvature, less where gradients have much noise.

    Coefficients are about one in size, all of an action's together, and so is what noise is
    compared with.
    """
    curvature = float(np.linalg.eigvalsh(fit.square / n_rows)[-1])
    noise = (fit.n_terms + 1) * (deviation / curvature) ** 2
    passed = share_passed(len(fit.parameters), fit.n_terms)
    return 1 / (curvature * passed * (1 + _SHORTER * noise))


def share_passed(n_actions: int, n_terms: int) -> float:
    """About how much of a residual passes its bound, if it is normal and actions equally likely."""
    bound = Bounds(n_terms, n_actions).step / math.sqrt(n_terms + 1) / n_actions
    return math.erf(bound / math.sqrt(2))
