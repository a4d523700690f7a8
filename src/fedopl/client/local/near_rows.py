"""Rows close to the thresholds of a tree, and what other thresholds would gain with them."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.local.cell_tables import Binning
from fedopl.client.rows.chunks import ScoredRows
from fedopl.policies.trees.nodes import Branch, leaf_positions, leaves_of
from fedopl.policies.trees.second_look import NEAR_BINS, SecondLook


@dataclass(frozen=True, eq=False)
class NearSums:
    """Sums over the rows that matter for a threshold, by question and narrow bin."""

    gains: FloatArray  # (n_questions, NEAR_BINS): Σ w·(Γ(yes) − Γ(no))
    counts: IntArray  # (n_questions, NEAR_BINS): these rows


def near_sums(
    parts: Iterable[ScoredRows],
    look: SecondLook,
    binning: Binning,
    known: BoolArray,
) -> NearSums:
    """The sums over all these rows.

    Two kinds of rows do not count. For some, both answers lead to the same decision. Some lack
    the score of a `known` action.
    """
    shape = (len(look.questions), NEAR_BINS)
    gains, counts = np.zeros(shape), np.zeros(shape, np.int64)
    for rows in parts:
        own = rows.usable & np.isfinite(rows.scores[:, known]).all(axis=1)
        contexts, scores = rows.contexts[own], rows.scores[own]
        weights = np.ones(len(scores)) if rows.weights is None else rows.weights[own]
        for place in look.moving:
            here = np.flatnonzero(look.comes_to(place, binning.columns, contexts))
            branch = look.questions[place][0]
            differs, difference = _difference(branch, binning, contexts[here], scores[here])
            decides = differs & np.isfinite(difference)
            here, difference = here[decides], difference[decides]
            values = binning.columns[branch.column].values(contexts[here])
            near = np.searchsorted(look.near[place], values)
            gains[place] += np.bincount(near, weights[here] * difference, minlength=NEAR_BINS)
            counts[place] += np.bincount(near, minlength=NEAR_BINS)
    return NearSums(gains, counts)


def _difference(
    branch: Branch, binning: Binning, contexts: FloatArray, scores: FloatArray
) -> tuple[BoolArray, FloatArray]:
    """Whether both sides decide differently in each row, and Γ(yes) − Γ(no)."""
    columns, rows = tuple(binning.columns), np.arange(len(contexts))
    yes, no = (
        np.array([leaf.action for leaf in leaves_of(side)])[leaf_positions(side, columns, contexts)]
        for side in (branch.yes, branch.no)
    )
    return yes != no, scores[rows, yes] - scores[rows, no]
