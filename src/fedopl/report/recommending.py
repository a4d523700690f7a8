"""The recommendation: one sentence that says what to do, and how surely."""

from typing import Literal, NamedTuple

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


class Recommendation(NamedTuple):
    """Whether to change something, what to do, and why."""

    tone: Literal["change", "keep", "nothing"]
    sentence: str
    detail: str


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
        "nothing",
        f"No recommendation: {why}, so nothing is claimed about what the policy is worth.",
        "The policy below is what was learned. Whether it is better than what is done now "
        "cannot be read from this run.",
    )


def _constant(record: Record, so_far: Span) -> Recommendation:
    """The best candidate gives everybody the same."""
    gets = label(record.study, record.chosen).removeprefix("everybody gets ")
    found, change = verdict(so_far), _change(record, so_far)
    if found == "better":
        return Recommendation(
            "change",
            f"Give everybody {gets}: compared with {SO_FAR}, that is expected to {change}.",
            "Of all candidates it came out best on the rows learned from.",
        )
    how = "is worse" if found == "worse" else "is not demonstrably better"
    return Recommendation(
        "keep",
        f"Keep to {SO_FAR}: giving everybody {gets} came out best of the candidates, but {how}, "
        f"expected to {change}.",
        "",
    )


def _policy(record: Record, over_arm: Span, so_far: Span) -> Recommendation:
    """A policy that decides by person, beside the best constant arm and the past."""
    beats_arm, beats_past = verdict(over_arm) == "better", verdict(so_far)
    who, arm = _who(record), f"giving everybody '{record.best_arm}'"
    by_arm, by_past = _change(record, over_arm), _change(record, so_far)
    compared_with_arm = f"Compared with {arm}, it is expected to {by_arm}."
    # Harm comes first: what is worse than the past is not used, whatever else it beats.
    if beats_past == "worse":
        sentence = f"Keep to {SO_FAR}: {who} is worse, expected to {by_past}."
        return Recommendation("keep", sentence, compared_with_arm)
    if not beats_arm:
        past = f"Compared with {SO_FAR}, {who} is expected to {by_past}."
        return _arm(record, over_arm, beats_past, past)
    if beats_past == "better":
        return Recommendation(
            "change",
            f"Use {who}: compared with {arm}, it is expected to {by_arm}.",
            f"Compared with {SO_FAR}, it is expected to {by_past}.",
        )
    return Recommendation(
        "keep",
        f"No case for a change yet: {who} is better than {arm}, but not demonstrably "
        f"better than {SO_FAR}, expected to {by_past}.",
        compared_with_arm,
    )


def _arm(record: Record, over_arm: Span, beats_past: str, past: str) -> Recommendation:
    """The same for everybody is as good as a policy that is harder to follow."""
    found, change = verdict(over_arm), _change(record, over_arm)
    why = {
        "same": "decides just the same on all held-out rows",
        "worse": f"is worse, expected to {change}",
        "unclear": f"is not demonstrably better, expected to {change}",
    }[found]
    keep = f", or keep to {SO_FAR}" if beats_past != "better" and found == "unclear" else ""
    return Recommendation(
        "change" if beats_past == "better" else "keep",
        f"Give everybody '{record.best_arm}'{keep}: {_who(record)} {why}.",
        past,
    )


def _who(record: Record) -> str:
    return "the learned policy" if record.chosen == LEARNED else f"the policy '{record.chosen}'"


def _change(record: Record, gain: Span) -> str:
    change = OutcomeWords.of(record.study).change(gain)
    return f"{change} ({percent(gain.level)} interval {gain.interval})"


def key_figures(record: Record) -> tuple[tuple[str, str, str], ...]:
    """(what, number, what else there is to say) for the few numbers one should know."""
    asked = len(record.rounds[0].asked) if record.rounds else len(record.rows)
    figures = [
        ("Clients", count(len(record.rows)), f"of {count(asked)} asked" if asked else ""),
        ("Rows learned from", count(sum(record.rows.values())), ""),
    ]
    if not record.values.rows:
        return (*figures, ("Held-out rows", "none", "nothing can be claimed"))
    held_out = record.values.of(record.chosen, GLOBAL).n_rows
    n_clients = count(len(valued_clients(record)))
    figures.append(("Held-out rows", count(held_out), f"from {n_clients} clients"))
    if value := value_of(record, record.chosen):
        name = OutcomeWords.of(record.study).name
        figures.append((f"Expected {name}", value.number, value.interval))
    others = {f"'{record.best_arm}' for everybody": arm_name(record.best_arm), SO_FAR: LOGGING}
    for what, against in others.items():
        if gain := gain_over(record, against):
            number = f"+{gain.number}" if gain.value > 0 else gain.number
            figures.append((f"Gain over {what}", number, gain.interval))
    return tuple(figures)
