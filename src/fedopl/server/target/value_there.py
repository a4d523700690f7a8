"""What the learned policy is worth at a site that has contexts only.

On a first trip the target tells what its contexts are like. Then it tells what models make of them,
and sources, weighted to look like the target, what scores have beyond these models. Each source
finds its own weights on the same trip, or all find them together, in a few trips more.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.estimates import Estimate
from fedopl.messages.about_target import (
    MOST_BALANCING_STEPS,
    BalanceContexts,
    BalanceSums,
    TellContexts,
    TransportedValues,
)
from fedopl.policies.policy import ByFold, Policy
from fedopl.results.record import Record
from fedopl.results.target_value import AtTarget, TargetSource
from fedopl.results.value_tables import arm_name
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.target.found_mixture import matched, pooled_moments
from fedopl.server.target.target_question import (
    TargetQuestion,
    models_of,
    part_of,
    regions_for,
    seen_in,
    silence,
)
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
from fedopl.study.plans import TargetPlan
from fedopl.study.study import Study
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
DISAGREE = (
    "sources disagree about outcomes at the same contexts, and it is not known which of them the "
    "target is like"
)
_NOBODY = "no source's rows can be made to look like the target's"
_UNLIKE = "no weights make its rows look like the target's without resting on too few"
_DIFFERS = "its outcomes differ from the other sources' at the same contexts"
_ALL_UNLIKE = "all sources' rows together cannot be made to look like the target's"
# Each source for itself leaves too few effective rows if all have fewer than this many times the
# study's `least_rows`.
TOO_FEW = 2


def exchanges_at_target(study: Study) -> int:
    """How many exchanges it takes at most to value a policy at the study's target."""
    if study.target is None:
        return 0
    jointly = MOST_BALANCING_STEPS + 1 if study.target.may_balance_jointly else 0
    return 1 + study.target.asks_each + jointly


def value_at_target(
    conversation: Conversation, setting: Setting, policy: Policy | ByFold | None, record: Record
) -> AtTarget:
    """The value of this policy at the target, from questions to it, then to it and all sources.

    It is the one of the record or, if values are cross-fitted, that by fold.
    """
    plan = setting.study.target
    assert plan is not None  # noqa: S101  (the caller has checked)
    name = plan.client
    moments = conversation.each(TellContexts(), [name]).get(name)
    if moments is None:
        return AtTarget(client=name, why_not=silence(conversation, name))
    found = AtTarget(client=name, n_rows=moments.n_rows, **matched(setting, moments))
    if policy is None:
        why = "what was chosen is a rule in clients' code, which the target does not have"
        return replace(found, why_not=why)
    question = TargetQuestion(
        conversation=conversation,
        setting=setting,
        client=name,
        moments=moments,
        regions=regions_for(setting, moments),
        models=models_of(setting),
        policy=policy,
    )
    found, values = _valued(question, plan, found)
    why = found.why_not
    if why in ("", DISAGREE):
        why = _why_not(plan, found) or why
    if why or values is None:
        return replace(found, why_not=why)
    return _with_values(found, values, record)


def _valued(
    question: TargetQuestion, plan: TargetPlan, found: AtTarget
) -> tuple[AtTarget, SourcePart | None]:
    """What sources say, as the study wants their weights to be found."""
    if not plan.asks_each:
        return value_jointly(question, found, {})
    by_each, values = value_by_each(question, plan.screen, found)
    if not (plan.may_balance_jointly and _leaves_too_few(plan, by_each)):
        return by_each, values
    left_out = {one.client: one for one in by_each.sources if one.is_left_out}
    together, joint_values = value_jointly(question, by_each, left_out)
    helps = joint_values is not None and together.effective_rows > by_each.effective_rows
    return (together, joint_values) if helps or not values else (by_each, values)


def _leaves_too_few(plan: TargetPlan, found: AtTarget) -> bool:
    """Whether weights for all sources' rows together may help.

    They do not where the target is silent or has people nobody has seen, nor where sources
    disagree. The rule looks at contexts and weights, never at values.
    """
    if not found.sources or found.unseen or found.why_not == DISAGREE:
        return False
    return found.effective_rows < TOO_FEW * plan.least_rows


def _why_not(plan: TargetPlan, found: AtTarget) -> str:
    """What keeps a value from being claimed; nothing if it may be."""
    if not any(source.used for source in found.sources):
        return _NOBODY
    if found.unseen:
        return "it has people whom hardly any source has seen"
    if found.effective_rows < plan.least_rows:
        return (
            f"the sources' rows that look like the target's come to {found.effective_rows:,.0f} "
            f"effective rows, and the study requires {plan.least_rows}"
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
    names = [record.valued_as, *map(arm_name, study.actions)]
    # The sources' best arm first. An arm that some may not get is no policy for everybody.
    limited = study.permissions.limited(study.actions) if study.permissions else ()
    others = [arm for arm in study.actions if arm != record.best_arm and arm not in limited]
    places = {arm: 1 + study.actions.index(arm) for arm in (record.best_arm, *others)}
    gains = {
        arm_name(arm): estimate(columns[0] - columns[place])
        for arm, place in places.items()
        if values.known[place]
    }
    return replace(
        found,
        values={
            name: estimate(column, study.reward_sign)
            for name, column, known in zip(names, columns, values.known, strict=True)
            if known
        },
        gain=gains.get(arm_name(record.best_arm)),
        gains=gains,
    )


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
        sums = {
            name: SourceSums(log_weight=own.log_weight, means=own.means, products=own.products)
            for name, own in answers.items()
            if own.released
        }
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


def _why_left(answer: BalanceSums | None) -> str:
    if answer is None:
        return NO_ANSWER
    return FEW_ROWS if answer.scored else UNSCORED


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
        return replace(far, why_not=gap or _NOBODY), None
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
