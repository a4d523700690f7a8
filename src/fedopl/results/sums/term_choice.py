"""Chooses the terms of a basis that a policy uses, and their shrinkage, by out-of-fold loss."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.messages.learning.score_sums_by_fold import ScoreSumsByFold
from fedopl.results.sums.noise_weights import NoiseWeights
from fedopl.solvers.least_squares import PENALTIES
from fedopl.solvers.nested_ridge import held_out_losses
from fedopl.study.mixture import Weights, renormalised
from fedopl.study.study import Study

# Grams, products, squares and shares.
Pooled = tuple[FloatArray, FloatArray, FloatArray, FloatArray]


@dataclass(frozen=True, eq=False, kw_only=True)
class TermChoice:
    """The chosen family of terms, and the penalty of each action's coefficients."""

    n_terms: int
    penalties: FloatArray  # (n_actions,)
    losses: Mapping[str, float]  # out of fold, by family; less is better, and nothing at all is 0
    family: str | None = None  # what it is called; None where nothing could be compared


def plain_terms(study: Study) -> TermChoice:
    """The features themselves, if no client reported sums that allow more."""
    return TermChoice(n_terms=study.n_features, penalties=np.zeros(study.n_actions), losses={})


def choose_terms(
    study: Study,
    by_fold: Mapping[str, ScoreSumsByFold],
    weights: Weights,
    folds: Collection[int] | None = None,
    by_noise: NoiseWeights | None = None,
) -> TermChoice:
    """The terms and penalties with the least loss in the mixture, each fold left out in turn.

    Only clients that reported sums by fold count; if `folds` is given, only these folds. If clients
    count by noise in the policy, they do so here as well.
    """
    terms = study.terms
    by_fold = {name: sums for name, sums in by_fold.items() if weights.get(name)}
    if terms is None or not by_fold:
        return plain_terms(study)
    used = range(study.nuisances.folds) if folds is None else folds
    own = renormalised(weights, by_fold.keys())
    parts = []
    for left_out in used:
        others = [fold for fold in used if fold != left_out]
        fitted = _pooled(
            {name: sums.of_folds(others) for name, sums in by_fold.items()}, own, by_noise
        )
        held_out = _pooled(
            {name: sums.of_fold(left_out) for name, sums in by_fold.items()}, own, by_noise
        )
        parts.append((contrasts_of(fitted), contrasts_of(held_out), held_out[3]))
    penalties, losses = {}, {}
    for family in terms.families:
        size = terms.sizes[family]
        along = np.array(  # (n_folds, n_penalties, n_actions)
            [
                np.where(shares > 0, held_out_losses(fitted, held_out, size), 0.0)
                for fitted, held_out, shares in parts
            ]
        )
        # Among equally good penalties, the largest.
        best = len(PENALTIES) - 1 - np.argmin(along.mean(axis=0)[::-1], axis=0)
        penalties[family] = PENALTIES[best]
        losses[family] = along[:, best, np.arange(len(best))].sum(axis=1)
    taken = plainest_as_good(losses)
    return TermChoice(
        n_terms=terms.sizes[taken],
        penalties=penalties[taken],
        losses={name: float(by_fold.mean()) for name, by_fold in losses.items()},
        family=taken,
    )


def plainest_as_good(losses: Mapping[str, FloatArray]) -> str:
    """The last family, from the simplest on, that loses clearly less than the one taken before.

    Clearly is by more than a standard error. Losses are by fold, and so are differences.
    """
    taken, *richer = losses
    for family in richer:
        saved = losses[taken] - losses[family]
        if saved.mean() > saved.std(ddof=1) / math.sqrt(len(saved)):
            taken = family
    return taken


def _pooled(
    sums: Mapping[str, ScoreSums], weights: Weights, by_noise: NoiseWeights | None
) -> Pooled:
    """Means by the mixture, or contrasts weighted by noise."""
    return (
        pooled_means(sums, weights) if by_noise is None else means_by_noise(sums, weights, by_noise)
    )


def contrasts_of(means: Pooled) -> tuple[FloatArray, FloatArray]:
    """Squares and products of scores less the mean score of the row, which is all that decides.

    If actions have scores in different rows, there is no such mean, and scores stay unchanged.
    """
    grams, products, _, shares = means
    known = shares > 0
    if len(grams) > 1 or not known.any():
        return grams, products
    return grams, np.where(known[:, None], products - products[known].mean(axis=0), 0.0)


def means_by_noise(
    sums: Mapping[str, ScoreSums], weights: Weights, by_noise: NoiseWeights
) -> Pooled:
    """Means of what decides, in which clients count by noise."""
    counting = [name for name in sums if name in by_noise.emphasis]
    return pooled_means(sums, renormalised(weights, counting), by_noise.emphasis, by_noise.of)


def pooled_means(
    sums: Mapping[str, ScoreSums],
    weights: Weights,
    emphasis: Mapping[str, FloatArray] | None = None,
    deciding: Callable[[ScoreSums], ScoreSums] | None = None,
) -> Pooled:
    """Mixture means; a client's part in an action is as large as its share of scored rows.

    Of clients with an emphasis alone, if there is one. Sums are taken one at a time and by name:
    those of many clients are in a file, and float sums depend on order.
    """
    names = sorted(sums if emphasis is None else sums.keys() & emphasis.keys())
    n_actions = len(sums[names[0]].products)
    per_action = emphasis is not None or any(len(sums[name].grams) > 1 for name in names)
    n_grams = n_actions if per_action else 1
    totals: list[FloatArray] = []
    for name in names:
        own, weight = sums[name], weights[name]
        own = deciding(own) if deciding else own
        share = own.shares * (1.0 if emphasis is None else emphasis[name])
        parts = (
            weight * (share[:n_grams, None, None] * own.grams),
            weight * (share[:, None] * own.products),
            weight * (share * own.squares),
            weight * share,
        )
        if totals:
            for total, part in zip(totals, parts, strict=True):
                total += part  # in place: sums of squares may take a gigabyte each
        else:
            totals = [0.0 + part for part in parts]
    grams, products, squares, shares = totals
    safe = np.where(shares > 0, shares, 1.0)  # nobody has a score of an action of share 0
    return (
        grams / safe[:n_grams, None, None],
        products / safe[:, None],
        squares / safe,
        shares,
    )
