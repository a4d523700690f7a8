"""Cautions about single clients: a result that depends on one client is only as reliable as it."""

from collections.abc import Iterator

from fedopl.base.estimates import Estimate
from fedopl.report.parts import Caution
from fedopl.report.words.numbers import Span, count, listed, percent, plain
from fedopl.report.words.policy_labels import OutcomeWords, gain_over, is_arm, verdict
from fedopl.results.record import Record
from fedopl.results.reliance import Contradiction, LeftOut

# With two clients, one nearly always has more than half.
MOST_WEIGHT, MOST_OF_TWO = 0.5, 0.75
# A loss of other clients due to one client is reported from this part of their gain on.
NOTICED = 0.1
# Kinds of mixture whose weights depend on what clients report; other weights are agreed openly.
_BY_REPORT = ("empirical", "minimax")


def reliance_cautions(record: Record) -> Iterator[Caution]:
    """Cautions about single clients, the most serious first; none if there is only one client."""
    if len(record.mixture) > 1:
        yield from _contradicts(record)
        yield from _decides(record)
        yield from _costs_others(record)
        yield from _weighs_most(record)


def _contradicts(record: Record) -> Iterator[Caution]:
    found = record.reliance.contradictions if record.reliance else ()
    for client in dict.fromkeys(one.client for one in found):
        own = [contradiction_in_words(one) for one in found if one.client == client]
        yield Caution(
            "Answers that do not fit",
            f"{client} stands apart from its own other answers, or from all other clients: "
            f"{listed(own, 2)}.",
            "Ask that client to check its table and its software before anyone acts on this "
            "result.",
        )


def contradiction_in_words(found: Contradiction) -> str:
    """What a client reported, and what was expected."""
    reported, implied = plain(found.reported, 3), plain(found.implied, 3)
    return f"{found.about} ({reported}, where {implied} was to be expected)"


def _decides(record: Record) -> Iterator[Caution]:
    """A caution that the recommendation would change without one client."""
    for one in record.reliance.left_out if record.reliance else ():
        if changes := changed_without(record, one):
            yield Caution(
                "One client decides",
                f"Without {one.client}, which has {percent(one.weight)} of the weight, {changes}.",
                "Check that client's rows before anyone else acts on the result.",
            )


def changed_without(record: Record, one: LeftOut) -> str:
    """How the recommendation would change without this client, in words; empty if it would not."""
    gain = gain_over(record, record.valued_arm)
    after = one.gain_without or one.gain
    if gain is None or after is None or is_arm(record.study, record.chosen) or record.in_doubt:
        return ""  # where nothing is recommended, nobody decides it
    now, then = verdict(gain), verdict(Span.of(after))
    if "better" in (now, then) and now != then:
        how = "the policy would not be" if now == "better" else "the policy would be"
        return f"{how} demonstrably better than a single action for everybody"
    if now != "better" and one.best_arm != record.best_arm:
        return f"the best single action would be '{one.best_arm}', not '{record.best_arm}'"
    return ""


def _costs_others(record: Record) -> Iterator[Caution]:
    for one in record.reliance.left_out if record.reliance else ():
        difference = one.difference
        if difference and not record.in_doubt and _is_worth_naming(one, difference):
            unit = OutcomeWords.of(record.study).name
            yield Caution(
                "Others lose by one client",
                f"Without {one.client}, the others would learn a policy that is worth "
                f"{Span.of(difference).number} {unit} more to them, and "
                f"{one.better_off} of {one.others} of them would gain.",
                "Its rows differ from theirs, or are not what it reports. Leave it out, or "
                "bound its weight.",
            )


def _is_worth_naming(one: LeftOut, difference: Estimate) -> bool:
    """Whether most others would demonstrably gain, by a noticeable part of their gain."""
    least = NOTICED * abs(one.gain.value) if one.gain else 0.0
    is_shown = difference.interval()[0] > 0 and difference.value > least
    return is_shown and 2 * one.better_off > one.others


def _weighs_most(record: Record) -> Iterator[Caution]:
    heaviest = max(sorted(record.mixture), key=lambda name: record.mixture[name])
    weight, most = (
        record.mixture[heaviest],
        MOST_OF_TWO if len(record.mixture) == 2 else MOST_WEIGHT,
    )
    if weight > most and record.study.mixture.kind in _BY_REPORT:
        by = f"the {count(record.rows[heaviest])} rows it says it has"
        unchecked = "how many rows a client has"
        if record.row_weights:
            by = f"the weight of {plain(record.row_weights[heaviest], 3)} it says its rows have"
            unchecked = "what a client's rows should weigh"
        yield Caution(
            "Most weight on one client",
            f"{heaviest} has {percent(weight)} of the weight, by {by}.",
            f"Nothing verifies {unchecked}. Verify it yourselves, or agree on largest_share "
            "in [mixture].",
        )
