"""The value at a target where each source finds its own weights: one trip.

Nobody else ever chooses how much a row counts, sources can be compared at the same contexts, and
one that is left out need not be asked again.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from fedopl.messages.target.transported_values import TransportedValues, ValueAtTarget
from fedopl.results.target_value import AtTarget, TargetSource
from fedopl.server.target.target_question import TargetQuestion, across_folds, part_of, silence
from fedopl.server.target.unseen_regions import seen_in
from fedopl.solvers.transport_sources import Screened, SourcePart, screen, transported
from fedopl.study.mixture import Weights

DISAGREE = (
    "sources disagree about outcomes at the same contexts, and it is not known which of them the "
    "target is like"
)


def value_by_each(
    question: TargetQuestion, level: float, found: AtTarget
) -> tuple[AtTarget, SourcePart | None]:
    """Ask the target and all sources; what they say, and the values if there are any."""
    name, weights = question.client, question.setting.weights
    moments = question.moments
    query = ValueAtTarget(means=moments.means, squares=moments.squares, **question.fields)
    answers = question.conversation.each(query, [*weights, name])
    if name not in answers:
        return replace(found, why_not=silence(question.conversation, name)), None
    there = answers[name]
    told = {client: own for client, own in answers.items() if client != name}
    parts = {
        client: across_folds(part_of(own), own.apart, question.setting.study)
        for client, own in told.items()
        if own.released and own.known[0]
    }
    screened = screen(parts, level)
    used = {client: own for client, own in parts.items() if client not in screened.left_out}
    found = replace(
        found,
        effective_rows=float(sum(own.effective_rows for own in used.values())),
        sources=_sources(weights, told, parts, screened),
        regions=seen_in(question.regions, there, told),
    )
    if screened.disagree:
        found = replace(found, why_not=DISAGREE)
    values = transported(question.own_part(there), used) if used else None
    return found, values


def _sources(
    weights: Weights,
    told: Mapping[str, TransportedValues],
    parts: Mapping[str, SourcePart],
    screened: Screened,
) -> tuple[TargetSource, ...]:
    """Every source in the order of names, and why some do not count."""
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
