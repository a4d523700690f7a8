"""How much the result depends on single clients, and answers that do not fit together."""

from fedopl.base.estimates import Estimate
from fedopl.report.explain.in_doubt import folded_if_doubted
from fedopl.report.parts import Heading, Part, Points, Section, Table, Text
from fedopl.report.reliance_cautions import changed_without, contradiction_in_words
from fedopl.report.words.numbers import Span, percent, plural
from fedopl.report.words.policy_labels import OutcomeWords, label
from fedopl.results.record import Record
from fedopl.results.reliance import LeftOut, Reliance, follows_from_sums
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
    intro = (
        "A result that one client decides is only as reliable as what that client reported. Here "
        f"each of the {plural(len(found.left_out), 'client')} whose sums move "
        f"{_what_is_moved(record)} most is left out in turn. {_how_valued(record, found)}"
    )
    verdict = _verdict(record, found)
    parts = (Text(intro), _table(record, found), *((Text(verdict),) if verdict else ()))
    return folded_if_doubted(record, parts)


def _what_is_moved(record: Record) -> str:
    """A note that influence is measured on the exact linear policy, whatever was learned."""
    return "the policy" if record.study.policy.can_be_resolved else "the exact linear policy"


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
        rows=tuple(_row(one) for one in found.left_out),
    )


def _row(one: LeftOut) -> tuple[str, ...]:
    gains = f"{one.better_off} of {one.others}" if one.difference else "–"
    estimates = (one.gain, one.gain_without, one.difference)
    return (one.client, percent(one.weight), *(_cell(e) for e in estimates), gains)


def _cell(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    span = Span.of(estimate)
    return f"{span.number}\n({span.interval})"


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
