"""Asking everybody what policies are worth, with the query that every run ends with."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedopl.base.errors import OptionError
from fedopl.messages.evaluation.policy_values import N_OWN_CANDIDATES, EstimateValues, Values
from fedopl.messages.message import RowSplit
from fedopl.policies.packing import packed
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.mixtures.valued_groups import Ask, Askable


def asking(
    conversation: Conversation, clients: Sequence[str], split: RowSplit = RowSplit.EVALUATION
) -> Ask:
    """Values on rows of this split: one exchange for every batch of policies of one kind."""

    def ask(asked: Sequence[Askable]) -> Mapping[str, Values]:
        policies = [policy for policy in asked if not isinstance(policy, str)]
        kinds = {policy.kind for policy in policies}
        if len(kinds) != 1:
            raise OptionError(f"policies: expected one kind in a query, came {sorted(kinds)}")
        fields: dict[str, Any] = packed(policies, conversation.study)
        return conversation.each(EstimateValues(split=split, **fields), clients)

    return ask


def picking(names: Sequence[str], answers: Mapping[str, Values]) -> Ask:
    """Values of any of the candidates, out of answers about all of them: nobody is asked."""
    own = range(len(names), len(names) + N_OWN_CANDIDATES)

    def pick(wanted: Sequence[object]) -> Mapping[str, Values]:
        places = [*(names.index(str(name)) for name in wanted), *own]
        return {client: _picked(values, places) for client, values in sorted(answers.items())}

    return pick


def _picked(values: Values, places: list[int]) -> Values:
    means, covariances = values.means[places], values.covariances[np.ix_(places, places)]
    return replace(values, means=means, covariances=covariances)
