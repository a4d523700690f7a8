"""Values of policies by a further outcome, for which the study has a guardrail."""

from fedopl.client.answers.valuing.estimate_values import values_on_split
from fedopl.client.outcome_workspace import OutcomeWorkspace
from fedopl.client.workspace import Workspace
from fedopl.messages.evaluation.outcome_values import ValueOutcome
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.message import RowSplit
from fedopl.study.guardrail import guarded_columns


def answer(space: Workspace, query: ValueOutcome) -> Values:
    """The values by that outcome: of the query's policies, the logging policy and the local one."""
    outcome = guarded_columns(space.study)[query.outcome]
    return values_on_split(OutcomeWorkspace(space, outcome), query, RowSplit.EVALUATION)
