"""Every message that may cross the door. There are no others, and none can hold a row."""

from functools import lru_cache
from typing import Any

from fedopl.messages.about_differences import (
    ClassifyContexts,
    CompareModels,
    TellModels,
    TellMoments,
)
from fedopl.messages.about_masks import MaskedSums, ShareSecrets, TakeRoster, TellKeys, Unmask
from fedopl.messages.about_target import BalanceContexts, TellContexts, ValueAtTarget
from fedopl.messages.evaluation.description import Describe
from fedopl.messages.evaluation.interactions_left import TellInteractions
from fedopl.messages.evaluation.model_fit import TellFit
from fedopl.messages.evaluation.policy_values import Value
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.outcome_sums import SumOutcomes, TellWeight
from fedopl.messages.learning.policy_steps import ImprovePolicy, SlopeOfValue, TrainNetwork
from fedopl.messages.learning.score_sums import SumByFold, SumContrasts, SumPairs, SumScores
from fedopl.messages.learning.term_screening import ScreenJumps, ScreenProducts, TakeFound
from fedopl.messages.message import Message, Query
from fedopl.messages.private.noised_scores import (
    LookPrivately,
    SumCandidates,
    SumCellsPrivately,
    ValueApart,
    ValuePrivately,
)
from fedopl.messages.private.noised_sums import (
    MeasureNumbers,
    SumPrivately,
    SumResiduals,
    TakeRanges,
)
from fedopl.messages.refusal import Refusal
from fedopl.messages.sensitivity import declared_moves
from fedopl.messages.trees.bin_counts import CountBins
from fedopl.messages.trees.cell_sums import SumCells
from fedopl.messages.trees.threshold_gains import SumNearThresholds
from fedopl.study.study import Study

# In the order of their codes; a new one comes last.
QUERIES: tuple[type[Query[Any]], ...] = (
    Enrol,
    SumOutcomes,
    SumScores,
    SumPairs,
    ImprovePolicy,
    SlopeOfValue,
    Describe,
    CountBins,
    SumCells,
    TellModels,
    CompareModels,
    ClassifyContexts,
    TellMoments,
    TellFit,
    SumByFold,
    TellWeight,
    SumNearThresholds,
    TrainNetwork,
    ScreenProducts,
    TakeFound,
    SumPrivately,
    SumResiduals,
    ValuePrivately,
    SumCellsPrivately,
    LookPrivately,
    SumCandidates,
    TellKeys,
    TakeRoster,
    ScreenJumps,
    Unmask,
    SumContrasts,
    MeasureNumbers,
    TakeRanges,
    TellContexts,
    ValueAtTarget,
    ValueApart,
    ShareSecrets,
    TellInteractions,
    BalanceContexts,
    Value,
)
# Queries that come before the study's terms and units of measurement are known.
FIRST_QUERIES: tuple[type[Query[Any]], ...] = (
    Enrol,
    ScreenProducts,
    ScreenJumps,
    TellKeys,
    TakeRoster,
    ShareSecrets,
    MeasureNumbers,
    Unmask,
)
# Names in ledgers and records of version 0.2.0, and what asks the same now.
_NAMED_BEFORE: dict[str, type[Query[Any]]] = {
    **dict.fromkeys(("EstimateValues", "ValueOutcome", "ValueAcrossFolds", "ValueLeaves"), Value),
    **dict.fromkeys(("ValuePersonal", "ValuePersonalTree", "ValuePersonalChoice"), Value),
    **dict.fromkeys(("ValuePrices", "ValueTrees", "ValueSpending"), Value),
    "ValueJointly": ValueAtTarget,
    "SumFitting": SumByFold,
}
QUERY_NAMED = _NAMED_BEFORE | {query.__name__: query for query in QUERIES}
MESSAGES: dict[int, type[Message]] = {
    message.code: message for query in QUERIES for message in (query, query.answer)
} | {other.code: other for other in (Refusal, MaskedSums)}


# Cached, as many clients of one study may run in one process.
@lru_cache(16)
def queries_of(study: Study) -> frozenset[type[Query[Any]]]:
    """The queries this study needs; a client answers no others.

    With differential privacy, these are only queries whose answers declare how far a row moves
    them.
    """
    asked = QUERIES if study.is_screened else FIRST_QUERIES
    needed = frozenset(query for query in asked if query.needed(study))
    return frozenset(filter(is_private, needed)) if study.privacy else needed


def is_private(query: type[Query[Any]]) -> bool:
    """Whether every field of its answer declares how far a row can move it."""
    return all(declared_moves(query.answer).values())
