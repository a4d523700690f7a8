"""Answers in a study with differential privacy: each has noise, or no row changes it.

Trees and candidates are chosen by scores less their mean over actions, made shorter where they are
longer than agreed. So a row moves each table it is in by no more than the agreed length.
"""

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.disclosure.limits import RefusedError
from fedopl.client.local.cell_tables import Binning, cell_sums
from fedopl.client.private.party import Party
from fedopl.client.private.private_rows import PrivateChunk
from fedopl.client.private.private_workspace import PrivateWorkspace, asked_about
from fedopl.client.rows.chunks import ScoredRows
from fedopl.messages.about_masks import (
    RosterTaken,
    SealedShares,
    SessionKeys,
    ShareSecrets,
    TakeRoster,
    TellKeys,
    Unmask,
    UnmaskingShares,
)
from fedopl.messages.learning.enrolment import Enrol, Enrolment
from fedopl.messages.message import RowSplit
from fedopl.messages.private.noised_scores import (
    LookPrivately,
    NoisedCells,
    NoisedGains,
    NoisedScores,
    NoisedValues,
    SumCandidates,
    SumCellsPrivately,
    ValueApart,
    ValuePrivately,
    ValuesApart,
)
from fedopl.messages.private.noised_sums import (
    MeasureNumbers,
    NoisedMoments,
    NoisedSums,
    RangesTaken,
    ResidualSums,
    SumPrivately,
    SumResiduals,
    TakeRanges,
)
from fedopl.messages.refusal import RefusalCode
from fedopl.policies.trees.nodes import Node, leaf_positions, leaves_of, says_yes
from fedopl.policies.trees.second_look import NEAR_BINS, SecondLook
from fedopl.privacy.exact_noise import FINE
from fedopl.study.private.added_up import Counting
from fedopl.study.private.private_setting import FARTHEST_MEASURED, MIDDLE_SQUARE
from fedopl.study.private.private_units import middles_and_units


def enrol_privately(space: PrivateWorkspace, _query: Enrol) -> Enrolment:
    """The number of training rows, which is public, without counts by action."""
    return Enrolment(n_rows=space.n_training, rows_per_action=np.zeros(space.study.n_actions))


def tell_keys(space: PrivateWorkspace, _query: TellKeys) -> SessionKeys:
    """The client's keys for masks."""
    return _party(space).told()


def take_roster(space: PrivateWorkspace, query: TakeRoster) -> RosterTaken:
    """Take the roster; from here on answers are masked for exactly these clients."""
    return _party(space).take(query)


def share_secrets(space: PrivateWorkspace, _query: ShareSecrets) -> SealedShares:
    """Shares of the secrets behind its masks, each for one other client."""
    return _party(space).sealed()


def unmask(space: PrivateWorkspace, query: Unmask) -> UnmaskingShares:
    """Shares that remove the masks from the sum of those who answered."""
    return _party(space).unmask(query)


def _party(space: PrivateWorkspace) -> Party:
    if space.party is None:
        raise RefusedError(RefusalCode.NOT_IN_STUDY)
    return space.party


def sum_privately(space: PrivateWorkspace, _query: SumPrivately) -> NoisedSums:
    """Squares and products of training rows, with noise."""
    return space.first_sums


def sum_residuals(space: PrivateWorkspace, query: SumResiduals) -> ResidualSums:
    """The residual sums of outcome models for one step, with noise."""
    if not 0 <= query.number < space.setting.n_steps:
        raise RefusedError(RefusalCode.MALFORMED)
    asked = b"%d %d %s" % (query.number, query.n_terms, query.parameters.tobytes())
    return ResidualSums(residuals=space.residual_sums(query, asked))


def values_privately(space: PrivateWorkspace, query: ValuePrivately) -> NoisedValues:
    """The values of policies on held-out rows, with noise."""
    return space.noised_values(query, b"values %s" % asked_about(query))


def values_apart(space: PrivateWorkspace, query: ValueApart) -> ValuesApart:
    """The same for this client alone, where the sums of all are under masks."""
    return space.values_apart(query, b"values apart %s" % asked_about(query))


def measure_numbers(space: PrivateWorkspace, _query: MeasureNumbers) -> NoisedMoments:
    """Sums of numbers and of their squares over training rows, with noise."""
    names, most = space.plan.measured, FARTHEST_MEASURED
    middle, unit = middles_and_units(names, space.plan.ranges)
    places = [space.study.features.index(name) for name in names]
    sums, squares = np.zeros((2, len(names)))
    for chunk in space.rows.chunks(RowSplit.TRAINING):
        scaled = np.clip((chunk.contexts[:, places] - middle) / unit, -most, most)
        sums += np.trunc(scaled * FINE).sum(axis=0)
        squares += np.trunc((scaled**2 - MIDDLE_SQUARE) * FINE).sum(axis=0)
    noise, setting = space.noise(b"moments"), space.setting
    return NoisedMoments(
        sums=noise.added(sums, setting.deviation("means"), "means"),
        squares=noise.added(squares, setting.deviation("spreads"), "spreads"),
    )


