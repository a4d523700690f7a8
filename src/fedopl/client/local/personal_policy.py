"""The personal policy: everybody else's, moved toward the client's own rows; solved at home.

The personal tree is the shared tree, with the actions in its leaves that own rows support. Own
questions replace the shared ones if they make own rows likelier, by more than what a search among
all questions achieves by chance.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray
from fedopl.client.local.local_policy import ScoredChunks, sums_by_fold
from fedopl.client.local.local_tree import ScoredParts
from fedopl.client.local.score_means import means_of
from fedopl.client.rows.chunks import ScoredChunk, ScoredRows
from fedopl.client.rows.study_rows import StudyRows
from fedopl.messages.message import RowSplit
from fedopl.policies.bent import BentPolicy
from fedopl.policies.cautious import CautiousPolicy
from fedopl.policies.linear import NEVER, LinearPolicy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.grid import forbidden_in_leaves
from fedopl.policies.trees.growing import simplified
from fedopl.policies.trees.nodes import Leaf, Node, branches_of, leaf_positions, leaves_of
from fedopl.solvers.personal_ridge import (
    Bend,
    BendSums,
    OwnSums,
    Scaling,
    WeighedPath,
    knots_of,
    scored_in_all_rows,
)
from fedopl.study.study import Study

# Scores by own outcome models are used if a policy leaves less residual variance in them. The
# difference, as a share, must exceed this number over the square root of the rows: smaller
# differences arise by chance.
BEYOND_CHANCE = 3.0
# By how much more than other slopes a bend must raise the log-likelihood of own rows.
CLEARLY_LIKELIER = 3.0


Parts = TypeVar("Parts")


@dataclass(frozen=True, eq=False, kw_only=True)
class PersonalTask:
    """A client's rows with the study's scores and with its own, and what it was sent."""

    study: Study
    rows: StudyRows
    scored: tuple[ScoredChunks, ...]  # by the study's models, then perhaps by own models
    own: tuple[OwnSums, ...]  # of each of these
    others: FloatArray  # (n_actions, n_terms + 1): θ₋c
    scaling: Scaling
    likelihoods: FloatArray  # (n_strengths,): the mean over other clients
    doubts: FloatArray | None = None  # (n_actions, …): what caution subtracts from scores
    without: int | None = None  # the fold of which no row is used

    def solve(self) -> LinearPolicy:
        """Everybody else's policy with moved slopes, or with its index bent: the likelier of both.

        With caution only slopes are moved, because doubts are about linear scores.
        """
        # Scores by own models are used if they are clearly less noisy: where a client differs,
        # everybody's outcome models are wrong about it.
        found = [
            (scored, WeighedPath.of(own, self.others, self.scaling, self.likelihoods))
            for scored, own in zip(self.scored, self.own, strict=True)
        ]
        scored, weighed = least_noisy(found, self.own[0].n_rows)
        moved = LinearPolicy.from_numbers(weighed.mean, self.study)
        if self.doubts is not None:
            return CautiousPolicy.doubting(moved, self.doubts)
        given = LinearPolicy.from_numbers(self.others, self.study)
        compared = weighed.path.compared
        if compared.sum() < 2:
            return moved
        parts = partial(chunks_without, scored, self.without)
        bend = best_bend(parts, self.rows, given, compared)
        if bend.evidence < weighed.strengths.evidence + CLEARLY_LIKELIER:
            return moved
        return BentPolicy.bending(given, bend.knots, bend.slopes)


def least_noisy(
    found: Sequence[tuple[Parts, WeighedPath]], n_rows: float
) -> tuple[Parts, WeighedPath]:
    """The first rows with scores, and their result, unless others' are clearly less noisy."""
    first, *rest = found
    clearly_less = 1 - BEYOND_CHANCE / math.sqrt(max(n_rows, 1))
    most = clearly_less * first[1].variance
    return next((one for one in rest if one[1].variance < most), first)


def chunks_without(scored: ScoredChunks, fold: int | None) -> Iterable[ScoredChunk]:
    """The chunks, without the rows of a fold if it is given."""
    return scored() if fold is None else (chunk.without_fold(fold) for chunk in scored())


