"""A client leaves a finished run: the policy is solved again from the sums of those who stay."""

from dataclasses import replace
from functools import partial

from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.results.membership import Change, Membership
from fedopl.results.record import Record
from fedopl.results.round import Round
from fedopl.results.sums.for_newcomers import all_but
from fedopl.results.sums.taken_rows import TakenRows
from fedopl.server.aggregate.federated_outcomes import solve_outcomes
from fedopl.server.membership.solve_again import (
    history_of,
    history_with,
    now,
    require_open,
    solved_again,
    without_answers,
)
from fedopl.study.joining_later import study_with, why_fixed
from fedopl.study.study import Study

# The solution from one client's sums would be that client's own policy, and reveal only its data.
FEWEST_LEFT = 2


def leave_run(record: Record, client: str) -> Record:
    """The run without this client; no client is asked."""
    require_open(record, why_fixed(record.study))
    _check_in(record, client)
    staying = [name for name in record.rows if name != client]
    history = history_of(record)
    if client in history.before.rows:
        history = replace(history, before=without_answers(history.before, [client]))
    change = Change(kind="left", client=client, when=now(), rows=record.rows[client])
    history = history_with(history, [change], clients=staying)
    fewer = _without(replace(record, study=_study_of(record.study, history)), client)
    return solved_again(replace(fewer, rounds=_rounds_of(fewer, history)), history)


def _check_in(record: Record, client: str) -> None:
    if client not in record.rows:
        raise OptionError(
            f"leave: '{client}' is not in this run; clients in it: {quoted(sorted(record.rows))}"
        )
    if len(record.rows) <= FEWEST_LEFT:
        raise OptionError(
            f"leave: at least {FEWEST_LEFT} clients must stay, and in this run there are no more "
            f"than {quoted(sorted(record.rows))}: the sums of one client alone would only give "
            "that client's own policy"
        )


def _study_of(study: Study, history: Membership) -> Study:
    """The original run's study, with the shares of all clients that joined later and stay.

    Shares of its own clients stay in the mixture. The share of a client that left has no effect.
    """
    if study.mixture.kind != "given":
        return study
    found, last = history.before.study, {change.client: change for change in history.changes}
    clients = [name for name in history.before.rows if name not in last]
    for change in history.changes:
        if change is last[change.client] and change.kind == "joined" and change.share is not None:
            found = study_with(found, [change.client], {change.client: change.share}, clients)
            clients.append(change.client)
    return found


def _without(record: Record, client: str) -> Record:
    """The record without this client's rows, weights and sums."""
    known, tree, weights, gone = record.statistics, record.tree, record.row_weights, [client]
    if tree:
        tree = replace(tree.restricted(all_but(tree.cells, gone)), study=record.study)
    return replace(
        record,
        rows=all_but(record.rows, gone),
        row_weights=weights and all_but(weights, gone),
        statistics=replace(
            known,
            study=record.study,
            sums=all_but(known.sums, gone),
            rows=all_but(known.rows, gone),
            borrowed=all_but(known.borrowed, gone),
            taken=known.taken and TakenRows(all_but(known.taken.by_client, gone)),
        ),
        tree=tree,
        for_newcomers=record.for_newcomers
        and record.for_newcomers.without(gone, partial(solve_outcomes, record.study)),
    )


def _rounds_of(record: Record, history: Membership) -> tuple[Round, ...]:
    """The exchanges of the original run, and those with clients that joined later and stay."""
    first = len(history.before.rounds)
    since = [one for one in record.rounds[first:] if set(one.asked) & record.rows.keys()]
    return (*record.rounds[:first], *since)
