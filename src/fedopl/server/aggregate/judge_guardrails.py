"""Whether policies keep to guardrails, from every client's answers about further outcomes."""

from collections.abc import Mapping, Sequence

from fedopl.base.estimates import Estimate
from fedopl.results.value_tables import (
    LOCAL,
    LOGGING,
    GuardrailRow,
    GuardrailTable,
    Keeping,
    OutcomeTable,
    Row,
    arm_name,
)
from fedopl.server.aggregate.evaluation import OnRows, first_valuing, mixture_estimate, rows_of
from fedopl.server.aggregate.setting import Setting
from fedopl.study.guardrail import WHAT_WAS_DONE, Guardrail, guarded_columns

NOTHING_JUDGED = (OutcomeTable(), GuardrailTable())


def judge_guardrails(
    setting: Setting,
    told: Mapping[str, Sequence[OnRows]],
    names: list[str],
    valued: Sequence[OnRows],
) -> tuple[OutcomeTable, GuardrailTable]:
    """Values of further outcomes, and the verdict on every guardrail for every policy.

    What was `told` is by outcome. A verdict needs every client that `valued` the policies on the
    same rows to answer about the outcome, too. Bounds hold for all policies and guardrails together
    (Bonferroni). So the probability is at most 1 − confidence that a policy that breaks a guardrail
    is said to keep it, and the same holds the other way round.
    """
    outcomes: list[Row] = []
    rows: list[GuardrailRow] = []
    policies = [name for name in names if name != LOCAL]
    n_unsure = sum(
        name != reference_of(guardrail)
        for guardrail in setting.study.guardrails.values()
        for name in policies
    )
    for column in guarded_columns(setting.study):
        answered = [own for own in told[column] if own.answers]
        values = ((name, "") for name in names)
        outcomes += rows_of(answered, setting.weights, values, outcome=column)
    for name, guardrail in setting.study.guardrails.items():
        pairs = zip(told[guardrail.column], valued, strict=True)
        by_all = [own for own, on in pairs if set(on.answers) <= set(own.answers)]
        level = 1 - 2 * (1 - guardrail.confidence) / max(n_unsure, 1)
        found = by_all, setting
        rows += [_judged(name, guardrail, policy, found, level) for policy in policies]
    return OutcomeTable(outcomes), GuardrailTable(rows)


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
    on = first_valuing(told, [policy, against])
    answers = on.answers if on else {}
    known = {client: own for client, own in answers.items() if own.degrees_of_freedom > 0}
    if on is None or not known:
        return GuardrailRow(guardrail=name, policy=policy, verdict="not shown", level=level)
    change = mixture_estimate(known, setting.weights, on.unit(policy) - on.unit(against))
    verdict = judged(guardrail, change, level)
    return GuardrailRow(
        guardrail=name, policy=policy, verdict=verdict, level=level, estimate=change
    )


def judged(guardrail: Guardrail, change: Estimate, level: float) -> Keeping:
    """Whether both bounds lie within the limit, or both beyond it."""
    if change.standard_error and not change.degrees_of_freedom:
        return "not shown"
    low, high = sorted(guardrail.sign * bound for bound in change.interval(level))
    if high <= guardrail.limit:
        return "kept"
    return "broken" if low > guardrail.limit else "not shown"
