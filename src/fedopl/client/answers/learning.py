"""Answers that a policy is learned from: counts, sums of scores, local steps and a gradient."""

from functools import lru_cache

import numpy as np

from fedopl.base.arrays import frozen
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.disclosure.noise import noisy_total, round_noise, values_with_noise
from fedopl.client.disclosure.small_cells import (
    ScoreCounts,
    check_parts,
    check_takers,
    releasable_cells,
    suppress_small_counts,
)
from fedopl.client.local.local_training import ScoredStudyRows
from fedopl.client.local.network_steps import (
    LOSSES,
    NetworkRows,
    Steps,
    dealt,
    losses,
    trained,
)
from fedopl.client.local.score_means import (
    means_without_first_fold,
    pair_means,
    rows_behind_pairs,
    value_slope,
)
from fedopl.client.scoring.outcome import GivenModels
from fedopl.client.workspace import Workspace
from fedopl.messages.learning.enrolment import Enrol, Enrolment
from fedopl.messages.learning.improved_policy import ImprovedPolicy, ImprovePolicy
from fedopl.messages.learning.outcome_sums import OutcomeSums, SumOutcomes
from fedopl.messages.learning.pair_sums import PairSums, SumPairs
from fedopl.messages.learning.score_sums import ScoreSums, SumFitting, SumScores
from fedopl.messages.learning.total_weight import TellWeight, TotalWeight
from fedopl.messages.learning.trained_network import TrainedNetwork, TrainNetwork
from fedopl.messages.learning.value_slope import Slope, SlopeOfValue
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.network import Network, network_numbers, network_of
from fedopl.policies.neural import widths_in

# The oracle "direct" learns on the first split and tries the result on the second.
_SIDES = (RowSplit.FITTING, RowSplit.VALIDATION)


def enrol(space: Workspace, _query: Enrol) -> Enrolment:
    """The number of training rows, in all and by action; small counts are suppressed."""
    counts = space.rows_per_action
    shown = suppress_small_counts(counts, space.limits.minimum_cell)
    return Enrolment(n_rows=int(counts.sum()), rows_per_action=shown.astype(np.float64))


def tell_weight(space: Workspace, _query: TellWeight) -> TotalWeight:
    """The total weight of training rows, with noise; their number, where rows have no weights."""
    found = space.study_rows.training_weight
    if found is None:
        return TotalWeight(weight=float(space.n_training))
    rng = space.noise_for("total weight", space.study.digest)
    noisy = noisy_total(found.total, space.limits.value_noise * found.largest, rng)
    if not noisy <= space.limits.norm_cap:
        raise RefusedError(RefusalCode.NORM_TOO_LARGE)
    return TotalWeight(weight=noisy)


def sum_outcomes(space: Workspace, _query: SumOutcomes) -> OutcomeSums:
    """Sums for the outcome models of each fold and action with enough rows; the others are zero."""
    counts, shares = space.rows_by_fold_action, space.row_shares_in_cells
    if shares is not None:  # a cell that one row dominates counts as one row
        counts = np.where(shares > space.limits.dominance, np.minimum(counts, 1), counts)
    enough = releasable_cells(counts, space.rows_needed)
    if not enough.any():
        raise RefusedError(RefusalCode.SMALL_CELLS)
    sums, squared_weights = space.outcome_sums()
    if not enough.all():
        sums[~enough], squared_weights[~enough] = 0.0, 0.0
    return OutcomeSums(sums=sums, squared_weights=squared_weights)


def sum_scores(space: Workspace, query: SumScores) -> ScoreSums:
    """Score all rows with the models of the query, or with own ones, and sum the training rows."""
    space.check_rows_for_sums()
    expected = space.study.n_outcome_models
    if len(query.models) != expected or len(query.supported) != expected:
        raise RefusedError(RefusalCode.MALFORMED)
    # Support that differs from fold to fold would disclose the sums of single folds. Models fitted
    # without two folds serve only to choose weights, and may all be missing.
    n_used = (space.study.nuisances.folds + 1) * max(1, len(space.study.stacked_sizes))
    for part in (query.supported[:n_used], query.supported[n_used:]):
        if space.limits.minimum_cell and (part != part[:1]).any():
            raise RefusedError(RefusalCode.SMALL_CELLS)
    space.new_scores = space.scored_with(_models_in(query))
    return ScoreSums(**vars(space.score_means(space.new_scores)))


@lru_cache(1)  # clients in one process get the same query
def _models_in(query: SumScores) -> GivenModels:
    """The models of the query, NaN where there is none."""
    return GivenModels(frozen(np.where(query.supported[..., None] > 0, query.models, np.nan)))


def sum_fitting(space: Workspace, _query: SumFitting) -> ScoreSums:
    """Sums of scores without the first fold, where neither side rests on a few rows."""
    space.check_rows_for_sums()
    sides = {split: ScoreCounts(space.study.n_actions) for split in _SIDES}
    for chunk in space.chunks():
        for split, counts in sides.items():
            counts.add(chunk.scores[chunk.rows(split)])
    check_parts(sides.values(), space.rows_needed)
    first, *others = space.rows_by_fold_action
    check_takers(np.array([first, np.sum(others, axis=0)]), space.limits.minimum_cell)
    # The means over all training rows are released, too. Their difference from these gives the
    # means of the first fold.
    rows = space.study_rows
    means = means_without_first_fold(
        lambda: space.scored.of(rows.chunks_by_side()), rows, space.blocks
    )
    return ScoreSums(**vars(means))


