"""The personal tree: the shared tree, with the actions in its leaves that own rows support.

The client's own questions replace the shared ones if they make its rows likelier. The improvement
must exceed what a search among all questions achieves by chance.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.local.local_tree import ScoredParts
from fedopl.client.local.personal_policy import FoundBy, contrast_squares, least_noisy
from fedopl.client.rows.chunks import ScoredRows
from fedopl.policies.linear import NEVER
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.grid_rules import forbidden_in_leaves
from fedopl.policies.trees.growing import simplified
from fedopl.policies.trees.nodes import Leaf, Node, branches_of, leaf_positions, leaves_of
from fedopl.solvers.personal_ridge import OwnSums, Scaling, WeighedPath
from fedopl.study.study import Study

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
        found = [self._found(one, self.root, self.others) for one in self.scored]
        chosen = least_noisy(found, self.n_rows)
        others = self._others_in_own_leaves(chosen.parts)
        own = self._found(chosen.parts, self.own_root, others)
        searched = len(branches_of(self.own_root)) * math.log(_n_questions(self.study))
        if _evidence(own.weighed) > _evidence(chosen.weighed) + searched:
            return with_best_actions(self.own_root, own.weighed.mean.T, self.study)
        return with_best_actions(self.root, chosen.weighed.mean.T, self.study)

    def _found(self, parts: ScoredParts, root: Node, others: FloatArray) -> FoundBy[ScoredParts]:
        own = leaf_sums(parts, root, self.study)
        scaling = Scaling.none(others.shape[1])
        return FoundBy(parts, WeighedPath.of(own, others, scaling, self.likelihoods))

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


def _n_questions(study: Study) -> int:
    """About how many different questions a search for one question tries."""
    return len(study.columns) * UNLIKE_THRESHOLDS


def with_best_actions(root: Node, worth: FloatArray, study: Study) -> TreePolicy:
    """The tree with the best action that each leaf may hold, by worth (n_leaves, n_actions)."""
    forbidden = forbidden_in_leaves(root, study.tree, study.columns, study.actions)
    best: IntArray = np.argmax(np.where(forbidden, 2 * NEVER, worth), axis=1)
    return TreePolicy.of(simplified(_with_actions(root, iter(best.tolist()))), study)


def _with_actions(node: Node, actions: Iterator[int]) -> Node:
    """The tree with these actions in its leaves, from the first answer yes to the last no."""
    if isinstance(node, Leaf):
        return Leaf(next(actions))
    yes = _with_actions(node.yes, actions)
    return replace(node, yes=yes, no=_with_actions(node.no, actions))


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
