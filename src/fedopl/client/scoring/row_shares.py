"""How much of the sums of squares that a client releases rests on a single training row."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.client.disclosure.dominance import RowShares
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.resting_on_few import largest_shares_of_few
from fedopl.client.disk.passes import has_partitions, totals_of
from fedopl.client.rows.chunks import Chunk
from fedopl.client.scoring.propensity import Propensities
from fedopl.study.study import Study

# Relative to one over a known propensity. Closer numbers are equal, but computed in two ways.
SAME_PROPENSITY = 1e-9

# One over the known propensity of each row's logged action, (n_rows,).
Weighing = Callable[[Chunk], FloatArray]


def shares_in(
    chunks: Iterable[Chunk], shape: tuple[int, ...], weighing: Weighing | None = None
) -> RowShares | None:
    """The largest shares of single rows: of features, of outcomes, and of score weights by action.

    Someone with sums of outcomes both with and without those weights knows what rows with unusual
    weights add to the difference. A single such row would be disclosed. `shape` is folds and
    actions.
    """
    about = None
    if has_partitions(chunks):
        some = next((chunk for chunk in chunks if chunk.training.stop), None)
        about = _Squared.of(some, weighing).centre(shape[1]) if some else None
    found: RowShares | None = None
    for more in totals_of(chunks, partial(_shares_in, shape, weighing, about)):
        found = found.plus(more) if found and more else found or more
    return found


class _Centre(NamedTuple):
    """What squares are about: medians, as a typo does not move them."""

    columns: FloatArray  # (n_columns,)
    weights: FloatArray  # (n_actions,)  of weights, which are about zero then


class _Squared(NamedTuple):
    """What is squared of the training rows of a chunk."""

    columns: FloatArray  # (n_training, n_columns)
    actions: IntArray  # (n_training,)
    inverse: FloatArray | None  # (n_training,)

    @classmethod
    def of(cls, chunk: Chunk, weighing: Weighing | None) -> "_Squared":
        rows, data = chunk.training, chunk.data
        columns = np.column_stack([data.contexts[rows], data.rewards[rows]])
        return cls(columns, data.actions[rows], weighing(chunk)[rows] if weighing else None)

    def centre(self, n_actions: int) -> _Centre:
        centre = np.median(self.columns, axis=0)
        if self.inverse is None:
            return _Centre(centre, np.zeros(n_actions))
        middles = _middles(self.inverse, self.actions, n_actions)
        return _Centre(np.append(centre, np.zeros(n_actions)), middles)

    def with_weights(self, about: _Centre) -> FloatArray:  # (n_training, n_columns + n_actions)
        if self.inverse is None:
            return self.columns
        return np.hstack([self.columns, _about(about.weights, self.inverse, self.actions)])


def _shares_in(
    shape: tuple[int, ...],
    weighing: Weighing | None,
    about: _Centre | None,
    chunks: Iterable[Chunk],
) -> RowShares | None:
    """The same of these chunks, about this centre; else about that of the first, which will do."""
    n_folds, n_actions = shape
    found: RowShares | None = None
    for chunk in chunks:
        rows = chunk.training
        if not rows.stop:
            continue
        squared = _Squared.of(chunk, weighing)
        about = about or squared.centre(n_actions)
        found = found or RowShares(n_folds * n_actions, about.columns)
        found.add(chunk.fold_actions[rows], squared.with_weights(about), chunk.weights(rows))
    return found


def dominated(
    shares: RowShares, study: Study, limits: Limits
) -> BoolArray:  # (n_terms + 1 + n_actions,), or without actions
    """The columns in which one row has too large a share: terms, the outcome, weights by action.

    The share of weights may be larger. Nobody knows the weights of other rows, so these hide it
    better.
    """
    found = shares.by_column
    most = np.full(len(found), limits.dominance)
    most[study.n_terms + 1 :] = 1 - (1 - limits.dominance) / 4
    return np.asarray(found > most)


def shares_of_few(
    chunks: Callable[[], Iterable[Chunk]],
    cells_of: Callable[[Chunk], IntArray],
    n_cells: int,
    n_few: int,
) -> FloatArray:  # (n_cells,)
    """By cell, how much of a combination of terms rests on `n_few` training rows."""

    def parts() -> Iterator[tuple[FloatArray, FloatArray, IntArray]]:
        for chunk in chunks():
            contexts = chunk.data.contexts[chunk.training]
            weights = chunk.weights(chunk.training)
            yield contexts, np.ones(len(contexts)) if weights is None else weights, cells_of(chunk)

    return largest_shares_of_few(parts, n_cells, n_few)


def weighing_by(propensities: Propensities, study: Study) -> Weighing:
    """The weights of rows in scores that are summed: one over the logged action's propensity."""
    least = study.nuisances.learning_floor(study.n_actions)

    def weighing(chunk: Chunk) -> FloatArray:
        taken = np.arange(chunk.data.n_rows), chunk.data.actions
        chances = np.maximum(propensities.of(chunk)[taken], least)
        return np.divide(1.0, chances, out=np.zeros_like(chances), where=chances > 0)

    return weighing


def _middles(inverse: FloatArray, actions: IntArray, n_actions: int) -> FloatArray:  # (n_actions,)
    taken = [inverse[actions == action] for action in range(n_actions)]
    return np.array([np.median(own) if len(own) else 0.0 for own in taken])


def _about(middles: FloatArray, inverse: FloatArray, actions: IntArray) -> FloatArray:
    """How far each row's weight is from the median of its action, in that action's column."""
    columns = np.zeros((len(inverse), len(middles)))
    differs = np.abs(inverse - middles[actions]) > SAME_PROPENSITY * np.abs(middles[actions])
    rows = np.flatnonzero(differs)
    columns[rows, actions[rows]] = (inverse - middles[actions])[rows]
    return columns
