"""The recommended policy: one that demonstrably beats what was done on held-out rows, or none."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from fedopl.base.labels import GLOBAL
from fedopl.results.descriptions import Descriptions
from fedopl.results.record import Record
from fedopl.results.value_tables import LOGGING, Row, arm_name
from fedopl.study.mixture import renormalised

# The fewest effective rows with an action. With fewer, hardly any held-out row took the action. Its
# value is then a model's guess, and intervals miss the truth more often than they claim.
LEAST_SUPPORT = 30
# The largest weight of clients that use others' models for an action because they hardly ever took
# it; and the effective rows from which on a client has taken an action itself.
MOST_BORROWED, _OWN = 0.25, 5
_FEW = 0.05  # of people: an action given to fewer hardly changes the value of a policy


@dataclass(frozen=True, eq=False, kw_only=True)
class Choice:
    """The recommendation, and the evidence: gains over what was done, in the mixture of clients.

    The intervals of the gains hold for all policies together. So a policy that is chosen by its
    interval is worse than what was done in at most one of twenty studies.
    """

    policy: str  # LOGGING means: keep what was done
    improvements: dict[str, Row]  # by policy: the chosen one, and constant arms
    thin: dict[str, tuple[str, ...]]  # by policy: those of its actions that too few rows support
    untried: Mapping[str, str]  # by policy, in words: actions it gives that such people hardly got
    past_is_too_dear: bool = False  # over budget: it cannot continue, even if nothing is better

    @property
    def keeps(self) -> bool:
        """Whether the recommendation is to change nothing."""
        return self.policy == LOGGING


def choice_of(record: Record, untried: Mapping[str, str]) -> Choice | None:
    """The policy to recommend, never an untried one; None if what was learned has no value.

    Candidates demonstrably beat what was done and are shown to keep every guardrail. Among them, a
    constant arm comes before the learned policy, which is harder to follow. The learned policy
    comes first only if it also demonstrably beats the arm.
    """
    arms = [arm_name(action) for action in affordable_actions(record)]
    found = {
        row.policy: row
        for row in record.improvements.rows
        if row.client == GLOBAL and row.policy in (record.chosen, *arms)
    }
    if not found or not record.gains.rows:
        return None
    thin = _thin(record, found)
    better = {
        name: row.estimate.value
        for name, row in found.items()
        if row.interval[0] > 0
        and name not in (*thin, *untried)
        and record.guardrails.keeps_all(name)
    }
    policy, too_dear = _preferred(record, better, arms), _past_overspends(record)
    if too_dear and policy == LOGGING:
        policy = _within_budget(record, [name for name in found if name not in (*thin, *untried)])
    return Choice(
        policy=policy, improvements=found, thin=thin, untried=untried, past_is_too_dear=too_dear
    )


def _past_overspends(record: Record) -> bool:
    """Whether what was done costs more than the budget allows, as clients reported."""
    budget, curve = record.study.budget, record.curve
    if budget is None or curve is None:
        return False
    return any(own.done()[1].value > budget.limit for own in curve.where(budget))


def _within_budget(record: Record, policies: list[str]) -> str:
    """The policy to recommend if what was done is over budget.

    This is the learned policy if it demonstrably beats the cheapest action, else that action.
    """
    assert record.curve is not None  # noqa: S101
    cheapest = arm_name(record.curve.against)
    possible = [name for name in policies if record.guardrails.keeps_all(name)]
    gain = record.gains.estimates().get((cheapest, GLOBAL))
    beats = gain is not None and gain.interval()[0] > 0
    wanted = [record.chosen] if beats else []
    return next((name for name in [*wanted, cheapest] if name in possible), LOGGING)


def affordable_actions(record: Record) -> list[str]:
    """The actions that everybody could get: within the budget, or all if there is none."""
    budget = record.study.budget
    if budget is None or record.curve is None:
        return list(record.study.actions)
    return record.curve.affordable(budget)


def _preferred(record: Record, better: dict[str, float], arms: list[str]) -> str:
    best_arm = max((name for name in better if name in arms), key=better.__getitem__, default=None)
    if record.chosen in better and record.chosen != best_arm:
        is_needed = best_arm is None or record.gains.over(best_arm).interval()[0] > 0
        return record.chosen if is_needed else str(best_arm)
    return best_arm or LOGGING


def _thin(record: Record, policies: dict[str, Row]) -> dict[str, tuple[str, ...]]:
    """By policy, its actions that too few rows support; empty if clients were not asked."""
    described, actions = record.described, record.study.actions
    if described is None:
        return {}
    decided = described.decided()[-1].sum(axis=0)
    permissions = record.study.permissions
    given = {
        arm_name(a): {a, *(permissions.instead_of(a, actions) if permissions else ())}
        for a in actions
    }
    often = decided >= _FEW * decided.sum()
    given.setdefault(record.chosen, {name for name, o in zip(actions, often, strict=True) if o})
    few = {name for place, name in enumerate(actions) if _is_thin(record, described, place)}
    found = {name: tuple(sorted(given[name] & few)) for name in policies}
    return {name: thin for name, thin in found.items() if thin}


def _is_thin(record: Record, described: Descriptions, action: int) -> bool:
    """Whether an action's value depends too much on other clients' models or on few effective rows.

    The effective rows of a mean in a mixture are 1 / Σ_c λ_c²/n_c.
    """
    shares = renormalised(record.mixture, described.by_client.keys())
    rows = {name: float(own.effective_rows[action]) for name, own in described.by_client.items()}
    tried = [name for name in sorted(rows) if rows[name] >= _OWN]
    if math.fsum(shares[name] for name in tried) < 1 - MOST_BORROWED:
        return True
    own = renormalised(shares, tried)
    return 1 / math.fsum(own[name] ** 2 / rows[name] for name in tried) < LEAST_SUPPORT
