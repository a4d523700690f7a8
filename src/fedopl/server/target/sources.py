"""What sources say of a policy at the target: each by weights of its own, or all by common ones.

Where each finds its own, sources can be compared at the same contexts, and one that is left out
need not be asked again. Weights for all sources' rows together are found by Newton's method, one
trip for each step, until every mean and mean square is near the target's, or a further step brings
them no nearer. Then only all sources look like the target, so none can be compared, or left out
afterwards; one leaves where its own rows would come to too few under the weights.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.target.context_moments import (
    MOST_BALANCING_STEPS,
    BalanceContexts,
    BalanceSums,
)
from fedopl.messages.target.transported_values import TransportedValues
from fedopl.results.target_value import AtTarget, TargetSource
from fedopl.server.target.found_mixture import pooled_moments
from fedopl.server.target.target_question import TargetQuestion, part_of, seen_in, silence
from fedopl.solvers.entropy_balance import (
    LARGEST_GAP,
    JointBalance,
    SourceSums,
    Units,
    balance_at,
    following,
    units_of,
)
from fedopl.solvers.transport_sources import (
    SourcePart,
    combined_sources,
    joint_correction,
    screen,
    transported_by,
)
from fedopl.theory.skew import skewness

# As near to the target as this, in standard deviations, another step changes nothing to be seen.
NEAR_ENOUGH = 0.01
# A step that does not bring the largest difference down to this share of it brings it no nearer.
_NEARER = 0.5
NO_ANSWER = "did not answer"
FEW_ROWS = (
    "under weights that make all sources look like the target, its sums would rest on too few rows"
)
UNSCORED = "has no scores of an action"


@dataclass(eq=False, kw_only=True)
class JointWeights:
    """The weights that were found, or None where no source is left; who left, and why."""

    units: Units
    n_steps: int = 0
    best: JointBalance | None = None
    rows: dict[str, int] = field(default_factory=dict)  # that are valued, of sources that answered
    left: dict[str, str] = field(default_factory=dict)

    def fields_at(self, slopes: FloatArray) -> dict[str, Any]:
        """The fields of queries about rows under weights at this η."""
        return {"centres": self.units.centres, "scales": self.units.scales, "slopes": slopes}

    @property
    def is_near(self) -> bool:
        """Whether sources' rows together look like the target's."""
        return self.best is not None and self.best.gap <= LARGEST_GAP


def find_joint_weights(question: TargetQuestion, sources: Sequence[str]) -> JointWeights:
    """Ask these sources for sums at one η after the other."""
    moments, setting = question.moments, question.setting
    _, covariances = pooled_moments(setting)
    units = units_of(moments.means, moments.squares, np.diagonal(covariances))
    target = units.moments(moments.means, moments.squares)
    found = JointWeights(units=units)
    asked, slopes, step = sorted(sources), np.zeros(len(target)), np.zeros(len(target))
    while asked and found.n_steps < MOST_BALANCING_STEPS:
        query = BalanceContexts(**found.fields_at(slopes))
        answers = question.conversation.each(query, asked)
        found.n_steps += 1
        sums = {name: _sums(answers[name]) for name in asked if _counts(answers.get(name))}
        found.rows |= {name: own.n_rows for name, own in answers.items()}
        if len(sums) < len(asked):
            found.left |= {n: _why_left(answers.get(n)) for n in asked if n not in sums}
            asked, found.best = sorted(sums), None
            if not asked:
                break
        latest, before = balance_at(slopes, sums, setting.rows, target), found.best
        found.best = latest if before is None or latest.gap < before.gap else before
        if latest.gap <= NEAR_ENOUGH or (
            before is not None and before.gap <= LARGEST_GAP and latest.gap > _NEARER * before.gap
        ):
            break
        # Beyond the target: back to where it was nearer, and half as far from there.
        step = latest.step() if found.best is latest else step / 2
        slopes = following(found.best.slopes, step)
    return found


def _counts(answer: BalanceSums | None) -> bool:
    return answer is not None and bool(answer.released)


def _sums(answer: BalanceSums) -> SourceSums:
    return SourceSums(log_weight=answer.log_weight, means=answer.means, products=answer.products)


def _why_left(answer: BalanceSums | None) -> str:
    if answer is None:
        return NO_ANSWER
    return FEW_ROWS if answer.scored else UNSCORED


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