def sum_pairs(space: Workspace, _query: SumPairs) -> PairSums:
    """Means for every pair of actions; a row's weight is the difference that the choice makes."""
    space.check_rows_for_sums()
    n_actions, n_features = space.study.n_actions, space.study.n_features
    behind = rows_behind_pairs(space.chunks(), n_actions)
    if space.limits.minimum_cell and behind < space.rows_needed:
        raise RefusedError(RefusalCode.SMALL_CELLS)
    grams, products = pair_means(space.chunks(), n_actions, n_features)
    return PairSums(grams=grams, products=products)


def improve_policy(space: Workspace, query: ImprovePolicy) -> ImprovedPolicy:
    """The parameters after the local steps of one round (Algorithm 2)."""
    plan, limits = space.study.linear.training, space.limits
    if not 0 <= query.round < plan.rounds:
        raise RefusedError(RefusalCode.MALFORMED)
    if limits.minimum_cell:
        space.history.require_first("scaling", centre=query.centre, scale=query.scale)
        space.history.require_first(f"round {query.round}", parameters=query.parameters)
    training = space.local_training
    scored = ScoredStudyRows(space.study_rows.given, space.chunks, space.scored)
    rows = training.examples(scored, query.centre, query.scale)
    n_parameters = query.parameters.size if space.mask is None else int(space.mask.sum())
    n_used = min(rows.n_rows, plan.batch_size * plan.local_steps)
    limits.check_parameters(n_parameters, n_used)
    if not space.draws.secret:
        # Anyone who can tell which rows the batches hold could solve for rows, given enough rounds.
        limits.check_parameters(plan.rounds, rows.n_rows)
    improved = training.improved(query.parameters, rows, query.round, space.mask)
    return ImprovedPolicy(parameters=improved)


def train_network(space: Workspace, query: TrainNetwork) -> TrainedNetwork:
    """The network after the steps of one round, and its loss before them on the first fold.

    With noise, no number of the network can be solved for rows. Without noise, a network may have
    no more numbers than the rows can hide.
    """
    space.check_rows_for_sums()
    plan, limits, history = space.study.neural, space.limits, space.history
    if limits.minimum_cell:
        agreed = {name: getattr(query, name) for name in ("linear", "centre", "scale")}
        history.require_first("network units", spread=np.array([query.spread]), **agreed)
        history.require_first(f"network round {query.round}", network=query.network)
    fitting, kept_back = space.network_training.rows(space.whole, query)
    rows_behind = min(len(fitting.contexts), len(kept_back.contexts))
    if rows_behind < max(limits.minimum_cell, 1):
        raise RefusedError(RefusalCode.TOO_FEW_ROWS)
    if not limits.value_noise:
        limits.check_parameters(query.network.size, len(fitting.contexts))
    network = network_of(query.network, widths_in(space.study))
    steps = Steps(
        loss=LOSSES[plan.loss],
        rate=plan.rate,
        batches=dealt(
            len(fitting.contexts),
            plan.local_steps,
            space.draws.generator(f"network batches {query.round}"),
        ),
        noise=round_noise(limits.value_noise, plan.rounds),
        rng=space.noise_for("network", query.round, query.network),
    )
    loss, variance = _held_out_loss(space, query, network, kept_back)
    moved = network_numbers(trained(network, fitting, steps))
    return TrainedNetwork(network=moved, loss=loss, loss_variance=variance)


def _held_out_loss(
    space: Workspace, query: TrainNetwork, network: Network, rows: NetworkRows
) -> tuple[float, float]:
    """The mean loss and its variance; with noise, losses are clipped to the loss of a usual row."""
    plan, noise = space.study.neural, space.limits.value_noise
    objective = LOSSES[plan.loss]
    found = losses(network, rows, objective)
    most = objective.usual(rows)
    if noise:
        found = np.clip(found, -most, most)
    influence = round_noise(noise, plan.rounds) * 2 * most / len(found)
    draws = [space.noise_for("network loss", query.round, query.network, part) for part in "mv"]
    variance = np.array([[found.var() / len(found)]])
    means, variances = values_with_noise(np.array([found.mean()]), variance, influence, draws)
    return float(means[0]), float(variances[0, 0])


def slope_of_value(space: Workspace, query: SlopeOfValue) -> Slope:
    """The gradient of a softened policy's value, on training rows without the first fold."""
    space.check_rows_for_sums()
    chunks = space.obeyed.allowed_in(space.chunks())
    slope, n_effective = value_slope(chunks, query.parameters, query.temperature)
    # A hard policy's gradient rests on the few rows where it is undecided. NaN is refused, too.
    if not n_effective >= space.rows_needed:
        raise RefusedError(RefusalCode.SMALL_CELLS)
    return Slope(gradient=slope if space.mask is None else slope * space.mask)
