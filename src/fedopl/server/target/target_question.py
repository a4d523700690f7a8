"""What is asked about a target: the policy, models of outcomes, and regions to count rows in."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.policy_fields import fields_about
from fedopl.messages.refusal import in_words
from fedopl.messages.target.context_moments import ContextMoments
from fedopl.messages.target.transported_values import TransportedValues, ValueAtTarget
from fedopl.policies.by_fold import ByFold
from fedopl.policies.policy import Policy
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.target.unseen_regions import regions_for
from fedopl.solvers.fold_variances import enlarged
from fedopl.solvers.transport_sources import SourcePart
from fedopl.study.mixture import renormalised


@dataclass(frozen=True, eq=False, kw_only=True)
class TargetQuestion:
    """A policy whose value at the target is asked for, however sources find their weights."""

    conversation: Conversation
    setting: Setting
    client: str  # the target
    moments: ContextMoments  # of the target's contexts
    regions: list[tuple[str, FloatArray]]
    models: FloatArray  # (n_versions, n_actions, n_terms + 1), NaN of an action that has none
    policy: Policy | ByFold

    def ask(
        self, shares: Mapping[str, float], **joint: Any
    ) -> tuple[TransportedValues | None, dict[str, TransportedValues]]:
        """What the target answers, and sources, which have these shares of all weight.

        With `joint`, weights are those that were found for all sources' rows together.
        """
        query = ValueAtTarget(
            models=np.where(np.isnan(self.models), 0.0, self.models),
            means=self.moments.means,
            squares=self.moments.squares,
            regions=np.array([own for _, own in self.regions]),
            **fields_about([self.policy], self.setting.study),
            **joint,
        )
        each = {**shares, self.client: 0.0 if joint else 1.0}
        queries = {client: replace(query, share=share) for client, share in each.items()}
        told = dict(self.conversation.apart(queries))
        return told.pop(self.client, None), told

    def own_part(self, answer: TransportedValues) -> SourcePart:
        """What the target told; values are known of actions that have models."""
        modelled = ~np.isnan(self.models[0, :, 0])
        return replace(part_of(answer), known=np.array([True, *modelled]))

    def across_folds(self, answer: TransportedValues) -> SourcePart:
        """What a source told, with variances as large as they should be across folds."""
        return self.widened(part_of(answer), answer.apart)

    def widened(self, part: SourcePart, share: float) -> SourcePart:
        """The same with variances for versions that differ in this share of rows.

        These are versions of the policy, which comes before the actions; an action has none.
        """
        apart = np.zeros_like(part.covariances)
        apart[0], apart[:, 0] = share, share
        are_linear = self.setting.study.policy.kind == "linear"
        wider = enlarged(part.covariances, apart, are_linear=are_linear)
        return replace(part, covariances=wider)


def question_about(
    conversation: Conversation,
    setting: Setting,
    client: str,
    moments: ContextMoments,
    policy: Policy | ByFold,
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


def _models(setting: Setting) -> FloatArray:  # (n_versions, n_actions, n_terms + 1)
    """Scores by the terms that were chosen, in the mixture; NaN of an action that has none.

    They follow from the sums that the policy was learned from, without each fold if that was. So no
    client is asked for them.
    """
    each, weights = [setting.statistics], setting.weights
    if setting.study.evaluation.is_cross_fitted:
        each = setting.without_each_fold
        weights = renormalised(weights, each[0].clients)
    plain = [replace(own, taken=None).solve(weights).parameters for own in each]
    unknown = np.any([own.unknown(weights) for own in each], axis=0)
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
