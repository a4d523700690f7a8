"""Local steps on a policy's parameters (Algorithm 2), by ourselves or by Vowpal Wabbit."""

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.local.local_steps import Examples, improve
from fedopl.client.workspace import Workspace
from fedopl.messages.learning.improved_policy import ImprovedPolicy, ImprovePolicy
from fedopl.messages.refusal import RefusalCode


def answer(space: Workspace, query: ImprovePolicy) -> ImprovedPolicy:
    """The parameters after the steps of one round."""
    study, limits = space.study, space.limits
    plan = study.linear.training
    if not 0 <= query.round < plan.rounds:
        raise RefusedError(RefusalCode.MALFORMED)
    rows = space.examples(query.centre, query.scale)
    n_parameters = query.parameters.size if space.mask is None else int(space.mask.sum())
    n_used = min(len(rows.features), plan.batch_size * plan.local_steps)
    limits.check_parameters(n_parameters, n_used)
    if not space.batches.are_secret:
        # Whoever can tell what the batches hold could solve for rows, given enough rounds.
        limits.check_parameters(plan.rounds, len(rows.features))
    steps = _vowpal_steps if study.linear.oracle == "csoaa-vw" else _own_steps
    return ImprovedPolicy(parameters=steps(space, rows, query))


def _own_steps(space: Workspace, rows: Examples, query: ImprovePolicy) -> FloatArray:
    plan = space.study.linear.training
    decay = 1 / np.sqrt(1 + query.round / 4)
    picks = space.batches.of_round(query.round, len(rows.features), plan)
    return improve(query.parameters, rows, plan, space.mask, picks, float(decay))


def _vowpal_steps(space: Workspace, rows: Examples, query: ImprovePolicy) -> FloatArray:
    plan = space.study.linear.training
    rng = space.batches.generator(f"steps {query.round}")
    # Its labels have no room for row weights: heavier rows are drawn more often instead.
    shares = None if rows.weights is None else rows.weights / rows.weights.sum()
    drawn = rng.choice(len(rows.features), (plan.local_steps, plan.batch_size), p=shares)
    return space.vowpal(rows).improve(query.parameters, drawn)
