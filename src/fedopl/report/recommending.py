"""The recommendation: one sentence that says what to do, and how certain that is."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from fedopl.analysis.recommended import (
    LEAST_SUPPORT,
    MOST_BORROWED,
    Choice,
    affordable_actions,
    choice_of,
)
from fedopl.base.labels import GLOBAL
from fedopl.messages.private.noised_scores import ValuePrivately
from fedopl.report.explain.support_levels import untried_by
from fedopl.report.words.numbers import Span, count, listed, percent, plural
from fedopl.report.words.policy_labels import (
    SO_FAR,
    OutcomeWords,
    arm_given,
    best_on_training,
    best_single,
    gain_over,
    is_arm,
    label,
    only_together,
    opened,
    value_of,
    valued_clients,
    verdict,
)
from fedopl.results.membership import Membership, who_changed
from fedopl.results.record import Record
from fedopl.results.spending.budget_words import budget_in_words
from fedopl.results.value_tables import LEARNED, LOGGING, arm_name
from fedopl.study.private.added_up import adds_under_masks

Tone = Literal["change", "keep", "nothing"]


class Recommendation(NamedTuple):
    """Whether to change something, what to do, why, and which policy of the tables that is."""

    tone: Tone
    sentence: str
    detail: str
    policy: str | None  # the logging policy where things stay; None where nothing is known


def recommend(record: Record) -> Recommendation:
    """The recommendation by rows that the policy had not seen; without such rows, none."""
    if not record.study.evaluation.claims_values:
        found = _nothing("no rows were held out")
        return found._replace(detail=f"{found.detail} {record.which_rows}".strip())
    if record.in_doubt:
        return _nothing(f"{record.in_doubt} (see what to know first)")
    choice = choice_of(record, untried_by(record))
    if record.membership and not record.values.rows:
        return _nothing(_since(record, record.membership))
    if choice is None:
        return _nothing(f"no client reported values of {record.study.evaluation.valued('rows')}")
    found = _by_choice(record, choice)
    # First the guardrails that speak against the learned policy.
    return found._replace(sentence=f"{record.beyond_guardrails} {found.sentence}".lstrip())


def _by_choice(record: Record, choice: Choice) -> Recommendation:
    if choice.keeps and choice.past_is_too_dear:
        why = f"No recommendation: {_too_dear(record)}, and nothing within it can be recommended."
        detail = (
            "Too few rows support what the budget affords, or it is not shown to keep every "
            "guardrail, or, with caution, it was hardly tried. Hold out more rows, or allow more."
        )
        return Recommendation("nothing", why, detail, None)
    if choice.keeps and not record.guardrails.keeps_all(LOGGING):
        why = (
            "No recommendation: no policy that was valued is better and shown to keep every "
            f"guardrail, and {SO_FAR} is not shown to keep them either."
        )
        detail = "Agree on other guardrails, or hold out more rows, so that bounds are narrower."
        return Recommendation("nothing", why, detail, None)
    if choice.keeps:
        return _keep(record, choice)
    if choice.past_is_too_dear and _over_past(choice, choice.policy).low <= 0:
        return _within(record, choice)
    change = _change(record, _over_past(choice, choice.policy))
    kept = ""
    if record.guardrails:
        guardrails = listed([one.words for one in record.study.guardrails.values()])
        who = opened(_who(record, choice.policy))
        kept = f"{who} is shown to keep every guardrail: {guardrails}."
    return Recommendation(
        "change",
        f"{opened(_done(record, choice.policy))}: compared with {SO_FAR}, that is expected to "
        f"{change}.",
        f"{kept} {_beside(record, choice)}".strip(),
        choice.policy,
    )


def _nothing(why: str) -> Recommendation:
    return Recommendation(
        "nothing",
        f"No recommendation: {why}, so nothing is claimed about what the policy is worth.",
        "The policy below is what was learned. This run cannot show whether it is better "
        "than what is done now.",
        None,
    )


def _since(record: Record, membership: Membership) -> str:
    """The clients that did not value a policy solved again after clients joined or left."""
    told = {row.client for row in membership.of_policy(record.policy).values}
    others = [f"'{name}'" for name in sorted(record.rows.keys() - told)]
    who = f"{listed(others)} did not value it" if others else "each valued it for itself alone"
    return f"the policy was solved again after {who_changed(membership)}, and {who}"


def _too_dear(record: Record) -> str:
    """A sentence that what was done so far spends more than the budget."""
    assert record.curve is not None  # noqa: S101
    spent = Span.of(record.curve.done()[1])
    return f"{SO_FAR} comes to {spent.number}, and the budget is {budget_in_words(record)}"


def _within(record: Record, choice: Choice) -> Recommendation:
    """The best policy within the budget, if what was done exceeds it and no policy beats it."""
    assert record.curve is not None  # noqa: S101
    cheapest = arm_name(record.curve.against)
    gain = gain_over(record, cheapest)
    why = "nothing that the budget affords is demonstrably better"
    if choice.policy != cheapest and gain is not None:
        given = arm_given(record.study, record.curve.against)
        why = f"compared with {given}, that is expected to {_change(record, gain)}"
    past = _verb(record, _over_past(choice, choice.policy))
    return Recommendation(
        "change",
        f"{opened(_done(record, choice.policy))}: {why}.",
        f"{opened(_too_dear(record))}. Compared with that, {_who(record, choice.policy)} {past}.",
        choice.policy,
    )


def _keep(record: Record, choice: Choice) -> Recommendation:
    """No policy demonstrably beats what was done; the learned policy and the best arm say why."""
    who, how = _who(record, record.chosen), _against_past(record, choice, record.chosen)
    arm = arm_name(record.best_arm)
    beside = ""
    if arm != record.chosen and arm in choice.improvements:
        beside = (
            f"Nor is one action for everybody recommended{_as_valued(record, choice)}: "
            f"{arm_given(record.study, record.best_arm)}, {best_on_training(record.study)}, "
            f"{_against_past(record, choice, arm)}."
        )
    return Recommendation("keep", f"Keep to {SO_FAR}: {who} {how}.", beside, LOGGING)


def _against_past(record: Record, choice: Choice, policy: str) -> str:
    """Why a policy is no reason for a change."""
    gain = _over_past(choice, policy)
    if verdict(gain) != "better":
        return _verb(record, gain)
    change = _change(record, gain)
    if not record.guardrails.keeps_all(policy):
        return f"is expected to {change}, but is not shown to keep every guardrail"
    if policy in choice.untried:
        return (
            f"seems better, expected to {change}, but gives {choice.untried[policy]}, where "
            "nobody, or next to nobody, got it: in a study with caution that is not recommended"
        )
    few = listed([f"'{action}'" for action in choice.thin[policy]])
    return (
        f"seems better, expected to {change}, but too few rows support {few}: fewer than "
        f"{LEAST_SUPPORT} effective ones, or next to none at clients with more than "
        f"{percent(MOST_BORROWED)} of the weight"
    )


def _as_valued(record: Record, choice: Choice) -> str:
    """Which arms were valued, if not all of them could be."""
    n_arms = sum(is_arm(record.study, name) for name in choice.improvements)
    n_all = record.study.n_actions
    return "" if n_arms == n_all else f" ({count(n_arms)} of {count(n_all)} could be valued)"


def _beside(record: Record, choice: Choice) -> str:
    """The learned policy beside a recommended arm, or the best arm beside a recommended policy."""
    if not is_arm(record.study, choice.policy):
        gain = gain_over(record, record.valued_arm) if choice.policy == record.chosen else None
        if gain is None or record.best_arm not in affordable_actions(record):
            return ""
        return f"Compared with {best_single(record)}, it {_verb(record, gain)}."
    gain = gain_over(record, choice.policy)
    if gain is None:  # it is what came out best of all candidates
        with_noise = ", by sums with noise" if record.study.privacy else ""
        return f"Of all candidates it was best on the rows learned from{with_noise}."
    return f"Compared with that, {_who(record, record.chosen)} {_verb(record, gain)}."


def _verb(record: Record, gain: Span) -> str:
    change = _change(record, gain)
    return {
        "better": f"is better, expected to {change}",
        "same": f"decides the same on all {record.study.evaluation.valued('rows')}",
        "worse": f"is worse, expected to {change}",
        "unclear": f"is not demonstrably better, expected to {change}",
    }[verdict(gain)]


def _over_past(choice: Choice, policy: str) -> Span:
    row = choice.improvements[policy]
    return Span.of(row.estimate, row.level)


def _who(record: Record, name: str) -> str:
    if is_arm(record.study, name):
        return arm_given(record.study, _action_of(record, name))
    return "the learned policy" if name == LEARNED else f"the policy '{name}'"


def _done(record: Record, name: str) -> str:
    """What following the recommendation means in practice."""
    if is_arm(record.study, name):
        return arm_given(record.study, _action_of(record, name), "give")
    return f"use {_who(record, name)}"


def _action_of(record: Record, arm: str) -> str:
    return next(action for action in record.study.actions if arm_name(action) == arm)


def _change(record: Record, gain: Span) -> str:
    change = OutcomeWords.of(record.study).change(gain)
    return f"{change} ({percent(gain.level)} interval {gain.interval})"


def key_figures(record: Record) -> tuple[tuple[str, str, str], ...]:
    """(name, number, remark) for the few numbers that every reader should know.

    The recommended policy comes first. Each number says which policy it belongs to.
    """
    asked = len(record.rounds[0].asked) if record.rounds else len(record.rows)
    of_whom = f"of {count(asked)} asked" if asked else ""
    if record.membership:
        of_whom = f"since {who_changed(record.membership)}"
    about = (
        ("Clients", count(len(record.rows)), of_whom),
        ("Rows learned from", count(sum(record.rows.values())), ""),
    )
    choice = choice_of(record, untried_by(record))
    if choice is None:
        none = (_valued_on(record), "none", "nothing can be claimed of the policy")
        return about if record.membership else (*about, none)
    used = record.gains.over(LOGGING).rows_used
    n_clients = plural(len(_valued(record)), "client")
    n_groups = record.values.groups().get(GLOBAL)
    groups = f", in {plural(n_groups, 'group')}" if n_groups else ""
    n_splits = record.study.evaluation.splits
    each_split = f", in each of {n_splits} splits" if n_splits > 1 else ""
    return (
        *(() if record.in_doubt else _worth(record, choice)),  # no number that models belie
        *about,
        (_valued_on(record), used, f"from {n_clients}{groups}{each_split}"),
    )


def _valued(record: Record) -> Sequence[str]:
    """Whose values are known: of very many clients, those who answered when it was asked.

    Under masks nobody is valued alone; who is lacking in a sum is left out of it.
    """
    if adds_under_masks(record.study) and not record.lacking:
        return list(record.mixture)
    if adds_under_masks(record.study):
        return [one for one in record.rounds if one.query == ValuePrivately.__name__][-1].answered
    if only_together(record):
        return [one for one in record.own_rounds if one.value is not None][-1].answered
    return valued_clients(record)


def _worth(record: Record, choice: Choice) -> list[tuple[str, str, str]]:
    """Value and gain of the recommended policy; then of the learned policy, if it is another."""
    outcome = OutcomeWords.of(record.study).name
    figures = []
    if value := value_of(record, choice.policy):
        what = opened(label(record.study, choice.policy))
        figures.append((f"{what}: expected {outcome}", value.number, value.interval))
    for policy in dict.fromkeys((choice.policy, record.chosen)):
        if policy in choice.improvements:
            gain = _over_past(choice, policy)
            what = opened(label(record.study, policy))
            figures.append((f"{what}: gain over {SO_FAR}", _signed(gain), _with_level(gain)))
    arm = choice.policy if is_arm(record.study, choice.policy) else record.valued_arm
    over_arm = gain_over(record, arm)
    can_be_given = record.best_arm in affordable_actions(record) or arm == choice.policy
    if over_arm and arm != record.chosen and can_be_given:
        who = opened(label(record.study, record.valued_as))
        what = f"{who}: gain over {label(record.study, arm)}"
        figures.append((what, _signed(over_arm), _with_level(over_arm)))
    return figures


def _signed(gain: Span) -> str:
    return f"+{gain.number}" if gain.value > 0 else gain.number


def _with_level(gain: Span) -> str:
    return f"{gain.interval} ({percent(gain.level)} interval)" if gain.is_known else gain.interval


def _valued_on(record: Record) -> str:
    if not record.study.evaluation.is_cross_fitted:
        return "Held-out rows used"
    return "Rows valued, fold by fold" if record.values_way_of_learning else "Rows valued"
