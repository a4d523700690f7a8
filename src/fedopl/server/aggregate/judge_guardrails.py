"""Whether policies keep to guardrails, from every client's answers about further outcomes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fedopl.results.guardrail_tables import (
    GuardrailRow,
    GuardrailTable,
    OutcomeRow,
    OutcomeTable,
    judged,
)
from fedopl.results.value_tables import LOCAL, LOGGING, arm_name
from fedopl.server.aggregate.evaluation import OnRows, mixture_estimate, of_all, value_table
from fedopl.server.aggregate.setting import Setting
from fedopl.study.guardrail import WHAT_WAS_DONE, Guardrail, guarded_columns


@dataclass(frozen=True, kw_only=True)
class JudgedOutcomes:
    """The values of further outcomes, and which policies keep which guardrails."""

    outcomes: OutcomeTable = field(default_factory=OutcomeTable)
    guardrails: GuardrailTable = field(default_factory=GuardrailTable)


def judge_guardrails(
    setting: Setting,
    told: Mapping[str, Sequence[OnRows]],
    names: list[str],
    valued: Sequence[OnRows],
) -> JudgedOutcomes:
    """The verdict on every guardrail for every policy, from what was `told` by outcome.

    A verdict needs every client that `valued` the policies on the same rows to answer about the
    outcome, too. Bounds hold for all policies and guardrails together (Bonferroni). So the
    probability is at most 1 − confidence that a policy that breaks a guardrail is said to keep it,
    and the same holds the other way round.
    """
    outcomes, rows = [], []
    policies = [name for name in names if name != LOCAL]
    n_unsure = sum(
        name != reference_of(guardrail)
        for guardrail in setting.study.guardrails.values()
        for name in policies
    )
    for column in guarded_columns(setting.study):
        answered = [own for own in told[column] if own.answers]
        table = value_table(answered, setting.weights, names, 0.95)
        outcomes += [OutcomeRow(outcome=column, **vars(row)) for row in table.rows]
    for name, guardrail in setting.study.guardrails.items():
        pairs = zip(told[guardrail.column], valued, strict=True)
        by_all = [own for own, on in pairs if set(on.answers) <= set(own.answers)]
        level = 1 - 2 * (1 - guardrail.confidence) / max(n_unsure, 1)
        found = by_all, setting
        rows += [_judged(name, guardrail, policy, found, level) for policy in policies]
    return JudgedOutcomes(
        outcomes=OutcomeTable(tuple(outcomes)), guardrails=GuardrailTable(tuple(rows))
    )


def reference_of(guardrail: Guardrail) -> str:
    """The policy that the guardrail compares with, by its name in tables."""
    return LOGGING if guardrail.reference == WHAT_WAS_DONE else arm_name(guardrail.reference)


def _judged(
    name: str,
    guardrail: Guardrail,
    policy: str,
    found: tuple[Sequence[OnRows], Setting],
    level: float,
) -> GuardrailRow:
    told, setting = found
    against = reference_of(guardrail)
    on = of_all(told, [policy, against])
    answers = on.answers if on else {}
    known = {client: own for client, own in answers.items() if own.degrees_of_freedom > 0}
    if on is None or not known:
        return GuardrailRow(guardrail=name, policy=policy, verdict="not shown", level=level)
    change = mixture_estimate(known, setting.weights, on.unit(policy) - on.unit(against))
    verdict = judged(guardrail, change, level)
    return GuardrailRow(
        guardrail=name, policy=policy, verdict=verdict, level=level, estimate=change
    )
