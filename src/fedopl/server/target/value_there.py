"""The value of the learned policy at a site that has only contexts, in two round trips.

First the target reports moments of its contexts. Then the target reports what models predict for
its contexts. At the same time every source weights its own rows so that they look like the
target's, and reports by how much scores differ from the models' predictions.

Each source finds its own weights. So nobody else chooses how much a row counts, sources can be
compared at the same contexts, and a source that is left out need not be asked again.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.estimates import Estimate
from fedopl.messages.refusal import in_words
from fedopl.messages.target.context_moments import TellContexts
from fedopl.messages.target.transported_values import TransportedValues, ValueAtTarget
from fedopl.policies.kinds import packed
from fedopl.results.record import Record
from fedopl.results.target_value import AtTarget, TargetSource
from fedopl.results.value_tables import arm_name
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.target.found_mixture import matched
from fedopl.server.target.unseen_regions import regions_for, seen_in
from fedopl.solvers.transport_sources import Screened, SourcePart, screen, transported
from fedopl.study.mixture import Weights
from fedopl.study.target_plan import TargetPlan

EXCHANGES = 2


def value_at_target(conversation: Conversation, setting: Setting, record: Record) -> AtTarget:
    """The value at the target, from questions to the target, then to it and all sources."""
    plan, policy = setting.study.target, record.policy
    assert plan is not None  # noqa: S101  (the caller has checked)
    name = plan.client
    moments = conversation.each(TellContexts(), [name]).get(name)
    if moments is None:
        return AtTarget(client=name, why_not=_silence(conversation, name))
    found = AtTarget(client=name, n_rows=moments.n_rows, **matched(setting, moments))
    if policy is None:
        why = "what was chosen is a rule in clients' code, which the target does not have"
        return replace(found, why_not=why)
    regions = regions_for(setting, moments)
    models = _models(setting)
    query = ValueAtTarget(
        models=np.where(np.isnan(models), 0.0, models),
        means=moments.means,
        squares=moments.squares,
        regions=np.array([own for _, own in regions]),
        **_packed(record, setting),
    )
    answers = conversation.each(query, [*setting.weights, name])
    if name not in answers:
        return replace(found, why_not=_silence(conversation, name))
    there = answers[name]
    told = {client: own for client, own in answers.items() if client != name}
    parts = {client: _part(own) for client, own in told.items() if own.released and own.known[0]}
    screened = screen(parts, plan.screen)
    used = {client: own for client, own in parts.items() if client not in screened.left_out}
    found = replace(
        found,
        effective_rows=float(sum(own.effective_rows for own in used.values())),
        sources=_sources(setting.weights, told, parts, screened),
        regions=seen_in(regions, there, told),
    )
    if why := _why_not(plan, found, screened):
        return replace(found, why_not=why)
    target = replace(_part(there), known=np.array([True, *~np.isnan(models[:, 0])]))
    return _with_values(found, transported(target, used), record)


def _silence(conversation: Conversation, client: str) -> str:
    """Why the target did not answer the latest question."""
    latest = conversation.rounds[-1]
    if client in latest.refused:
        refused = in_words(latest.refused[client])
        return f"the target refused ({latest.refused[client]}): {refused.why}"
    if client in latest.rejected:
        return f"the target's answer could not be used: {latest.rejected[client]}"
    return "the target did not answer"


def _packed(record: Record, setting: Setting) -> dict[str, Any]:
    """The fields of a query that hold the policy."""
    assert record.policy is not None  # noqa: S101  (the caller has checked)
    return packed([record.policy], setting.study)


def _models(setting: Setting) -> FloatArray:  # (n_actions, n_terms + 1)
    """Models of each action's scores in the mixture, on the chosen terms; NaN without scores.

    They follow from the sums that the policy was learned from, so no client is asked for them.
    """
    certain = replace(setting.statistics, taken=None)
    plain = certain.solve(setting.weights).parameters
    unknown = setting.statistics.unknown(setting.weights)
    return np.where(unknown[:, None], np.nan, plain)


def _part(answer: TransportedValues) -> SourcePart:
    return SourcePart(
        means=answer.means,
        covariances=answer.covariances,
        known=answer.known > 0,
        effective_rows=answer.effective_rows,
    )


def _sources(
    weights: Weights,
    told: Mapping[str, TransportedValues],
    parts: Mapping[str, SourcePart],
    screened: Screened,
) -> tuple[TargetSource, ...]:
    """All sources in the order of names, and why some are not used."""
    found = []
    for name in sorted(weights):
        own, part = told.get(name), parts.get(name)
        why = ""
        if own is None:
            why = "did not answer"
        elif not own.released:
            why = "no weights make its rows look like the target's without resting on too few"
        elif part is None:
            why = "has no scores of an action"
        elif name in screened.left_out:
            why = "its outcomes differ from the other sources' at the same contexts"
        found.append(
            TargetSource(
                client=name,
                n_rows=own.n_rows if own else 0,
                effective_rows=own.effective_rows if own else 0.0,
                correction=float(part.means[0]) if part else None,
                standard_error=math.sqrt(part.covariances[0, 0]) if part else None,
                chance=screened.chances.get(name),
                used=not why,
                why_not=why,
            )
        )
    return tuple(found)


def _why_not(plan: TargetPlan, found: AtTarget, screened: Screened) -> str:
    """Why no value can be given for the target; empty if one can."""
    if not any(source.used for source in found.sources):
        return "no source's rows can be made to look like the target's"
    if found.unseen:
        return "it has people whom hardly any source has seen"
    if found.effective_rows < plan.least_rows:
        return (
            f"the sources' rows that look like the target's come to {found.effective_rows:,.0f} "
            f"effective rows, and the study requires {plan.least_rows}"
        )
    if screened.disagree:
        return (
            "sources disagree about outcomes at the same contexts, and it is not known which "
            "of them the target is like"
        )
    return ""


def _with_values(found: AtTarget, values: SourcePart, record: Record) -> AtTarget:
    study = record.study
    freedom = max(int(found.effective_rows) - 1, 1)

    def estimate(contrast: FloatArray, sign: float = 1.0) -> Estimate:
        variance = float(contrast @ values.covariances @ contrast)
        return Estimate(
            value=sign * float(contrast @ values.means),
            standard_error=math.sqrt(max(variance, 0.0)),
            n_rows=found.n_rows,
            degrees_of_freedom=freedom,
        )

    columns = np.eye(study.n_actions + 1)
    names = [record.chosen, *map(arm_name, study.actions)]
    best = 1 + study.actions.index(record.best_arm)
    return replace(
        found,
        values={
            name: estimate(column, study.reward_sign)
            for name, column, known in zip(names, columns, values.known, strict=True)
            if known
        },
        gain=estimate(columns[0] - columns[best]) if values.known[best] else None,
    )
