"""A client joins a finished run: it answers the questions of the run, and its sums are added.

The newcomer's rows are scored with outcome models from all clients' sums, including its own, as in
a run with all clients. The others are not asked again, so their scores do not change.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import FederationError
from fedopl.base.labels import GLOBAL
from fedopl.messages.learning.score_sums import ScoreSumsByFold
from fedopl.messages.refusal import in_words
from fedopl.messages.trees.cell_sums import CellSums
from fedopl.messages.trees.threshold_gains import SumNearThresholds
from fedopl.policies.policy import Policy
from fedopl.policies.trees.second_look import look_close
from fedopl.results.membership import Change, Valuation, policy_digest
from fedopl.results.model_doubts import why_in_doubt
from fedopl.results.record import Record
from fedopl.results.round import in_a_row
from fedopl.results.sums.for_newcomers import with_more
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.taken_rows import TakenRows
from fedopl.results.sums.tree_statistics import ThresholdsMoved, TreeStatistics
from fedopl.results.value_tables import LEARNED, TABLES
from fedopl.server.aggregate.setting import Setting
from fedopl.server.enrol_and_score import enrol_clients, score
from fedopl.server.exchange.answers import Answers
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.membership.solve_again import (
    history_of,
    history_with,
    now,
    policy_of,
    require_open,
    setting_of,
    solved_again,
    with_answers,
)
from fedopl.server.oracles.tree_search import asking_for_cells
from fedopl.server.policy_comparison import Candidates, Evaluated
from fedopl.study.joining_later import why_no_newcomer
from fedopl.study.study import Study


def join_run(record: Record, conversation: Conversation, shares: Mapping[str, float]) -> Record:
    """The run with the newcomers, which are the clients of the conversation. Only they are asked.

    The conversation's study is the one that the newcomers agree to. If its mixture gives shares,
    theirs are in `shares`.
    """
    require_open(record, why_no_newcomer(record.study))
    newcomers = conversation.transport.clients
    both = _with_sums(replace(record, study=conversation.study), conversation)
    both = _with_second_look(both, conversation)
    setting = setting_of(both)
    valued, told = valued_by(newcomers, policy_of(both, setting), setting, conversation)
    rounds = in_a_row([record.rounds, conversation.rounds])
    history = history_of(record)
    if valued.policy == policy_digest(history.before.policy):
        history = replace(history, before=with_answers(history.before, told))
    new = rounds[len(record.rounds) :]
    changes = [
        Change(
            kind="joined",
            client=name,
            when=now(),
            rows=both.rows[name],
            share=shares.get(name),
            exchanges=len(new),
            bytes_received=sum(one.received.get(name, 0) for one in new),
        )
        for name in newcomers
    ]
    history = history_with(history, changes, valued=valued, clients=both.rows)
    return solved_again(replace(both, rounds=rounds), history)


def _with_sums(record: Record, conversation: Conversation) -> Record:
    """The record with the newcomers' sums added to the earlier ones."""
    before = record.for_newcomers
    enrolled = enrol_clients(conversation, before)
    _require_all(conversation, enrolled.counted.rows)
    told, along = score(conversation, enrolled, personal=False)
    _require_all(conversation, told.sums)
    counted = enrolled.counted
    cells = _cells_of(record.tree, along.cells, conversation) if record.tree else {}
    by_fold: Mapping[str, ScoreSumsByFold] = along.by_fold or {}
    return replace(
        record,
        rows=with_more(record.rows, counted.rows),
        row_weights=with_more(record.row_weights or {}, counted.weights or {}) or None,
        statistics=_both(record.statistics, told, record.study),
        tree=record.tree
        and replace(
            record.tree,
            study=conversation.study,
            cells=with_more(record.tree.cells, {n: own[-1] for n, own in cells.items()}),
        ),
        for_newcomers=before
        and before.adding(
            enrolled.summed,
            by_fold,
            # As in a run, a client without sums by fold is in no tree without a fold.
            {name: own[:-1] for name, own in cells.items() if len(own) > 1 and name in by_fold},
        ),
    )


