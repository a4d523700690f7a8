"""Chooses the terms of a basis that a policy uses, and their shrinkage, by out-of-fold loss."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.messages.learning.score_sums import ScoreSums, ScoreSumsByFold
from fedopl.results.sums.noise_weights import NoiseWeights
from fedopl.solvers.least_squares import PENALTIES
from fedopl.solvers.nested_ridge import held_out_losses, ridge_paths
from fedopl.study.mixture import Weights, renormalised
from fedopl.study.study import Study

# Grams, products, squares and shares.
Pooled = tuple[FloatArray, FloatArray, FloatArray, FloatArray]
NUMBERS_STACKED = 1 << 16  # of sums of squares that are stacked
Paths = dict[tuple[frozenset[int], bytes], FloatArray]  # of ridge, by folds and by terms


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
    screening: int = -1,
    paths: Paths | None = None,
) -> TermChoice:
    """The terms and penalties with the least loss in the mixture, each fold left out in turn.

    Only clients that reported sums by fold count; if `folds` is given, only these folds; and of
    terms that were screened for, those of one screening. If clients count by noise in the policy,
    they do so here as well. If they count alike in several choices, these can share `paths`:
    without two folds, the same are found whichever of both is held out.
    """
    terms = study.terms
    by_fold = {name: sums for name, sums in by_fold.items() if weights.get(name)}
    if terms is None or not by_fold:
        return plain_terms(study)
    used = range(study.nuisances.folds) if folds is None else folds
    own = renormalised(weights, by_fold.keys())
    paths = {} if paths is None else paths
    parts = []
    for held in used:
        others = frozenset(used) - {held}
        fitted = _pooled(
            {name: sums.of_folds(others) for name, sums in by_fold.items()}, own, by_noise
        )
        held_out = _pooled(
            {name: sums.of_fold(held) for name, sums in by_fold.items()}, own, by_noise
        )
        parts.append((others, contrasts_of(fitted), contrasts_of(held_out), held_out[3]))
    penalties, losses = {}, {}
    for family in terms.families:
        own_terms = terms.usable(terms.sizes[family], [screening])
        along = np.empty((len(parts), len(PENALTIES), study.n_actions))
        for place, (others, means, means_held, shares) in enumerate(parts):
            key = others, own_terms.tobytes()
            if key not in paths:
                paths[key] = ridge_paths(means, own_terms)
            losses_along = held_out_losses(paths[key], means_held, own_terms)
            along[place] = np.where(shares > 0, losses_along, 0.0)
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

    Clearly is by more than a standard error. Losses are by fold, and so are differences. A single
    fold shows no error: then it is the simplest.
    """
    taken, *richer = losses
    for family in richer:
        saved = losses[taken] - losses[family]
        if len(saved) > 1 and saved.mean() > saved.std(ddof=1) / math.sqrt(len(saved)):
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


class _Stacked(NamedTuple):
    """The sums of some clients, one behind the other."""

    grams: FloatArray  # (n_clients, n_grams, n_columns, n_columns)
    products: FloatArray  # (n_clients, n_actions, n_columns)
    squares: FloatArray  # (n_clients, n_actions)
    shares: FloatArray  # (n_clients, n_actions)

    @classmethod
    def of(cls, sums: Sequence[ScoreSums]) -> Self:
        """The sums; where any client has a gram for each action, all have."""
        n_grams = max(len(own.grams) for own in sums)
        grams = [np.broadcast_to(own.grams, (n_grams, *own.grams.shape[1:])) for own in sums]
        stacked = (np.array([getattr(own, name) for own in sums]) for name in cls._fields[1:])
        return cls(np.array(grams), *stacked)


def _added(total: FloatArray, parts: FloatArray) -> FloatArray:  # shaped as the total
    """The total and these parts (n_parts, …), one after the other; the total may be written over.

    Sums along a first axis are added in its order.
    """
    if len(parts) == 1:  # in place: sums of squares may take a gigabyte each
        total += parts[0]
        return total
    return np.asarray(np.add.reduce(np.concatenate([total[None], parts]), axis=0))


def pooled_means(
    sums: Mapping[str, ScoreSums],
    weights: Weights,
    emphasis: Mapping[str, FloatArray] | None = None,
    deciding: Callable[[FloatArray], FloatArray] | None = None,
) -> Pooled:
    """Mixture means; a client's part in an action is as large as its share of scored rows.

    Of clients with an emphasis alone, if there is one. Sums are taken some at a time and added by
    name: those of many clients are in a file, and float sums depend on order.
    """
    names = sorted(sums if emphasis is None else sums.keys() & emphasis.keys())
    per_action = emphasis is not None or any(len(sums[name].grams) > 1 for name in names)
    n_actions, width = sums[names[0]].products.shape
    n_grams = n_actions if per_action else 1
    shapes = (n_grams, width, width), (n_actions, width), (n_actions,), (n_actions,)
    totals = [np.zeros(shape) for shape in shapes]
    at_once = max(1, NUMBERS_STACKED // totals[0].size)
    for start in range(0, len(names), at_once):
        some = names[start : start + at_once]
        own = _Stacked.of([sums[name] for name in some])
        weight = np.array([weights[name] for name in some])
        share = own.shares
        if emphasis is not None:
            share = share * np.stack([emphasis[name] for name in some])
        decides = deciding(own.products) if deciding else own.products
        parts = (
            weight[:, None, None, None] * (share[:, :n_grams, None, None] * own.grams),
            weight[:, None, None] * (share[:, :, None] * decides),
            weight[:, None] * (share * own.squares),
            weight[:, None] * share,
        )
        totals = [_added(total, part) for total, part in zip(totals, parts, strict=True)]
    grams, products, squares, shares = totals
    safe = np.where(shares > 0, shares, 1.0)  # nobody has a score of an action of share 0
    return (
        grams / safe[:n_grams, None, None],
        products / safe[:, None],
        squares / safe,
        shares,
    )
