"""Every message that may cross the door. There are no others, and none can hold a row."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from fedopl.messages.client_differences import (
    ClassifyContexts,
    CompareModels,
    TellModels,
    TellMoments,
)
from fedopl.messages.learning import (
    Enrol,
    ImprovePolicy,
    SlopeOfValue,
    SumFitting,
    SumOutcomes,
    SumPairs,
    SumScores,
)
from fedopl.messages.message import Message, Query
from fedopl.messages.policy_values import Describe, EstimateValues
from fedopl.messages.refusal import Refusal
from fedopl.messages.tree_sums import CountBins, SumCells, ValueLeaves
from fedopl.study.study import Study


def _always(_study: Study) -> bool:
    return True


def _asks_whether_joining_pays(study: Study) -> bool:
    return study.joining.diagnose


# Which studies ask each query. In the order of their codes; a new one comes last.
QUERIES: dict[type[Query[Any]], Callable[[Study], bool]] = {
    Enrol: _always,
    SumOutcomes: lambda study: study.nuisances.kind == "federated",
    SumScores: _always,
    SumPairs: lambda study: study.linear.oracle == "wap",
    ImprovePolicy: lambda study: study.linear.oracle in ("csoaa-sgd", "csoaa-vw"),
    SlopeOfValue: lambda study: study.linear.oracle == "direct",
    EstimateValues: _always,
    Describe: lambda study: study.evaluation.describe,
    CountBins: lambda study: study.policy.on_grid and bool(study.cut_columns),
    SumCells: lambda study: study.policy.on_grid,
    ValueLeaves: lambda study: study.values_leaves,
    TellModels: _asks_whether_joining_pays,
    CompareModels: _asks_whether_joining_pays,
    ClassifyContexts: _asks_whether_joining_pays,
    TellMoments: _asks_whether_joining_pays,
    SumFitting: lambda study: study.mixture.kind == "path",
}
QUERY_NAMED = {query.__name__: query for query in QUERIES}
MESSAGES: dict[int, type[Message]] = {
    message.code: message for query in QUERIES for message in (query, query.answer)
} | {Refusal.code: Refusal}


# Many clients of one study may be in one process, so it is worked out once for all of them.
@lru_cache(16)
def queries_of(study: Study) -> frozenset[type[Query[Any]]]:
    """The queries this study needs; a client answers no others."""
    return frozenset(query for query, needed in QUERIES.items() if needed(study))
