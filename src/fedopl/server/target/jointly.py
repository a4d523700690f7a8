"""The value at a target under weights for all sources' rows together: two to nine trips.

Only all sources together look like the target, so sources cannot be compared with each other at
the same contexts, and none can be left out afterwards.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedopl.messages.target.joint_values import JointValues, ValueJointly
from fedopl.results.target_value import AtTarget, TargetSource
from fedopl.server.exchange.answers import Answers
from fedopl.server.target.joint_weights import (
    FEW_ROWS,
    NO_ANSWER,
    UNSCORED,
    JointWeights,
    find_joint_weights,
)
from fedopl.server.target.target_question import TargetQuestion, across_folds, part_of, silence
from fedopl.server.target.unseen_regions import seen_in
from fedopl.solvers.transport_sources import SourcePart, joint_correction, transported_by
from fedopl.theory.skew import skewness

_TOO_FAR = "all sources' rows together cannot be made to look like the target's"


def value_jointly(
    question: TargetQuestion, found: AtTarget, left_out: Mapping[str, TargetSource]
) -> tuple[AtTarget, SourcePart | None]:
    """Find the weights, then ask the target and all sources but those that are left out."""
    setting, name = question.setting, question.client
    asked = [client for client in setting.weights if client not in left_out]
    weights = find_joint_weights(question, asked)
    found = replace(found, balance="joint", n_steps=weights.n_steps, effective_rows=0.0)
    if weights.best is None or not weights.is_near:
        sources = _sources(question, asked, weights, {}, left_out)
        return replace(found, sources=sources, why_not=_why_not_near(weights)), None
    shares = weights.best.shares
    answers = _ask(question, weights)
    if name not in answers:
        return replace(found, why_not=silence(question.conversation, name)), None
    there = answers[name]
    told = {client: own for client, own in answers.items() if client != name}
    used = {client: own for client, own in told.items() if own.released and own.known[0]}
    found = replace(
        found,
        sources=_sources(question, asked, weights, told, left_out),
        regions=seen_in(question.regions, there, told),
    )
    if lacking := [client for client in shares if client not in used]:
        why = f"{', '.join(lacking)} answered while weights were found, but gave no values for them"
        return replace(found, why_not=why), None
    parts = {client: part_of(own) for client, own in used.items()}
    crossed = {client: own.crossed for client, own in used.items()}
    apart = sum(shares[client] * own.apart for client, own in used.items())
    correction = across_folds(joint_correction(parts, shares, crossed), apart, setting.study)
    found = replace(
        found,
        effective_rows=correction.effective_rows,
        mixture=dict(shares),
        skewness=skewness(shares, {client: setting.rows[client] for client in shares}),
        gap=weights.best.gap,
    )
    return found, transported_by(question.own_part(there), correction)


def _ask(question: TargetQuestion, weights: JointWeights) -> Answers[JointValues]:
    """Ask each source with its share of the weights, and the target, which has none of them."""
    assert weights.best is not None  # noqa: S101  (whoever asks has looked)
    units, best, fields = weights.units, weights.best, question.fields
    shares = {**best.shares, question.client: 0.0}
    return question.conversation.apart(
        {
            client: ValueJointly(
                share=share,
                centres=units.centres,
                scales=units.scales,
                slopes=best.slopes,
                **fields,
            )
            for client, share in shares.items()
        }
    )


def _why_not_near(weights: JointWeights) -> str:
    if weights.best is None:
        return "no source's rows can be made to look like the target's"
    return (
        "the sources' rows together cannot be made to look like the target's: a mean or a mean "
        f"square stays {weights.best.gap:.2g} standard deviations away"
    )


def _sources(
    question: TargetQuestion,
    asked: Sequence[str],
    weights: JointWeights,
    told: Mapping[str, JointValues],
    left_out: Mapping[str, TargetSource],
) -> tuple[TargetSource, ...]:
    """Every source in the order of names, and why some do not count."""
    shares = weights.best.shares if weights.best else {}
    found = dict(left_out)
    for name in asked:
        own = told.get(name)
        why = weights.left.get(name) or (_why_no_values(own) if told else _TOO_FAR)
        part = None
        if own and not why:
            part = across_folds(part_of(own), own.apart, question.setting.study)
        found[name] = TargetSource(
            client=name,
            n_rows=weights.rows.get(name, 0),
            effective_rows=own.effective_rows if own else 0.0,
            correction=float(part.means[0]) if part else None,
            standard_error=math.sqrt(part.covariances[0, 0]) if part else None,
            chance=None,
            used=part is not None,
            why_not=why,
            share=shares.get(name),
        )
    return tuple(found[name] for name in sorted(found))


def _why_no_values(answer: JointValues | None) -> str:
    if answer is None:
        return NO_ANSWER
    if not answer.released:
        return FEW_ROWS
    return "" if answer.known[0] else UNSCORED
