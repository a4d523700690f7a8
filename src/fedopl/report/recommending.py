"""The recommendation: one sentence that says what to do, and how surely."""

from dataclasses import dataclass
from typing import Literal

from fedopl.base.labels import GLOBAL
from fedopl.report.words.numbers import Span, count, percent
from fedopl.report.words.policy_labels import (
    SO_FAR,
    OutcomeWords,
    gain_over,
    is_arm,
    label,
    value_of,
    valued_clients,
    verdict,
)
from fedopl.results.record import Record
from fedopl.results.value_tables import LEARNED, LOGGING, arm_name

Tone = Literal["change", "keep", "nothing"]


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """What to do, why, and whether that is a change."""

    sentence: str
    detail: str
    tone: Tone


def recommend(record: Record) -> Recommendation:
    """What the held-out rows speak for; nothing, where there are none."""
    if not record.study.evaluation.share:
        return _nothing("no rows were held out")
    if not record.gains.rows:
        return _nothing("no client reported values of held-out rows")
    so_far = Span.of(record.gains.over(LOGGING))
    if is_arm(record.study, record.chosen):
        return _constant(record, so_far)
    return _policy(record, Span.of(record.gains.over(arm_name(record.best_arm))), so_far)


def _nothing(why: str) -> Recommendation:
    return Recommendation(
        sentence=f"No recommendation: {why}, so nothing is claimed about what the policy is worth.",
        detail="The policy below is what was learned. Whether it is better than what is done now "
        "cannot be read from this run.",
        tone="nothing",
    )


def _constant(record: Record, so_far: Span) -> Recommendation:
    """The best candidate gives everybody the same."""
    gets = label(record.study, record.chosen).removeprefix("everybody gets ")
    if verdict(so_far) == "better":
        return Recommendation(
            sentence=f"Give everybody {gets}: compared with {SO_FAR}, that is expected to "
            f"{_change(record, so_far)}.",
            detail="Of all candidates it came out best on the rows learned from.",
            tone="change",
        )
    return _not_better(record, f"giving everybody {gets} came out best of the candidates", so_far)


def _not_better(record: Record, lead: str, so_far: Span) -> Recommendation:
    how = "is worse" if verdict(so_far) == "worse" else "is not demonstrably better"
    return Recommendation(
        sentence=f"Keep to {SO_FAR}: {lead}, but {how}, expected to {_change(record, so_far)}.",
        detail="",
        tone="keep",
    )


def _policy(record: Record, over_arm: Span, so_far: Span) -> Recommendation:
    """A policy that decides by person, beside the best constant arm and the past."""
    beats_arm, beats_past = verdict(over_arm), verdict(so_far)
    who, arm = _who(record), f"giving everybody '{record.best_arm}'"
    past = f"Compared with {SO_FAR}, it is expected to {_change(record, so_far)}."
    if beats_past == "worse":
        return Recommendation(
            sentence=f"Keep to {SO_FAR}: {who} is worse, expected to {_change(record, so_far)}.",
            detail=f"Compared with {arm}, it is expected to {_change(record, over_arm)}.",
            tone="keep",
        )
    if beats_arm == "better" and beats_past == "better":
        return Recommendation(
            sentence=f"Use {who}: compared with {arm}, it is expected to "
            f"{_change(record, over_arm)}.",
            detail=past,
            tone="change",
        )
    if beats_arm == "better":
        return Recommendation(
            sentence=f"No case for a change yet: {who} is better than {arm}, but not demonstrably "
            f"better than {SO_FAR}, expected to {_change(record, so_far)}.",
            detail=f"Compared with {arm}, it is expected to {_change(record, over_arm)}.",
            tone="keep",
        )
    return _arm(record, over_arm, beats_past, past)


def _arm(record: Record, over_arm: Span, beats_past: str, past: str) -> Recommendation:
    """The same for everybody is as good as a policy that is harder to follow."""
    who, found = _who(record), verdict(over_arm)
    if found == "same":
        why = f"{who} decides just the same on all held-out rows"
    elif found == "worse":
        why = f"{who} is worse, expected to {_change(record, over_arm)}"
    else:
        why = f"{who} is not demonstrably better, expected to {_change(record, over_arm)}"
    keep = f", or keep to {SO_FAR}" if beats_past != "better" and found == "unclear" else ""
    return Recommendation(
        sentence=f"Give everybody '{record.best_arm}'{keep}: {why}.",
        detail=past.replace("it is", f"{who} is"),
        tone="change" if beats_past == "better" else "keep",
    )


def _who(record: Record) -> str:
    if record.chosen == LEARNED:
        return "the learned policy"
    return f"the policy '{record.chosen}'"


def _change(record: Record, gain: Span) -> str:
    change = OutcomeWords.of(record.study).change(gain)
    return f"{change} ({percent(gain.level)} interval {gain.interval})"


def key_figures(record: Record) -> tuple[tuple[str, str, str], ...]:
    """(what, number, what else there is to say) for the few numbers one should know."""
    asked = len(record.rounds[0].asked) if record.rounds else len(record.rows)
    outcome = OutcomeWords.of(record.study)
    figures = [
        ("Clients", count(len(record.rows)), f"of {count(asked)} asked" if asked else ""),
        ("Rows learned from", count(sum(record.rows.values())), ""),
    ]
    if not record.values.rows:
        return (*figures, ("Held-out rows", "none", "nothing can be claimed"))
    held_out = record.values.of(record.chosen, GLOBAL).n_rows
    clients = valued_clients(record)
    figures.append(("Held-out rows", count(held_out), f"from {count(len(clients))} clients"))
    value = value_of(record, record.chosen)
    if value:
        figures.append((f"Expected {outcome.name}", value.number, value.interval))
    gains = {f"Gain over '{record.best_arm}' for everybody": arm_name(record.best_arm)}
    gains[f"Gain over {SO_FAR}"] = LOGGING
    for what, against in gains.items():
        gain = gain_over(record, against)
        if gain:
            figures.append((what, _signed(gain), gain.interval))
    return tuple(figures)


def _signed(gain: Span) -> str:
    return f"+{gain.number}" if gain.value > 0 else gain.number
