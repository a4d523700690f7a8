"""Local steps on a policy's parameters (Algorithm 2), by ourselves or by Vowpal Wabbit."""

from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.workspace import Workspace
from fedopl.messages.learning.improved_policy import ImprovedPolicy, ImprovePolicy
from fedopl.messages.refusal import RefusalCode


def answer(space: Workspace, query: ImprovePolicy) -> ImprovedPolicy:
    """The parameters after the steps of one round."""
    plan, limits = space.study.linear.training, space.limits
    if not 0 <= query.round < plan.rounds:
        raise RefusedError(RefusalCode.MALFORMED)
    training = space.local_training
    rows = training.examples(space.whole, query.centre, query.scale)
    n_parameters = query.parameters.size if space.mask is None else int(space.mask.sum())
    n_used = min(len(rows.features), plan.batch_size * plan.local_steps)
    limits.check_parameters(n_parameters, n_used)
    if not training.batches.are_secret:
        # Whoever can tell what the batches hold could solve for rows, given enough rounds.
        limits.check_parameters(plan.rounds, len(rows.features))
    improved = training.improved(query.parameters, rows, query.round, space.mask)
    return ImprovedPolicy(parameters=improved)
