"""What is asked about a target: the policy, models of outcomes, and regions to count rows in."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.refusal import in_words
from fedopl.messages.target.context_moments import ContextMoments
from fedopl.messages.target.transported_values import TransportedValues
from fedopl.policies.kinds import packed
from fedopl.policies.policy import Policy
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.target.unseen_regions import regions_for
from fedopl.solvers.transport_sources import SourcePart


@dataclass(frozen=True, eq=False, kw_only=True)
class TargetQuestion:
    """A policy whose value at the target is asked for, however sources find their weights."""

    conversation: Conversation
    setting: Setting
    client: str  # the target
    moments: ContextMoments  # of the target's contexts
    regions: list[tuple[str, FloatArray]]
    models: FloatArray  # (n_actions, n_terms + 1), NaN of an action that has none
    policy: Policy

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of queries that carry it."""
        return {
            "models": np.where(np.isnan(self.models), 0.0, self.models),
            "regions": np.array([own for _, own in self.regions]),
            **packed([self.policy], self.setting.study),
        }

    def own_part(self, answer: TransportedValues) -> SourcePart:
        """What the target told; values are known of actions that have models."""
        modelled = ~np.isnan(self.models[:, 0])
        return replace(part_of(answer), known=np.array([True, *modelled]))


def question_about(
    conversation: Conversation,
    setting: Setting,
    client: str,
    moments: ContextMoments,
    policy: Policy,
) -> TargetQuestion:
    """The question about this policy."""
    return TargetQuestion(
        conversation=conversation,
        setting=setting,
        client=client,
        moments=moments,
        regions=regions_for(setting, moments),
        models=_models(setting),
        policy=policy,
    )


def _models(setting: Setting) -> FloatArray:  # (n_actions, n_terms + 1)
    """Scores by the terms that were chosen, in the mixture; NaN of an action that has none.

    They follow from the sums that the policy was learned from, so no client is asked for them.
    """
    certain = replace(setting.statistics, taken=None)
    plain = certain.solve(setting.weights).parameters
    unknown = setting.statistics.unknown(setting.weights)
    return np.where(unknown[:, None], np.nan, plain)


def part_of(answer: TransportedValues) -> SourcePart:
    """An answer as a part of the value."""
    return SourcePart(
        means=answer.means,
        covariances=answer.covariances,
        known=answer.known > 0,
        effective_rows=answer.effective_rows,
    )


def silence(conversation: Conversation, client: str) -> str:
    """Why the target did not answer the latest question."""
    latest = conversation.rounds[-1]
    if client in latest.refused:
        refused = in_words(latest.refused[client])
        return f"the target refused ({latest.refused[client]}): {refused.why}"
    if client in latest.rejected:
        return f"the target's answer could not be used: {latest.rejected[client]}"
    return "the target did not answer"