def _both(before: ScoreStatistics, told: ScoreStatistics, study: Study) -> ScoreStatistics:
    """The earlier sums and those of the newcomers."""
    taken = before.taken
    if taken and told.taken:
        taken = TakenRows({**taken.by_client, **told.taken.by_client})
    return replace(
        before,
        study=study,
        sums=with_more(before.sums, told.sums),
        rows=with_more(before.rows, told.rows),
        borrowed=with_more(before.borrowed, told.borrowed),
        taken=taken,
    )


def _cells_of(
    tree: TreeStatistics, cells: Answers[CellSums] | None, conversation: Conversation
) -> dict[str, FloatArray]:  # by client, (n_versions, n_cells, n_numbers)
    """The newcomers' sums over the run's grid: without each fold, and at last in all rows."""
    if cells is None:
        query = asking_for_cells(tree.study, tree.grid)
        cells = conversation.each(query, conversation.transport.clients)
    _require_all(conversation, cells)
    return {name: own.cells for name, own in cells.items()}


def _with_second_look(record: Record, conversation: Conversation) -> Record:
    """The record with newcomers' sums at thresholds near the tree's, if the tree is the same.

    A different tree keeps the thresholds of the grid, as no other client is asked about nearby
    ones.
    """
    tree = record.tree
    if tree is None or tree.closer is None:
        return record
    setting = setting_of(record)
    if not tree.is_looked_at_twice(setting.weights):
        return record
    look = tree.closer.look
    # Trees without a fold stay on the grid, as nobody else is asked about them.
    staying = [
        look_close(own.policy.root, tree.grid, lambda _: []) for own in setting.trees_by_fold
    ]
    query = SumNearThresholds.of([*staying, look])
    answers = conversation.each(query, conversation.transport.clients)
    own = {
        name: told.gains[len(told.gains) - len(look.questions) :] for name, told in answers.items()
    }
    gains = with_more(tree.closer.gains, own)
    return replace(record, tree=replace(tree, closer=ThresholdsMoved(look, gains)))


def _require_all(conversation: Conversation, answered: Collection[str]) -> None:
    """Raise an error with the reasons, if a newcomer gave no usable answer."""
    lacking = sorted(set(conversation.transport.clients) - set(answered))
    if not lacking:
        return
    found: dict[str, str] = {}
    for one in conversation.rounds:
        for name in lacking:
            if code := one.refused.get(name):
                found[name] = f"refused ({code}): {in_words(code).why}. {in_words(code).remedy}"
            elif why := one.rejected.get(name):
                found[name] = why
    reasons = "; ".join(f"{name}: {found.get(name, 'no answer')}" for name in lacking)
    raise FederationError(f"join: a client cannot join without its sums. {reasons}")


def valued_by(
    newcomers: Collection[str], policy: Policy, setting: Setting, conversation: Conversation
) -> tuple[Valuation, Evaluated]:
    """The values of the policy, the best arm and other arms, and all that newcomers said of it."""
    study = setting.study
    candidates = Candidates(study, {})
    candidates.policies[LEARNED] = policy
    candidates.add_arms(setting)
    candidates.add_by_fold(setting, LEARNED)
    describe = study.evaluation.describe
    told = candidates.evaluate(setting, conversation, LEARNED, describe=describe, asked=newcomers)
    valued = Valuation(
        policy=policy_digest(policy),
        **{kind: getattr(told, kind) for kind in TABLES},
        in_doubt=tuple(name for name in sorted(newcomers) if _is_in_doubt(name, told, setting)),
    ).by_clients(newcomers if told.gains.rows else ())
    return valued, told


def _is_in_doubt(name: str, told: Evaluated, setting: Setting) -> bool:
    """Whether a client's answers put the models in doubt, judged as if it were the only client."""
    rows = {kind: (row for row in getattr(told, kind) if row.client == name) for kind in TABLES}
    tables: dict[str, Any] = {
        kind: TABLES[kind](replace(row, client=GLOBAL) for row in own) for kind, own in rows.items()
    }
    alone = Record(
        study=setting.study,
        policy=None,
        chosen=LEARNED,
        best_arm=setting.best_arm,
        mixture={name: 1.0},
        rows={name: setting.rows[name]},
        **tables,
        rounds=(),
        statistics=setting.statistics,
        described=told.described,
        fitted={client: fit for client, fit in told.fitted.items() if client == name},
    )
    return why_in_doubt(alone) is not None
