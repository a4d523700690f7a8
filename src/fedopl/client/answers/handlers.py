"""Who answers what: the function for every query that a client answers."""

from collections.abc import Callable
from typing import Any

from fedopl.client.answers.diagnosis import (
    classify_contexts,
    compare_models,
    tell_models,
    tell_moments,
)
from fedopl.client.answers.evaluation import describe, estimate_values
from fedopl.client.answers.learning import (
    enrol,
    improve_policy,
    slope_of_value,
    sum_fitting,
    sum_outcomes,
    sum_pairs,
    sum_scores,
)
from fedopl.client.answers.trees import count_bins, sum_cells, value_leaves
from fedopl.client.workspace import Workspace
from fedopl.messages.diagnosis.classifier_sums import ClassifyContexts
from fedopl.messages.diagnosis.client_models import TellModels
from fedopl.messages.diagnosis.model_shifts import CompareModels
from fedopl.messages.diagnosis.score_moments import TellMoments
from fedopl.messages.evaluation.description import Describe
from fedopl.messages.evaluation.policy_values import EstimateValues
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.improved_policy import ImprovePolicy
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.learning.pair_sums import SumPairs
from fedopl.messages.learning.score_sums import SumFitting, SumScores
from fedopl.messages.learning.value_slope import SlopeOfValue
from fedopl.messages.message import Message, Query
from fedopl.messages.trees.bin_counts import CountBins
from fedopl.messages.trees.cell_sums import SumCells
from fedopl.messages.trees.leaf_values import ValueLeaves

HANDLERS: dict[type[Query[Any]], Callable[[Workspace, Any], Message]] = {
    Enrol: enrol.answer,
    SumOutcomes: sum_outcomes.answer,
    SumScores: sum_scores.answer,
    SumFitting: sum_fitting.answer,
    SumPairs: sum_pairs.answer,
    ImprovePolicy: improve_policy.answer,
    SlopeOfValue: slope_of_value.answer,
    CountBins: count_bins.answer,
    SumCells: sum_cells.answer,
    EstimateValues: estimate_values.answer,
    Describe: describe.answer,
    ValueLeaves: value_leaves.answer,
    TellModels: tell_models.answer,
    CompareModels: compare_models.answer,
    ClassifyContexts: classify_contexts.answer,
    TellMoments: tell_moments.answer,
}
