"""Solves the policy of the clients that are there from their sums; a client leaves a finished run.

Descriptions, fits and interactions are one client's own answers: they are dropped when it leaves,
and said again when it is back. Values of a policy hold for the clients that valued it. Tables of
the earlier run and what was concluded from all clients together stay.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from fedopl.base.errors import OptionError
from fedopl.base.labels import quoted
from fedopl.policies.policy import Policy
from fedopl.results.descriptions import Descriptions
from fedopl.results.membership import Change, Membership, Valuation, policy_digest
from fedopl.results.record import Record, as_used
from fedopl.results.round import Round
from fedopl.results.sums.for_newcomers import Own, all_but, with_more
from fedopl.results.sums.robust_weights import weighed
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.taken_rows import TakenRows
from fedopl.results.sums.tree_statistics import Searched, TreeStatistics
from fedopl.results.value_tables import LEARNED, TABLES, PersonalTable
from fedopl.server.aggregate.federated_outcomes import solve_outcomes
from fedopl.server.aggregate.setting import Setting
from fedopl.server.exchange.answers import Answers
from fedopl.server.policy_comparison import Evaluated
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


def require_open(record: Record, why_not: str | None) -> None:
    """Raise an error if the clients of this run are fixed, or if it does not keep their sums."""
    if why_not:
        raise OptionError(f"clients: no client can join or leave this run: {why_not}")
    if record.for_newcomers is None or record.chosen != LEARNED or record.policy is None:
        raise OptionError(
            "clients: this run does not store the sums from which a policy is solved again; "
            "it was made by an earlier version, or only values policies. Run the study again"
        )


def setting_of(record: Record) -> Setting:
    """The setting for the sums in this record, with weights and terms by the study's rules."""
    by_fold = dict(record.for_newcomers.by_fold) if record.for_newcomers else {}
    # A new object: the old one caches results for its own set of clients.
    statistics = ScoreStatistics(
        study=record.study,
        sums=dict(sorted(record.statistics.sums.items())),
        rows=record.statistics.rows,
        borrowed=record.statistics.borrowed,
        taken=record.statistics.taken,
    )
    weights, statistics = weighed(statistics, record.counted, by_fold)
    trees = [Searched(own.solve(weights), own) for own in _trees_by_fold(record)]
    return Setting(
        study=record.study,
        rows=record.rows,
        row_weights=record.row_weights,
        weights=weights,
        statistics=statistics,
        by_fold=Answers(0, by_fold),
        trees_by_fold=trees,
        for_newcomers=record.for_newcomers,
    )


def _trees_by_fold(record: Record) -> list[TreeStatistics]:
    """The sums over the grid of the record's tree without each fold; none if there are none."""
    cells = record.for_newcomers.cells if record.for_newcomers else {}
    if record.tree is None or not cells:
        return []
    return [
        replace(record.tree, closer=None, cells={name: own[fold] for name, own in cells.items()})
        for fold in record.study.left_out[:-1]
    ]


def policy_of(record: Record, setting: Setting) -> Policy:
    """The policy solved from these sums; no client is asked."""
    solved = (record.tree or setting.statistics).solve(setting.weights)
    return as_used(solved, record.study)


def solved_again(record: Record, membership: Membership) -> Record:
    """The record with the policy solved from its sums, and only the values of that policy.

    If the present clients are exactly those of the original run, all results about its policy hold
    again.
    """
    setting = setting_of(record)
    solved = replace(
        record,
        policy=policy_of(record, setting),
        best_arm=setting.best_arm,
        mixture=setting.weights,
        statistics=setting.statistics,
        membership=membership,
    )
    before = membership.before
    same = policy_digest(solved.policy) == policy_digest(before.policy)
    if same and solved.mixture == before.mixture and solved.rows == before.rows:
        return replace(solved, **{name: getattr(before, name) for name in _SAID_OF_POLICY})
    return replace(solved, **{name: empty() for name, empty in _SAID_OF_POLICY.items()})


# What clients said of a policy, by field of the record, and what stands there if they said nothing.
_SAID_OF_POLICY: dict[str, Callable[[], Any]] = {
    **TABLES,
    "personal": PersonalTable,  # each was moved from what others had learned who were in then
    "described": lambda: None,
    "fitted": dict,
    "interactions": dict,
    "leaves": tuple,
    "diagnosis": lambda: None,
    "reliance": lambda: None,
    "doubt_then": lambda: None,
}


def history_of(record: Record) -> Membership:
    """Who joined or left so far; no changes if the clients are those of the original run."""
    if record.membership:
        return record.membership
    without_sums = ScoreStatistics(
        study=record.study, sums={}, rows={}, choice=record.statistics.choice
    )
    # Only a record's fields: a run in one process also has ledgers, which do not belong here.
    fields = {name: getattr(record, name) for name in Record.__dataclass_fields__}
    fields |= {"statistics": without_sums, "tree": None, "for_newcomers": None}
    return Membership(changes=(), valuations=(Valuation.of(record),), before=Record(**fields))


def history_with(
    membership: Membership,
    changes: Collection[Change],
    *,
    valued: Valuation | None = None,
    clients: Collection[str],
) -> Membership:
    """The history with these changes added, and only the values of the present `clients`."""
    valuations = (*membership.valuations, *([valued] if valued else []))
    kept = (one.by_clients(clients) for one in valuations)
    return replace(
        membership,
        changes=(*membership.changes, *changes),
        valuations=tuple(one for one in kept if one.values),
    )


def now() -> str:
    """The present time as text, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def without_answers(before: Record, clients: Collection[str]) -> Record:
    """The run without these clients' own answers; what they put in doubt stays in doubt."""
    described = before.described
    if described:
        kept = all_but(described.by_client, clients)
        described = replace(described, by_client=kept) if kept else None
    return replace(
        before,
        described=described,
        fitted=all_but(before.fitted, clients),
        interactions=all_but(before.interactions, clients),
        doubt_then=before.in_doubt or "",
    )


def with_answers(before: Record, told: Evaluated) -> Record:
    """The run with the answers of clients that are back and said them of the same policy again."""
    return replace(
        before,
        described=_both(before.described, told.described, before.rows),
        fitted=_with(before.fitted, told.fitted, before.rows),
        interactions=_with(before.interactions, told.interactions, before.rows),
    )


def _both(
    first: Descriptions | None, again: Descriptions | None, clients: Collection[str]
) -> Descriptions | None:
    if first is None or again is None:
        return first or again
    if not np.array_equal(first.cuts, again.cuts):
        return first
    return replace(first, by_client=_with(first.by_client, again.by_client, clients))


def _with(first: Mapping[str, Own], new: Mapping[str, Own], who: Collection[str]) -> dict[str, Own]:
    """All of the first, and what clients of the run say again that is not there any more."""
    return with_more({name: own for name, own in new.items() if name in who}, first)
