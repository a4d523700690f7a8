"""Sums from which a tree or a candidate is chosen with differential privacy; all have noise.

The mean over actions is subtracted from a row's scores. Scores that are longer than agreed are made
shorter. So a row moves each table it is in by no more than the agreed length.
"""

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.client.local.cell_tables import Binning, cell_sums
from fedopl.client.private.private_rows import PrivateChunk
from fedopl.client.private.private_workspace import PrivateWorkspace, asked_about
from fedopl.client.rows.chunks import ScoredRows
from fedopl.messages.message import RowSplit
from fedopl.messages.private.noised_cells import NoisedCells, SumCellsPrivately
from fedopl.messages.private.noised_gains import LookPrivately, NoisedGains
from fedopl.messages.private.noised_scores import NoisedScores, SumCandidates
from fedopl.policies.trees.nodes import Node, leaf_positions, leaves_of, says_yes
from fedopl.policies.trees.second_look import NEAR_BINS, SecondLook
from fedopl.privacy.sum_grid import FINE
from fedopl.study.private.added_up import Counting

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
    space: PrivateWorkspace,
    look: SecondLook,
    place: int,
    contexts: FloatArray,
    scores: FloatArray,
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
