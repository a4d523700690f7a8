"""Clients enrol, score their rows, and send the sums that learning starts from."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fedopl.base.errors import FederationError
from fedopl.messages.combining import combined
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.outcome_sums import OutcomeSums, SumOutcomes, TellWeight
from fedopl.messages.learning.score_sums import (
    ContrastSquares,
    ScoreSums,
    ScoreSumsByFold,
    SumByFold,
    SumContrasts,
    SumScores,
)
from fedopl.messages.learning.term_screening import TakeFound
from fedopl.messages.message import Query
from fedopl.messages.trees.cell_sums import CellSums
from fedopl.policies.trees.grid import agreed_grid
from fedopl.results.sums.for_newcomers import ForNewcomers
from fedopl.results.sums.noise_weights import Borrowed
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.results.sums.taken_rows import TakenRows
from fedopl.server.aggregate.federated_outcomes import (
    solve_outcomes,
    unsupported_models,
    without_models,
)
from fedopl.server.exchange.answers import Answers
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange_counts import cells_come_along
from fedopl.server.oracles import tree_search
from fedopl.study.mixture import Counted


class Enrolled(NamedTuple):
    """What determines clients' weights, which actions some clients lack, and how to score rows."""

    counted: Counted
    borrowed: Borrowed
    query: SumScores
    taken: TakenRows | None = None  # if the study is cautious
    summed: Mapping[str, OutcomeSums] = MappingProxyType({})  # the sums behind outcome models
    total: OutcomeSums | None = None  # of these sums and of those of earlier clients
    clipped: Mapping[str, int] = MappingProxyType({})  # numbers beyond agreed ranges, by client


def enrol_clients(conversation: Conversation, before: ForNewcomers | None = None) -> Enrolled:
    """Enrol all clients; return what determines their weights, and how to score their rows.

    The numbers that determine weights are fixed from here on. The result also says which actions a
    client has no rows of, or too few to report. Clients that were there `before` are not asked
    again, but their sums count in outcome models.

    One round trip asks for everything. If a client does not enrol, its sums are left out. A client
    is not enrolled if its sums come from other rows than it enrolled with, or if their weight is
    not what it reports.
    """
    study = conversation.study
    first = [TakeFound.of(study)] if TakeFound.needed(study) else []
    others = [query() for query in (Enrol, TellWeight, SumOutcomes) if query.needed(study)]
    asked: list[Query[Any]] = [*first, *others]
    queries = [type(query) for query in asked]
    answers = dict(
        zip(queries, conversation.together(conversation.transport.clients, *asked), strict=True)
    )
    sums, told = answers.get(SumOutcomes), answers.get(TellWeight)
    enrolled = conversation.drop(
        answers[Enrol],
        lambda name, _: conversation.checks.fault_in_enrolment(name, sums, told),
    )
    rows = {name: a.n_rows for name, a in conversation.require_quorum(enrolled).items()}
    weights = None if told is None else {name: told[name].weight for name in rows}
    counted = Counted(rows=rows, weights=weights)
    borrowed = {name: enrolled[name].rows_per_action <= 0 for name in rows}
    borrowed = {name: own for name, own in borrowed.items() if own.any()}
    clipped = {name: enrolled[name].clipped for name in rows} if study.ranges else {}
    if sums is None:
        return Enrolled(counted, borrowed, without_models(study), clipped=clipped)
    absent = {name: "did not enrol" for name in sums if name not in rows}
    usable = conversation.reject(sums, absent)
    # Sums of one client are enough: clients that cannot contribute to the models may still use
    # them. If no client can contribute, each client fits what models it can by itself.
    doubts = study.is_cautious or study.doubts_leaves
    if not usable and doubts and before is None:
        raise FederationError(
            "caution: no client released the sums that standard errors are computed from; set "
            "caution = 0 under [policy]"
        )
    taken = TakenRows.of_answers(usable) if doubts else None
    if before and before.models:
        # A client of the run left, and its total with it: newcomers get the models of that run.
        return Enrolled(counted, borrowed, before.models, taken, usable, clipped=clipped)
    parts = before.adding(usable, {}, {}).outcome_sums() if before else usable
    if not parts:
        return Enrolled(counted, borrowed, unsupported_models(study), clipped=clipped)
    total = combined(parts, weights={})
    models = solve_outcomes(study, total)
    return Enrolled(counted, borrowed, models, taken, usable, total, clipped)


class ToldAlong(NamedTuple):
    """What clients sent along with the sums of scores, if the study asks for it."""

    by_fold: Answers[ScoreSumsByFold] | None
    cells: Answers[CellSums] | None
    contrasts: Answers[ContrastSquares] | None


def score(
    conversation: Conversation, enrolled: Enrolled, *, personal: bool = True
) -> tuple[ScoreStatistics, ToldAlong]:
    """Have every client score its rows and sum up; clients that cannot are left out.

    The same round trip asks for more if the study needs it:

    - sums by fold, if values are cross-fitted or terms are chosen,
    - sums over a tree's grid, if all its thresholds are known beforehand,
    - how far scores differ between actions, if clients have personal policies and `personal` is
      true.
    """
    study, rows = conversation.study, enrolled.counted.rows
    along: dict[str, Query[Any]] = {}
    if SumByFold.needed(study):
        along["by fold"] = SumByFold()
    if cells_come_along(study):
        grid = agreed_grid(study.tree, study.columns, {})
        along["cells"] = tree_search.asking_for_cells(study, grid)
    if personal and SumContrasts.needed(study):
        along["contrasts"] = SumContrasts()
    answers, *others = conversation.together(rows, enrolled.query, *along.values())
    found = dict(zip(along, others, strict=True))
    if "by fold" in found:
        answers, found["by fold"] = _both(conversation, answers, found["by fold"])
    sums = conversation.require_quorum(answers)
    if not any(own.has_sums for own in sums.values()):
        raise FederationError(
            f"no client has enough rows for sums of {study.n_terms + 1:,} terms (parameter_share); "
            "use fewer features or terms: `fedopl check` says with how many everybody takes part"
        )
    statistics = ScoreStatistics(
        study=study,
        sums=sums,
        rows={name: rows[name] for name in sums},
        borrowed=enrolled.borrowed,
        taken=enrolled.taken,
    )
    return statistics, ToldAlong(found.get("by fold"), found.get("cells"), found.get("contrasts"))


def _both(
    conversation: Conversation, sums: Answers[ScoreSums], by_fold: Answers[ScoreSumsByFold]
) -> tuple[Answers[ScoreSums], Answers[ScoreSumsByFold]]:
    """Sums of all rows and by fold, neither of a client whose other sums cannot be true."""
    impossible = conversation.rounds[by_fold.exchange].rejected
    sums = conversation.reject(
        sums, {name: impossible[name] for name in sums if name in impossible}
    )
    alone = {name: "its sums of all rows cannot be used" for name in by_fold if name not in sums}
    return sums, conversation.reject(by_fold, alone)
