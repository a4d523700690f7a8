"""Which clients joined or left a run after it finished, and what is known about the new policy."""

from fedopl.base.labels import quoted
from fedopl.report.parts import Part, Points, Section, Table, Text
from fedopl.report.words.numbers import Span, count, size
from fedopl.report.words.policy_labels import OutcomeWords, label, opened
from fedopl.results.membership import (
    Change,
    Membership,
    Valuation,
    known_of_it,
    since_then,
    who_changed,
)
from fedopl.results.record import Record
from fedopl.results.value_tables import LOCAL, LOGGING, Row, arm_name

_AS_BEFORE = (
    "Clients joined and left after the run. The present clients are again those of the run, and "
    "their sums give the same policy. All results below are those of the run."
)


def who_is_in(record: Record) -> Section | None:
    """The section; None if the clients are those of the original run."""
    membership = record.membership
    if membership is None:
        return None
    parts: tuple[Part, ...] = (_changes(membership.changes),)
    if record.values.rows:
        parts = (Text(_AS_BEFORE), *parts)
    else:
        intro = (
            f"After the run, {who_changed(membership)}. The policy was solved again from the sums "
            f"of the present clients: {quoted(sorted(record.rows))}. "
            f"{'No other client' if membership.joined else 'No client'} was asked anything."
        )
        before = f"About the earlier policy, the run says: {opened(membership.before.verdict)}"
        parts = (Text(intro), *parts, *_known(record, membership), Text(before))
    return Section(name="members", title="Who is in", parts=parts)


def _changes(changes: tuple[Change, ...]) -> Table:
    return Table(
        caption="Who joined and who left, the first first (times are UTC)",
        headers=("Client", "What", "When", "Rows learned from", "What it was asked"),
        rows=tuple(
            (one.client, one.kind, one.when.replace("T", " ")[:16], count(one.rows), _asked(one))
            for one in changes
        ),
        text_columns=(1, 2),
    )


def _asked(change: Change) -> str:
    if change.kind == "left":
        return "nothing"
    return f"{count(change.exchanges)} questions, {size(change.bytes_received)} of answers"


def _known(record: Record, membership: Membership) -> tuple[Part, ...]:
    """What clients report about the current policy, and what is not known."""
    known = membership.of_policy(record.policy)
    table = (_gains(record, known),) if known.gains else ()
    unknown = [
        "What the policy is worth for all together: clients that were not asked have not "
        "valued it, and the sums that it was learned from cannot show what it is worth on "
        "other rows.",
        *since_then(record, membership)[:-1],
    ]
    if record.tree and record.tree.closer and record.second_look is None:
        unknown.append(
            "Where thresholds close to those of the grid would lie: clients were asked about "
            "the thresholds of the earlier tree, and this tree has other questions."
        )
    if record.study.personalises:
        unknown.append(
            "What personal policies would be now: those of the earlier run started from what "
            "all other clients of that time had learned, and no client solved for a new one. "
            "A new run with all present clients has them again."
        )
    return (
        Text(known_of_it(record, membership)),
        *table,
        Text("What is not known, and what has not changed:"),
        Points(tuple(unknown)),
    )


def _gains(record: Record, known: Valuation) -> Table:
    against = {
        name: f"Over {label(record.study, name)}"
        for name in (LOGGING, arm_name(record.best_arm), LOCAL)
    }
    rows = {(row.against, row.client): row for row in known.gains}
    clients = sorted({row.client for row in known.gains})
    unit = OutcomeWords.of(record.study).name
    return Table(
        caption=f"Gain of the policy as it is now in {unit} per decision, at the clients that "
        "valued it, with 95 % intervals (positive is better)",
        headers=("Client", "Held-out rows", *against.values()),
        rows=tuple(
            (
                client,
                count(min(one.estimate.n_rows for one in known.gains if one.client == client)),
                *(_cell(rows.get((name, client)), client in known.in_doubt) for name in against),
            )
            for client in clients
        ),
    )


def _cell(row: Row | None, in_doubt: bool) -> str:
    if row is None:
        return "not told"
    span = Span.of(row.estimate, row.level)
    return f"{'in doubt' if in_doubt else span.number}\n({span.interval})"
