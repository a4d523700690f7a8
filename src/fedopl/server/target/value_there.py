"""What the learned policy is worth at a site that has contexts only.

On a first trip the target tells what its contexts are like. Then it tells what models make of them,
and sources, weighted to look like the target, what scores have beyond these models. Each source
finds its own weights on the same trip, or all find them together, in a few trips more.
"""

import math
from dataclasses import replace

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.estimates import Estimate
from fedopl.messages.target.context_moments import MOST_BALANCING_STEPS, TellContexts
from fedopl.policies.by_fold import ByFold
from fedopl.policies.policy import Policy
from fedopl.results.record import Record
from fedopl.results.target_value import AtTarget
from fedopl.results.value_tables import arm_name
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.target.found_mixture import matched
from fedopl.server.target.sources import DISAGREE, NOBODY, value_by_each, value_jointly
from fedopl.server.target.target_question import TargetQuestion, question_about, silence
from fedopl.solvers.transport_sources import SourcePart
from fedopl.study.study import Study
from fedopl.study.target_plan import TargetPlan

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
    question = question_about(conversation, setting, name, moments, policy)
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
        return NOBODY
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
