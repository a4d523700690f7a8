"""What sources say of a policy at the target: each by weights of its own, or all by common ones.

Where each finds its own, sources can be compared at the same contexts, and one that is left out
need not be asked again. Where weights are found for all sources' rows together, only all of them
look like the target, so none can be compared, or left out afterwards.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from fedopl.messages.target.transported_values import TransportedValues
from fedopl.results.target_value import AtTarget, TargetSource
from fedopl.server.target.joint_weights import FEW_ROWS, NO_ANSWER, UNSCORED, find_joint_weights
from fedopl.server.target.target_question import TargetQuestion, part_of, silence
from fedopl.server.target.unseen_regions import seen_in
from fedopl.solvers.transport_sources import (
    SourcePart,
    combined_sources,
    joint_correction,
    screen,
    transported_by,
)
from fedopl.theory.skew import skewness

DISAGREE = (
    "sources disagree about outcomes at the same contexts, and it is not known which of them the "
    "target is like"
)
NOBODY = "no source's rows can be made to look like the target's"
_UNLIKE = "no weights make its rows look like the target's without resting on too few"
_DIFFERS = "its outcomes differ from the other sources' at the same contexts"
_ALL_UNLIKE = "all sources' rows together cannot be made to look like the target's"


def value_by_each(
    question: TargetQuestion, level: float, found: AtTarget
) -> tuple[AtTarget, SourcePart | None]:
    """Ask the target and all sources; what they say, and the values if there are any."""
    names = sorted(question.setting.weights)
    there, told = question.ask(dict.fromkeys(names, 1.0))
    if there is None:
        return replace(found, why_not=silence(question.conversation, question.client)), None
    why = {name: _why_no_values(told.get(name), _UNLIKE) for name in names}
    parts = {name: question.across_folds(own) for name, own in told.items() if not why[name]}
    screened = screen(parts, level)
    why |= dict.fromkeys(screened.left_out, _DIFFERS)
    used = {name: own for name, own in parts.items() if not why[name]}
    found = replace(
        found,
        effective_rows=float(sum(own.effective_rows for own in used.values())),
        sources=tuple(
            _source(n, told.get(n), parts.get(n), why[n], chance=screened.chances.get(n))
            for n in names
        ),
        regions=seen_in(question.regions, there, told),
        why_not=DISAGREE if screened.disagree else found.why_not,
    )
    if not used:
        return found, None
    return found, transported_by(question.own_part(there), combined_sources(used))


def value_jointly(
    question: TargetQuestion, found: AtTarget, left_out: Mapping[str, TargetSource]
) -> tuple[AtTarget, SourcePart | None]:
    """Find the weights, then ask the target and all sources but those that are left out."""
    setting = question.setting
    names = [name for name in setting.weights if name not in left_out]
    weights = find_joint_weights(question, names)
    shares = weights.best.shares if weights.best else {}
    found = replace(found, balance="joint", n_steps=weights.n_steps, effective_rows=0.0)

    def with_sources(why: Mapping[str, str], told: Mapping[str, TransportedValues]) -> AtTarget:
        sources = dict(left_out)
        for name in names:
            own, out = told.get(name), why[name]
            part = question.across_folds(own) if own and not out else None
            rows, share = weights.rows.get(name, 0), shares.get(name)
            sources[name] = _source(name, own, part, out, n_rows=rows, share=share)
        return replace(found, sources=tuple(sources[name] for name in sorted(sources)))

    if weights.best is None or not weights.is_near:
        far = with_sources({name: weights.left.get(name, _ALL_UNLIKE) for name in names}, {})
        gap = weights.best and (
            "the sources' rows together cannot be made to look like the target's: a mean or a mean "
            f"square stays {weights.best.gap:.2g} standard deviations away"
        )
        return replace(far, why_not=gap or NOBODY), None
    there, told = question.ask(shares, **weights.fields_at(weights.best.slopes))
    if there is None:
        return replace(found, why_not=silence(question.conversation, question.client)), None
    why = {n: weights.left.get(n) or _why_no_values(told.get(n), FEW_ROWS) for n in names}
    found = replace(with_sources(why, told), regions=seen_in(question.regions, there, told))
    if lacking := [name for name in shares if why[name]]:
        lack = f"{', '.join(lacking)} answered while weights were found, but gave no values"
        return replace(found, why_not=f"{lack} for them"), None
    parts = {name: part_of(own) for name, own in told.items()}
    crossed = {name: own.crossed for name, own in told.items()}
    apart = sum(share * told[name].apart for name, share in shares.items())
    correction = question.widened(joint_correction(parts, shares, crossed), apart)
    found = replace(
        found,
        effective_rows=correction.effective_rows,
        mixture=dict(shares),
        skewness=skewness(shares, {name: setting.rows[name] for name in shares}),
        gap=weights.best.gap,
    )
    return found, transported_by(question.own_part(there), correction)


def _why_no_values(answer: TransportedValues | None, unlike: str) -> str:
    """Why a source does not count; nothing if it does."""
    if answer is None:
        return NO_ANSWER
    if not answer.released:
        return unlike
    return "" if answer.known[0] else UNSCORED


def _source(
    name: str,
    answer: TransportedValues | None,
    part: SourcePart | None,
    why_not: str,
    *,
    n_rows: int = 0,
    chance: float | None = None,
    share: float | None = None,
) -> TargetSource:
    return TargetSource(
        client=name,
        n_rows=answer.n_rows if answer else n_rows,
        effective_rows=answer.effective_rows if answer else 0.0,
        correction=float(part.means[0]) if part else None,
        standard_error=math.sqrt(part.covariances[0, 0]) if part else None,
        chance=chance,
        used=not why_not,
        why_not=why_not,
        share=share,
    )