def client_sums(parts: ScoredChunks, rows: StudyRows) -> OwnSums:
    """Means over training rows of squares and products of terms and scores."""
    complete = all(np.isfinite(one.scores[one.training]).all() for one in parts())
    means = means_of(parts, rows, None, complete=complete)
    scored = ((one.scores[one.training], one.weights(one.training)) for one in parts())
    squares = contrast_squares(scored, scored_in_all_rows(means.shares))
    found = (means.grams, means.products, means.shares)
    return OwnSums.of(found, squares, rows.n_rows(RowSplit.TRAINING))


def client_sums_without(
    parts: ScoredChunks, rows: StudyRows, left_out: Sequence[int | None]
) -> list[OwnSums]:
    """The same without each of these folds, or of all rows for None; rows are summed once."""
    if not any(fold is not None for fold in left_out):
        return [client_sums(parts, rows) for _ in left_out]
    sums, found = sums_by_fold(parts, rows, None), []
    # By the actions that count: over each fold, how far apart their scores lie, and total weights.
    squares: dict[bytes, FloatArray] = {}  # (n_folds, 2) each
    for without in left_out:
        folds = [fold for fold in range(len(sums.weights)) if fold != without]
        own = sums.of_folds(folds)
        known = scored_in_all_rows(own.shares)
        if known.tobytes() not in squares:
            by_fold = squares[known.tobytes()] = np.zeros((len(sums.weights), 2))
            for chunk in parts():
                for each, of_fold in zip(by_fold, chunk.fold_slices, strict=True):
                    each += _apart(chunk.scores[of_fold], chunk.weights(of_fold), known)
        total, weight = squares[known.tobytes()][folds].sum(axis=0).tolist()
        mean = total / weight if weight else 0.0
        means = (own.grams, own.products, own.shares)
        found.append(OwnSums.of(means, mean, rows.n_rows(RowSplit.TRAINING, without)))
    return found


def contrast_squares(
    parts: Iterable[tuple[FloatArray, FloatArray | None]], known: BoolArray
) -> float:
    """The mean over rows of Σ_a (Γ̂(a) − mean of Γ̂)², over known actions.

    Each part has scores (n_rows, n_actions) and the weights of rows, None if all weigh one.
    """
    totals = [_apart(scores, weights, known) for scores, weights in parts]
    squares, total = (sum(own) for own in zip(*totals, strict=True)) if totals else (0.0, 0.0)
    return squares / total if total else 0.0


