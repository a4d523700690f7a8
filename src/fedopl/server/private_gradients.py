"""`csoaa-sgd` with differential privacy: steps along noisy gradients (DP-SGD).

The gradient of the least-squares loss on doubly robust scores is a sum over rows. A row contributes
the residual of its outcome, times features, over its propensity. Rows may be sampled. No noisy
matrix is inverted. This helps if noise is large: steps are then short, and their mean has little
noise.
"""

import math

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.decompositions import eigvalsh
from fedopl.messages.private.residual_step import SumResiduals
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.private_totals import Totals
from fedopl.solvers.averaged_rounds import AveragedRounds
from fedopl.solvers.private_regression import FirstFit
from fedopl.study.private.private_setting import Bounds, PrivateSetting

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
