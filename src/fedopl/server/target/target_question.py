"""What is asked about a target: the policy, models of outcomes, and regions to count rows in."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.decompositions import symmetric_pinv
from fedopl.messages.about_target import ContextMoments, TransportedValues, ValueAtTarget
from fedopl.messages.evaluation.policy_fields import fields_about
from fedopl.messages.refusal import in_words
from fedopl.policies.policy import ByFold, Policy
from fedopl.results.target_value import TargetRegion
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.target.found_mixture import pooled_moments
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


def models_of(setting: Setting) -> FloatArray:  # (n_versions, n_actions, n_terms + 1)
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


# Standard deviations beyond which about half, a fifth and a tenth of the target's rows lie.
_BEYOND = {0.0: "half", 0.84: "fifth", 1.28: "tenth"}
_FAR = 1.28


def regions_for(setting: Setting, moments: ContextMoments) -> list[tuple[str, FloatArray]]:
    """Half-spaces in which the target has a good part of its rows, and sources may have few.

    Three lie in the direction in which the target differs most from the sources. This is the
    direction of a logistic classifier after its first step. One more is for the single feature in
    which the target extends furthest from the sources.
    """
    p = setting.study.n_features
    means, covariances = pooled_moments(setting)
    there = moments.means[:p]
    spread = np.sqrt(np.maximum(moments.squares[:p] - there**2, 0.0))
    own = np.sqrt(np.maximum(np.diagonal(covariances), 0.0))
    safe = np.where(own > 0, own, np.where(spread > 0, spread, 1.0))
    inverse = symmetric_pinv(covariances / np.outer(safe, safe), rcond=1e-10)
    apart = (there - means) / safe
    # For features that do not vary at the sources, the direction is the difference itself.
    direction = (inverse @ apart + np.where(own > 0, 0.0, apart)) / safe
    middle = float(direction @ there)
    width = math.sqrt(max(float(direction**2 @ spread**2), 0.0))
    found = [
        (
            f"roughly the {part} of the target that is furthest from the sources",
            np.append(direction, -(middle + beyond * width)),
        )
        for beyond, part in _BEYOND.items()
    ]
    reach = np.stack([apart - _FAR * spread / safe, apart + _FAR * spread / safe])
    side, place = np.unravel_index(np.argmax(np.abs(reach)), reach.shape)
    sign = 1.0 if side else -1.0
    cut = there[place] + sign * _FAR * spread[place]
    single = np.zeros(p + 1)
    single[place], single[-1] = sign, -sign * cut
    words = f"{setting.study.features[place]} {'above' if side else 'below'} {cut:.4g}"
    found.append((words, single))
    return found


def seen_in(
    regions: list[tuple[str, FloatArray]],
    there: TransportedValues,
    told: Mapping[str, TransportedValues],
) -> tuple[TargetRegion, ...]:
    """The share of the target, and the number of source rows, in each region."""
    return tuple(
        TargetRegion(
            words=words,
            share=float(there.shares[place]),
            source_rows=float(sum(told[n].shares[place] * told[n].n_rows for n in sorted(told))),
        )
        for place, (words, _) in enumerate(regions)
    )
