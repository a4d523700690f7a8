"""What policies do to a further outcome, which a guardrail is about."""

from fedopl.client.answers.valuing.estimate_values import values_on_split
from fedopl.client.outcome_workspace import OutcomeWorkspace
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.outcome_values import ValueOutcome
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.message import RowSplit
from fedopl.study.guardrail import guarded_columns


def answer(space: Workspace, query: ValueOutcome) -> Values:
    """As values of the outcome itself: the policies asked about, what was done, the local one."""
    outcome = guarded_columns(space.study)[query.outcome]
    return values_on_split(OutcomeWorkspace(space, outcome), query, RowSplit.EVALUATION)
