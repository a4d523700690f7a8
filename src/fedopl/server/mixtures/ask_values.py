"""Asking everybody what policies are worth, with the query that every run ends with."""

from collections.abc import Mapping, Sequence

from fedopl.base.errors import OptionError
from fedopl.messages.faults import fault_in_values
from fedopl.messages.vocabulary import N_OWN_CANDIDATES, EstimateValues, Split, Values
from fedopl.policies.packing import packed
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.mixtures.valued_groups import Ask, Askable


def asking(
    conversation: Conversation, clients: Sequence[str], split: Split = Split.EVALUATION
) -> Ask:
    """Values on rows of this split: one exchange for every batch of policies of one kind."""

    def ask(asked: Sequence[Askable]) -> Mapping[str, Values]:
        policies = [policy for policy in asked if not isinstance(policy, str)]
        kinds = {policy.kind for policy in policies}
        if len(kinds) != 1:
            raise OptionError(f"policies: expected one kind in a query, came {sorted(kinds)}")
        fields = packed(policies, conversation.study)
        told = conversation.ask(EstimateValues, clients, Values, split=split, **fields)
        expected = len(policies) + N_OWN_CANDIDATES
        return conversation.drop(told, lambda answer: fault_in_values(answer, expected))

    return ask