def take_ranges(space: PrivateWorkspace, query: TakeRanges) -> RangesTaken:
    """Confirm the ranges that the door's study continued with; the answer is their number."""
    found = query.named(space.study)
    if any(space.plan.ranges[name] != own for name, own in found.items()):
        raise RefusedError(RefusalCode.MALFORMED)
    return RangesTaken(n_ranges=len(found))


# --- sums of scores, to choose a tree or a candidate ----------------------------------------------


# Rounding must not make anything longer than agreed.
_WITHIN = 1 - 1e-9


def sum_cells_privately(space: PrivateWorkspace, query: SumCellsPrivately) -> NoisedCells:
    """Contrasts of training rows by cell of the coarse tables, with noise."""
    tables, columns = space.setting.tables, space.study.columns
    scored = (
        ScoredRows(
            contexts=chunk.contexts,
            scores=np.trunc(contrasts(space, chunk, query.models) * FINE),
            weights=None,
        )
        for chunk in space.rows.chunks(RowSplit.TRAINING)
    )
    sums = cell_sums(scored, Binning(columns=columns, grid=tables.grid))[0]
    released = sums[tables.places, -space.study.n_actions :]
    noise = space.noise(b"cells %s" % query.models.tobytes(), Counting.TRAINING)
    return NoisedCells(cells=noise.added(released, space.setting.deviation("cells"), "cells"))


def look_privately(space: PrivateWorkspace, query: LookPrivately) -> NoisedGains:
    """The gains of other thresholds on training rows, with noise."""
    look = query.look(space.study)
    gains = np.zeros((len(look.questions), NEAR_BINS))
    for chunk in space.rows.chunks(RowSplit.TRAINING):
        scores = contrasts(space, chunk, query.models)
        for place in look.moving:
            gains[place] += _gains(space, look, place, chunk.contexts, scores)
    asked = b"gains %s %s" % (query.models.tobytes(), query.tree.tobytes())
    noise = space.noise(asked, Counting.TRAINING)
    return NoisedGains(gains=noise.added(gains, space.setting.deviation("gains"), "gains"))


def contrasts(
    space: PrivateWorkspace, chunk: PrivateChunk, models: FloatArray
) -> FloatArray:  # (n_rows, n_actions)
    """Scores of rows less their mean over actions, in units, no longer than agreed."""
    scales, longest = space.scales, space.setting.bounds.contrast * _WITHIN
    scores = space.scores(chunk, models) * (scales.half_range / scales.outcome_unit)
    found: FloatArray = scores - scores.mean(axis=1, keepdims=True)
    lengths = np.sqrt((found**2).sum(axis=1, keepdims=True))
    found *= np.minimum(1.0, longest / np.maximum(lengths, 1e-12))
    return found


def _gains(
    space: PrivateWorkspace, look: SecondLook, place: int, contexts: FloatArray, scores: FloatArray
) -> FloatArray:  # (NEAR_BINS,), whole steps
    """Γ(yes) − Γ(no) by narrow bin, over the rows that reach a question close to its threshold."""
    columns, (branch, path) = space.study.columns, look.questions[place]
    values = columns[branch.column].values(contexts)
    here = np.abs(values - branch.cut) < space.setting.tables.reach(branch)
    for above, yes in path:
        asked, _ = look.questions[above]
        here &= says_yes(columns[asked.column], asked.cut, contexts) == yes
    rows, most = np.flatnonzero(here), space.setting.bounds.contrast
    yes_scores, no_scores = (
        scores[rows, _decided(side, space, contexts[rows])] for side in (branch.yes, branch.no)
    )
    steps = np.trunc(np.clip(yes_scores - no_scores, -most, most) * FINE)
    bins = np.searchsorted(look.near[place], values[rows])
    return np.bincount(bins, steps, NEAR_BINS).astype(np.float64)


def _decided(node: Node, space: PrivateWorkspace, contexts: FloatArray) -> IntArray:  # (n_rows,)
    actions = np.array([leaf.action for leaf in leaves_of(node)])
    return actions[leaf_positions(node, space.study.columns, contexts)]


def sum_candidates(space: PrivateWorkspace, query: SumCandidates) -> NoisedScores:
    """Scores of what each candidate decides, less their mean over candidates, with noise.

    Only differences matter, and scores less their mean are shorter.
    """
    sums = np.zeros(query.n_policies)
    for chunk in space.rows.chunks(RowSplit.TRAINING):
        decided = space.decisions(query, chunk.contexts)
        scores = contrasts(space, chunk, query.models)
        columns = np.column_stack([scores[np.arange(len(scores)), codes] for codes in decided])
        sums += np.trunc((columns - columns.mean(axis=1, keepdims=True)) * FINE).sum(axis=0)
    noise = space.noise(b"scores %s" % asked_about(query), Counting.TRAINING)
    deviation = space.setting.deviation("scores")
    return NoisedScores(sums=noise.added(sums, deviation, "scores"))
