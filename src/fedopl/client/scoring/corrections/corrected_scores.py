"""Scores of valued rows with what features do together beyond outcome models in them.

With h(x; a) what products of steps add to an outcome model, found in training rows alone, or in the
other folds if each is valued, the score of a row changes by h(x; a)·(1 − 1{A = a}/ê). Where
propensities are right, that is chance; where they are not, it is about what values are wrong by, as
far as h is found. How much is still missed nobody knows, so values are taken to be more unsure by
what this moves them.
"""

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.rows.chunks import Chunk
from fedopl.client.scoring.corrections.step_products import FoundProducts
from fedopl.client.scoring.cross_fit import Nuisances
from fedopl.messages.message import RowSplit

# Times the square of what a value moves by. One would do if clients' errors averaged out; they go
# the same way. With three clients, this is as if what is still missed were as much again.
_BY_SQUARES = 3.0


def changes_by(
    found: FoundProducts, chunk: Chunk, nuisances: Nuisances, clip: float | None
) -> FloatArray:  # (n_rows, n_actions)
    """What scores of the rows change by: of training rows fold by fold, then of held-out ones."""
    contexts = chunk.data.contexts
    own = [found.without(fold).of(contexts[at]) for fold, at in enumerate(chunk.fold_slices)]
    held_out = found.products.of(contexts[chunk.rows(RowSplit.EVALUATION)])
    changes = np.concatenate([*own, held_out])
    places = np.arange(len(changes)), chunk.data.actions
    chances = np.maximum(nuisances.propensities[places], clip or 0.0)
    known = chances > 0  # a row whose propensity is not known has no score
    changes[places] *= 1 - np.divide(1.0, chances, out=np.ones_like(chances), where=known)
    return changes


def variance_of_changes(changes: FloatArray, weights: FloatArray | None) -> float:
    """What to add to the variance of a mean of scores that change by this, (n_rows,)."""
    return _BY_SQUARES * float(np.average(changes, weights=weights)) ** 2


def added_by_changes(
    changes: FloatArray, decided: IntArray, weights: FloatArray | None
) -> FloatArray:  # (n_policies, n_policies)
    """What to add to the covariances of policies' values, by their decisions (n_rows, n_policies).

    All values move together, so this is of rank one.
    """
    own = changes[np.arange(len(decided))[:, None], decided]
    moved = np.average(own, axis=0, weights=weights)
    return _BY_SQUARES * np.outer(moved, moved)


def may_be_corrected(chunk: Chunk, without: BoolArray) -> BoolArray:  # (n_actions,)
    """The actions that enough training rows took, of those with scores by more than a model."""
    taken = np.bincount(chunk.data.actions[chunk.training], minlength=len(without))
    return np.asarray((taken > 0) & ~without)
