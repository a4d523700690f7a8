"""What is asked about a target: the policy, models of outcomes, and regions to count rows in."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.evaluation.policy_fields import fields_about
from fedopl.messages.refusal import in_words
from fedopl.messages.target.context_moments import ContextMoments
from fedopl.messages.target.transported_values import TransportedValues
from fedopl.policies.by_fold import ByFold
from fedopl.policies.policy import Policy
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.target.unseen_regions import regions_for
from fedopl.solvers.fold_variances import enlarged
from fedopl.solvers.transport_sources import SourcePart
from fedopl.study.mixture import renormalised
from fedopl.study.study import Study


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

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of queries that carry it."""
        return {
            "models": np.where(np.isnan(self.models), 0.0, self.models),
            "regions": np.array([own for _, own in self.regions]),
            **fields_about([self.policy], self.setting.study),
        }

    def own_part(self, answer: TransportedValues) -> SourcePart:
        """What the target told; values are known of actions that have models."""
        modelled = ~np.isnan(self.models[0, :, 0])
        return replace(part_of(answer), known=np.array([True, *modelled]))


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


def across_folds(part: SourcePart, share: float, study: Study) -> SourcePart:
    """The part with variances as large as they should be if versions differ in this share of rows.

    These are versions of the policy, which comes before the actions; an action has none.
    """
    apart = np.zeros_like(part.covariances)
    apart[0], apart[:, 0] = share, share
    are_linear = study.policy.kind == "linear"
    return replace(part, covariances=enlarged(part.covariances, apart, are_linear=are_linear))


def silence(conversation: Conversation, client: str) -> str:
    """Why the target did not answer the latest question."""
    latest = conversation.rounds[-1]
    if client in latest.refused:
        refused = in_words(latest.refused[client])
        return f"the target refused ({latest.refused[client]}): {refused.why}"
    if client in latest.rejected:
        return f"the target's answer could not be used: {latest.rejected[client]}"
    return "the target did not answer"
