"""How much the result depends on single clients, and cautions about them."""

from collections.abc import Iterator

from fedopl.report.explain.in_doubt import folded_if_doubted
from fedopl.report.parts import Caution, Heading, Part, Points, Section, Table, Text, texts
from fedopl.report.words.numbers import Span, count, listed, percent, plain, plural
from fedopl.report.words.policy_labels import OutcomeWords, gain_over, is_arm, label, verdict
from fedopl.results.record import Record
from fedopl.results.reliance import Contradiction, LeftOut, Reliance, follows_from_sums
from fedopl.results.value_tables import BEST_ARM


def resting_on_clients(record: Record) -> Section | None:
    """The section; None with a single client, or if the run has no such information."""
    found = record.reliance
    if found is None or len(record.mixture) < 2:
        return None
    parts = (*_left_out(record, found), *_fitting(found))
    return Section(name="reliance", title="What rests on whom", parts=parts)


def _left_out(record: Record, found: Reliance) -> tuple[Part, ...]:
    if not found.left_out:
        return (Text("No other client reported values, so no client can be left out in turn."),)
    # Influence is measured on the exact linear policy, whatever was learned.
    moved = "the policy" if record.study.policy.can_be_resolved else "the exact linear policy"
    intro = (
        "A result that one client decides is only as reliable as what that client reported. Here "
        f"each of the {plural(len(found.left_out), 'client')} whose sums move {moved} most is left "
        f"out in turn. {_how_valued(record, found)}"
    )
    verdict = texts(_verdict(record, found))
    return folded_if_doubted(record, (Text(intro), _table(record, found), *verdict))


def _how_valued(record: Record, found: Reliance) -> str:
    """What was valued without a client, on which rows, and the meaning of a dash."""
    rows = record.study.evaluation.valued("rows")
    if not follows_from_sums(record.study, record.tree):
        return (
            f"No client was asked again: the gain is that on the others' {rows}. What "
            "the others would learn without it is not known (a dash): it cannot be computed "
            "from their sums, so they would have to be asked again."
        )
    by_fold = ", fold by fold" if record.study.evaluation.is_cross_fitted else ""
    dash = " A dash marks what was not valued, as a query holds only a few policies."
    if record.study.policy.compares_candidates:
        dash = " A dash marks that there is nothing to compare: both are the same candidate."
    return (
        "No client was asked again: what the others would have learned was computed from "
        f"their sums, and valued together with the learned policy, on the others' {rows}{by_fold}."
        + dash
        * (not all(one.difference for one in found.left_out))
    )


def _table(record: Record, found: Reliance) -> Table:
    unit, against = OutcomeWords.of(record.study).name, f"'{record.best_arm}'"
    if record.valued_arm == BEST_ARM:
        against = label(record.study, BEST_ARM)
    return Table(
        caption=f"The others without one client: gains in {unit} per decision, with 95 % intervals",
        headers=(
            "Left out",
            "Weight",
            f"Learned policy, over {against}",
            "What they would learn, over the best action",
            "Gain by leaving it out",
            "Clients that gain",
        ),
        rows=tuple(
            (
                one.client,
                percent(one.weight),
                *(
                    Span.of(estimate).in_lines if estimate else "–"
                    for estimate in (one.gain, one.gain_without, one.difference)
                ),
                f"{one.better_off} of {one.others}" if one.difference else "–",
            )
            for one in found.left_out
        ),
    )


def _verdict(record: Record, found: Reliance) -> str:
    changes = {one.client: changed_without(record, one) for one in found.left_out}
    said = [f"Without {client}, {change}." for client, change in changes.items() if change]
    if said:
        return " ".join(said)
    known = any(one.gain_without or one.difference for one in found.left_out)
    if known or record.study.policy.compares_candidates:
        is_whole = all(one.difference for one in found.left_out)
        as_far = "" if is_whole else ", as far as this was valued,"
        return f"None of them{as_far} alone decides what is recommended."
    if not any(one.gain for one in found.left_out):
        return ""
    return (
        "Without the rows of any one of them, what is said of the learned policy stays the same. "
        "Whether the others would have learned another one is not known."
    )


def _fitting(found: Reliance) -> tuple[Part, ...]:
    caveat = Text(
        "A client whose answers fit together can still report rows that it does not have, and "
        "several clients can agree on what is false.",
        quiet=True,
    )
    if not found.contradictions:
        return (Text("No client's answers contradict each other by more than chance."), caveat)
    items = tuple(f"{one.client}: {contradiction_in_words(one)}." for one in found.contradictions)
    return (Heading("Answers that do not fit"), Points(items), caveat)


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
        if record.in_doubt or one.difference is None:
            continue
        # Named where most others would demonstrably gain, by a noticeable part of their gain.
        least = NOTICED * abs(one.gain.value) if one.gain else 0.0
        is_shown = one.difference.interval()[0] > 0 and one.difference.value > least
        if is_shown and 2 * one.better_off > one.others:
            unit = OutcomeWords.of(record.study).name
            yield Caution(
                "Others lose by one client",
                f"Without {one.client}, the others would learn a policy that is worth "
                f"{Span.of(one.difference).number} {unit} more to them, and "
                f"{one.better_off} of {one.others} of them would gain.",
                "Its rows differ from theirs, or are not what it reports. Leave it out, or "
                "bound its weight.",
            )


def _weighs_most(record: Record) -> Iterator[Caution]:
    heaviest = max(sorted(record.mixture), key=lambda name: record.mixture[name])
    weight = record.mixture[heaviest]
    most = MOST_OF_TWO if len(record.mixture) == 2 else MOST_WEIGHT
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
