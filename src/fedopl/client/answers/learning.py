"""Answers that a policy is learned from: counts, sums of scores, local steps and a gradient."""

from functools import lru_cache

import numpy as np

from fedopl.base.arrays import frozen
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.local.local_policy import means_by_fold
from fedopl.client.local.local_training import ScoredStudyRows
from fedopl.client.local.network_steps import LOSSES, Steps, dealt, losses, trained
from fedopl.client.local.score_means import pair_means, value_slope
from fedopl.client.rows.chunk_reader import n_clipped
from fedopl.client.scoring.outcome import GivenModels
from fedopl.client.workspace import Workspace
from fedopl.messages.learning.enrolment import Enrol, Enrolment
from fedopl.messages.learning.outcome_sums import OutcomeSums, SumOutcomes, TellWeight, TotalWeight
from fedopl.messages.learning.policy_steps import (
    ImprovedPolicy,
    ImprovePolicy,
    Slope,
    SlopeOfValue,
    TrainedNetwork,
    TrainNetwork,
)
from fedopl.messages.learning.score_sums import (
    PairSums,
    ScoreSums,
    ScoreSumsByFold,
    SumByFold,
    SumPairs,
    SumScores,
)
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.neural import network_numbers, network_of, widths_in


def enrol(space: Workspace, _query: Enrol) -> Enrolment:
    """The number of training rows, in all and by action; counts of a few are left out."""
    counts = space.rows_per_action
    shown = np.where(counts < space.limits.minimum_cell, 0, counts)
    return Enrolment(
        n_rows=int(counts.sum()),
        rows_per_action=shown.astype(np.float64),
        clipped=n_clipped(space.study_rows.given, space.study),
    )


def tell_weight(space: Workspace, _query: TellWeight) -> TotalWeight:
    """The total weight of training rows; their number, where rows have no weights."""
    found = space.study_rows.training_weight
    return TotalWeight(weight=float(space.n_training) if found is None else found)


def sum_outcomes(space: Workspace, _query: SumOutcomes) -> OutcomeSums:
    """Sums for the outcome models of each fold and action; zeros where a few rows are in it."""
    sums, squared_weights = space.outcome_sums()
    few = space.rows_by_fold_action < space.limits.minimum_cell
    if not space.adds_terms:
        few = np.ones_like(few)
    if few.any():
        sums[few], squared_weights[few] = 0.0, 0.0
    return OutcomeSums(sums=sums, squared_weights=squared_weights)


def sum_scores(space: Workspace, query: SumScores) -> ScoreSums:
    """Score all rows with the models of the query, or with own ones, and sum the training rows."""
    expected = space.study.n_outcome_models
    if len(query.models) != expected or len(query.supported) != expected:
        raise RefusedError(RefusalCode.MALFORMED)
    space.new_scores = space.scored_with(_models_in(query))
    sums = ScoreSums(**vars(space.score_means(space.new_scores)))
    return sums if space.adds_terms else sums.without_sums()


def sum_by_fold(space: Workspace, _query: SumByFold) -> ScoreSumsByFold:
    """Sums of scores by fold; zeros for folds without rows, and by the rule on terms."""
    sizes = space.rows_by_fold_action.sum(axis=1)
    # Groups stay together: if all rows are in one fold, nothing is learned without it.
    if sizes.max() == sizes.sum():
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    rows = space.study_rows
    found = means_by_fold(
        space.scored.of(rows.chunks_in_terms()),
        rows,
        space.blocks,
        complete=bool(space.scored.is_complete) and not space.scored.hidden.any(),
    )
    return found if space.adds_terms else found.without_sums()


@lru_cache(1)  # clients in one process get the same query
def _models_in(query: SumScores) -> GivenModels:
    """The models of the query, NaN where there is none."""
    return GivenModels(frozen(np.where(query.supported[..., None] > 0, query.models, np.nan)))


def sum_pairs(space: Workspace, _query: SumPairs) -> PairSums:
    """Means for every pair of actions; a row's weight is the difference that the choice makes."""
    check_terms(space)
    n_actions, n_features = space.study.n_actions, space.study.n_features
    grams, products = pair_means(space.chunks(), n_actions, n_features)
    return PairSums(grams=grams, products=products)


def check_terms(space: Workspace) -> None:
    """Refuse sums of terms, by the rule on rows for each term."""
    if not space.adds_terms:
        raise RefusedError(RefusalCode.TOO_MANY_PARAMETERS)


def improve_policy(space: Workspace, query: ImprovePolicy) -> ImprovedPolicy:
    """The parameters after the local steps of one round (Algorithm 2)."""
    check_terms(space)
    if not 0 <= query.round < space.study.linear.training.rounds:
        raise RefusedError(RefusalCode.MALFORMED)
    if space.limits.minimum_cell:
        space.history.require_first("scaling", centre=query.centre, scale=query.scale)
        space.history.require_first(f"round {query.round}", parameters=query.parameters)
    training = space.local_training
    scored = ScoredStudyRows(space.study_rows.given, space.chunks, space.scored)
    rows = training.examples(scored, query.centre, query.scale)
    improved = training.improved(query.parameters, rows, query.round, space.mask)
    return ImprovedPolicy(parameters=improved)


def train_network(space: Workspace, query: TrainNetwork) -> TrainedNetwork:
    """The network after the steps of one round, and its loss before them on the first fold."""
    check_terms(space)
    plan, history = space.study.neural, space.history
    if space.limits.minimum_cell:
        agreed = {name: getattr(query, name) for name in ("linear", "centre", "scale")}
        history.require_first("network units", spread=np.array([query.spread]), **agreed)
        history.require_first(f"network round {query.round}", network=query.network)
    fitting, kept_back = space.network_training.rows(space.whole, query)
    if not len(fitting.contexts) or not len(kept_back.contexts):
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    network = network_of(query.network, widths_in(space.study))
    steps = Steps(
        loss=LOSSES[plan.loss],
        rate=plan.rate,
        batches=dealt(
            len(fitting.contexts),
            plan.local_steps,
            space.draws.generator(f"network batches {query.round}"),
        ),
    )
    found = losses(network, kept_back, LOSSES[plan.loss])
    return TrainedNetwork(
        network=network_numbers(trained(network, fitting, steps)),
        loss=float(found.mean()),
        loss_variance=float(found.var() / len(found)),
    )


def slope_of_value(space: Workspace, query: SlopeOfValue) -> Slope:
    """The gradient of a softened policy's value, on training rows without the first fold."""
    check_terms(space)
    chunks = space.obeyed.allowed_in(space.chunks())
    slope = value_slope(chunks, query.parameters, query.temperature)
    return Slope(gradient=slope if space.mask is None else slope * space.mask)