def _apart(
    all_scores: FloatArray, weights: FloatArray | None, known: BoolArray
) -> tuple[float, float]:
    """The sum over rows of Σ_a (Γ̂(a) − mean of Γ̂)², and their weight."""
    scores: FloatArray = all_scores[:, known]
    total = len(scores) if weights is None else float(weights.sum())
    if not known.any():
        return 0.0, total
    apart = ((scores - scores.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return float(apart.sum() if weights is None else weights @ apart), total


def best_bend(
    parts: ScoredChunks, rows: StudyRows, given: LinearPolicy, compared: BoolArray
) -> Bend:
    """The function of the index that own scores support; knots are those of the first rows."""
    sums: BendSums | None = None
    for chunk in parts():
        own = chunk.training
        if own.stop <= own.start:
            continue
        index = given.linear(chunk.data.contexts[own])[:, compared]
        if sums is None:
            sums = BendSums(knots_of(index), float(index.std()))
        sums.add(index, chunk.scores[own][:, compared], chunk.weights(own))
    if sums is None:
        raise ValueError(f"{rows.given.n_rows} rows, and none to learn from")
    return sums.bend()


# --- trees ----------------------------------------------------------------------------------------

# About this many thresholds of a column divide rows in ways that are not nearly the same.
UNLIKE_THRESHOLDS = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class PersonalTreeTask:
    """A client's rows with the study's scores and with its own, and what it was sent."""

    study: Study
    scored: Sequence[ScoredParts]  # by the study's models, then perhaps by own models
    n_rows: int
    root: Node  # of the shared tree
    own_root: Node  # of the tree that the client learned alone
    others: FloatArray  # (n_actions, n_leaves): values of actions to all others
    likelihoods: FloatArray  # (n_strengths,): the mean over other clients

    def solve(self) -> TreePolicy:
        """The best action in every leaf of the likelier tree, by own and others' rows."""
        found = [(one, self._weighed(one, self.root, self.others)) for one in self.scored]
        parts, shared = least_noisy(found, self.n_rows)
        own = self._weighed(parts, self.own_root, self._others_in_own_leaves(parts))
        n_questions = len(self.study.columns) * UNLIKE_THRESHOLDS  # about how many differ
        searched = len(branches_of(self.own_root)) * math.log(n_questions)
        if _evidence(own) > _evidence(shared) + searched:
            return with_best_actions(self.own_root, own.mean.T, self.study)
        return with_best_actions(self.root, shared.mean.T, self.study)

    def _weighed(self, parts: ScoredParts, root: Node, others: FloatArray) -> WeighedPath:
        own = leaf_sums(parts, root, self.study)
        return WeighedPath.of(own, others, Scaling.none(others.shape[1]), self.likelihoods)

    def _others_in_own_leaves(self, parts: ScoredParts) -> FloatArray:  # (n_actions, n_own_leaves)
        """Values of actions to others in own leaves, by where their rows are in the shared tree."""
        crossed = np.zeros((len(leaves_of(self.root)), len(leaves_of(self.own_root))))
        for rows in parts():
            contexts, columns = rows.contexts[rows.usable], self.study.columns
            places = (
                leaf_positions(root, columns, contexts) for root in (self.root, self.own_root)
            )
            np.add.at(crossed, tuple(places), _weights(rows))
        totals = crossed.sum(axis=0)
        everywhere = crossed.sum(axis=1, keepdims=True) / (totals.sum() or 1.0)
        shares = np.where(totals > 0, crossed / np.where(totals > 0, totals, 1.0), everywhere)
        return np.asarray(self.others @ shares)


def _evidence(weighed: WeighedPath) -> float:
    """The log-likelihood of own rows, up to a constant that is the same for every tree."""
    path = weighed.path.path
    if path.n_values <= 0 or path.squares <= 0:
        return 0.0
    return weighed.strengths.evidence - 0.5 * path.n_values * math.log(path.squares)


def with_best_actions(root: Node, worth: FloatArray, study: Study) -> TreePolicy:
    """The tree with the best action that each leaf may hold, by worth (n_leaves, n_actions)."""
    forbidden = forbidden_in_leaves(root, study.tree, study.columns, study.actions)
    # In the order of leaves, from the first answer yes to the last no.
    best = iter(np.argmax(np.where(forbidden, 2 * NEVER, worth), axis=1).tolist())

    def filled(node: Node) -> Node:
        if isinstance(node, Leaf):
            return Leaf(next(best))
        yes = filled(node.yes)
        return replace(node, yes=yes, no=filled(node.no))

    return TreePolicy.of(simplified(filled(root)), study)


def leaf_sums(parts: ScoredParts, root: Node, study: Study) -> OwnSums:
    """Shares of weight and mean scores by leaf, over training rows that have any score."""
    n_leaves, known = len(leaves_of(root)), scored_actions(parts, study.n_actions)
    shares, n_rows = np.zeros(n_leaves), 0
    products = np.zeros((study.n_actions, n_leaves))
    for rows in parts():
        scores, weights = rows.scores[rows.usable], _weights(rows)
        leaf = leaf_positions(root, study.columns, rows.contexts[rows.usable])
        shares += np.bincount(leaf, weights, minlength=n_leaves)
        for action in range(study.n_actions):
            own = np.nan_to_num(scores[:, action]) * weights
            products[action] += np.bincount(leaf, own, minlength=n_leaves)
        n_rows += len(scores)
    total = shares.sum() or 1.0
    return OwnSums(
        gram=np.diag(shares / total),
        products=products / total,
        known=known,
        squares=squares_apart(parts, known),
        n_rows=n_rows,
    )


def squares_apart(parts: ScoredParts, known: BoolArray) -> float:
    """How far apart scores lie, on average over rows with any score."""
    return contrast_squares(((rows.scores[rows.usable], _weights(rows)) for rows in parts()), known)


def scored_actions(parts: ScoredParts, n_actions: int) -> BoolArray:  # (n_actions,)
    """The actions that have a score in every row that has any score."""
    known = np.ones(n_actions, bool)
    for rows in parts():
        known &= np.isfinite(rows.scores[rows.usable]).all(axis=0)
    return known


def _weights(rows: ScoredRows) -> FloatArray:  # (n_usable,)
    return np.ones(int(rows.usable.sum())) if rows.weights is None else rows.weights[rows.usable]
