"""Asking everybody what policies are worth, with the query that every run ends with."""

from collections.abc import Mapping, Sequence

import numpy as np

from fedopl.base.errors import OptionError
from fedopl.messages.derived_sizes import no_policies
from fedopl.messages.faults import fault_in_values
from fedopl.messages.vocabulary import N_OWN_CANDIDATES, EstimateValues, Split, Values
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.mixtures.valued_groups import Ask, Askable
from fedopl.server.policy_comparison import FIELDS, policy_numbers


def asking(
    conversation: Conversation, clients: Sequence[str], split: Split = Split.EVALUATION
) -> Ask:
    """Values on rows of this split: one exchange for every batch of policies of one kind."""

    def ask(asked: Sequence[Askable]) -> Mapping[str, Values]:
        policies = [policy for policy in asked if not isinstance(policy, str)]
        kinds = {policy.kind for policy in policies}
        if len(kinds) != 1:
            raise OptionError(f"policies: expected one kind in a query, came {sorted(kinds)}")
        fields = no_policies(conversation.study)
        fields[FIELDS[kinds.pop()]] = np.stack([policy_numbers(policy) for policy in policies])
        told = conversation.ask(EstimateValues, clients, Values, split=split, **fields)
        expected = len(policies) + N_OWN_CANDIDATES
        return conversation.drop(told, lambda answer: fault_in_values(answer, expected))

    return ask
