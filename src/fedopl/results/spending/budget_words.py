"""Sentences about a budget, for summaries and reports of a run."""

from typing import TYPE_CHECKING

from fedopl.base.estimates import Estimate
from fedopl.base.labels import GLOBAL, quoted
from fedopl.results.spending.budget_curve import BudgetPoint
from fedopl.results.value_tables import arm_name

if TYPE_CHECKING:
    from fedopl.results.record import Record


def budget_in_words(record: "Record") -> str:
    """The limit on spending, and where it holds."""
    study = record.study
    if study.budget is None:
        return ""
    where = " at each client" if study.budget.is_per_client else ""
    if study.budget.most is None:
        (action,) = study.budget.shares
        return f"'{action}' for at most {100 * study.budget.limit:.4g} % of people{where}"
    return f"at most {study.budget.limit:.4g} {study.budget.unit(study)} per decision{where}"


def verdict_within(record: "Record") -> str | None:
    """The gain and spending of the policy within the budget; None if there is no budget."""
    if record.curve is None or record.study.budget is None:
        return None
    point = record.within_budget()
    (low, high), who = point.gain.interval(), point.named("the learned policy")
    beats = "gains" if low > 0 else "loses" if high < 0 else "does not demonstrably gain"
    if record.valued_as != record.chosen != arm_name(record.curve.against):
        who = f"the best candidate of the other folds (of all rows {who})"
    return (
        f"Within the budget, {budget_in_words(record)}, {who} {beats} {gain_words(point.gain)} "
        f"over giving everybody '{record.curve.against}'. {spending_in_words(point)}"
        f"{who_told(record)}"
    )


def gain_words(gain: Estimate) -> str:
    """A gain with its interval."""
    low, high = gain.interval()
    return f"{gain.value:+.4g} (95 % interval {low:.4g} to {high:.4g})"


def spending_in_words(point: BudgetPoint, who: str = "It") -> str:
    """The spending with its error, and how likely it is too much."""
    error = point.spending.standard_error
    spent = f"{who} spends {point.spending.value:.4g} (standard error {error:.2g})"
    if not point.is_binding:
        return f"{spent}, less than the budget: the budget changes nothing."
    learned = f"{point.price:.3g} by what was learned, and " if point.dearer is None else ""
    return (
        f"{spent}; the chance that it spends more than allowed is "
        f"{point.chance_over:.0%}.{_steps_in_words(point)} One more unit of budget brings "
        f"{learned}{point.one_more:.3g} by the slope of the curve there, which has no error bar."
    )


def _steps_in_words(point: BudgetPoint) -> str:
    """The spending of the next policy, if there is none between the two; otherwise empty."""
    if point.dearer is None:
        return ""
    next_one = f" The next policy that was found spends {point.dearer:.4g}"
    if not point.spending.value < point.budget < point.dearer:
        return f"{next_one}."
    share = (point.budget - point.spending.value) / (point.dearer - point.spending.value)
    return (
        f"{next_one}, which is too much; drawing lots between the two, {share:.0%} for that one, "
        f"would spend just the budget and gain {point.at_budget.value:+.4g}."
    )


def who_told(record: "Record") -> str:
    """The clients that spending covers, if some reported nothing about prices."""
    told = record.curve.clients if record.curve else {}
    silent = sorted(set(record.mixture) - set(told))
    if not told or not silent:
        return ""
    share = sum(record.mixture[name] for name in told)
    return (
        f" What is spent is of {quoted(sorted(told))} alone, {share:.0%} of the mixture: "
        f"{quoted(silent)} reported nothing about prices, so what is spent there is not known."
    )


def point_in_words(record: "Record", point: BudgetPoint) -> str:
    """One budget: the policy's gain and spending, and the alternatives within it."""
    curve = record.curve
    if curve is None:
        return ""
    where = "" if point.client == GLOBAL else f" at {point.client}"
    told = who_told(record) if point.client == GLOBAL else ""
    lines = [
        f"With a budget of {point.budget:.4g}{where} {point.named('the policy')} gains "
        f"{gain_words(point.gain)} over giving everybody '{curve.against}', at a price of "
        f"{point.price:.4g}. {spending_in_words(point)}{told}"
    ]
    for other in curve.of(point.client).alternatives(point.budget):
        who = f"giving everybody '{other.action}'"
        if other.share is not None:
            who = f"drawing lots for '{other.action}', {other.share:.0%} of people,"
        lines.append(f"For the same, {who} gains {gain_words(other.gain)}.")
    return "\n".join(lines)


def budget_notes(record: "Record") -> list[str]:
    """Which entries of the tables exceed the budget, or were not asked about."""
    budget, curve = record.study.budget, record.curve
    if budget is None:
        return []
    if curve is None:
        return [
            f"The study has a budget, {budget_in_words(record)}; what these policies spend was not "
            "asked."
        ]
    dear = [f"'{a}'" for a in curve.actions if a not in curve.affordable(budget)]
    others = f"giving everybody {' or '.join(dear)} is not within the budget, and " if dear else ""
    notes = [f"Of what is below, {others}what clients learn alone ignores the budget."]
    if curve.names:
        evaluation = record.study.evaluation
        valued = "values" if evaluation.is_cross_fitted else "values on training rows"
        notes.append(
            f"The candidate is the best of those within the budget, by {valued} and spending on "
            f"{evaluation.rows_valued}; others may be worth more and spend more."
        )
    spent = curve.done()[1]
    if spent.value > budget.limit:
        notes.append(
            f"What was done is beyond the budget: it spends {spent.value:.4g} (standard error "
            f"{spent.standard_error:.2g})."
        )
    if budget.is_per_client:
        own = [record.within_budget(name) for name in sorted(curve.clients)]
        notes.append(
            "The policy is one policy that is within the budget at each client. At its own price "
            "each could have: "
            + "; ".join(
                f"{one.client} {one.gain.value:+.4g} for {one.spending.value:.4g}" for one in own
            )
            + "."
        )
    return notes


def point_as_json(point: BudgetPoint) -> dict[str, object]:
    """A point as JSON."""
    absent = {"policy"} if point.candidate else {"policy", "candidate"}
    found = {name: own for name, own in vars(point).items() if name not in absent}
    for name in ("spending", "gain", "at_budget"):
        found[name] = found[name].as_json()
    return {**found, "client": None if point.client == GLOBAL else point.client}
