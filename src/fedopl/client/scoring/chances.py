"""How likely actions were, for rows that come some at a time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedopl.base.arrays import FloatArray
from fedopl.base.errors import DataError
from fedopl.client.rows.chunks import Chunk
from fedopl.client.rows.folds import Folds
from fedopl.client.rows.study_rows import DealtRows
from fedopl.client.scoring.propensity import (
    PROPENSITIES,
    fit_propensities,
    fold_classifiers,
    log_loss,
    logistic_classifier,
    marginal_shares,
    predicted,
)
from fedopl.client.table.logged_data import LoggedData, trusted

# A logistic model hardly changes with more rows than this, and scikit-learn wants all in memory.
MOST_FITTED = 200_000


@dataclass(frozen=True, eq=False, kw_only=True)
class Chances:
    """ê(x; a) of any of the rows."""

    of: Callable[[LoggedData, Folds], FloatArray]  # (n_rows, n_actions)
    chosen: str


def chances_of(rows: DealtRows, kind: str, seed: int) -> Chances:
    """Known ones or the best of some models; of many rows, a model is fitted to a part."""
    if rows.is_on_disk or rows.given.n_rows > MOST_FITTED:
        return _in_passes(rows, kind)
    whole = rows.whole
    found = fit_propensities(whole.data, whole.folds, kind, seed)
    return Chances(of=lambda _data, _folds: found.values, chosen=found.chosen)


def _in_passes(rows: DealtRows, kind: str) -> Chances:
    """Known ones, shares, or a model fitted to a part of the rows.

    With "auto" that part also decides which of the last two has the lower log loss out of fold.
    """
    if kind == "known" or (kind == "auto" and rows.given.propensities is not None):
        return Chances(of=lambda data, folds: _known(data, folds), chosen="known")
    shares = marginal_shares(rows.weights[:-1], apart=True)
    marginal = Chances(of=lambda _, folds: shares.take(folds.of_row, axis=0), chosen="marginal")
    if kind == "marginal":
        return marginal
    sample = _sampled(rows)
    models = fold_classifiers(sample.data, sample.folds, logistic_classifier(1.0), seed=0)
    logistic = Chances(of=lambda data, folds: predicted(models, data, folds), chosen="logistic")
    if kind == "logistic":
        return logistic
    losses = [
        log_loss(sample.data, one.of(sample.data, sample.folds), sample.folds)
        for one in (marginal, logistic)
    ]
    return marginal if losses[0] <= losses[1] else logistic


def _known(data: LoggedData, folds: Folds) -> FloatArray:
    if data.propensities is None:
        raise DataError("propensities: known ones were asked for and the data have none")
    return PROPENSITIES["known"](data, folds).values


def _sampled(dealt: DealtRows) -> Chunk:
    """Evenly spread rows, few enough to fit a model to."""
    step = max(1, -(-dealt.given.n_rows // MOST_FITTED))
    pieces: dict[str, list[Any]] = {}
    start = 0
    for chunk in dealt.chunks():
        rows = np.arange(-start % step, chunk.data.n_rows, step)
        start += chunk.data.n_rows
        for name in ("contexts", "actions", "rewards", "weights"):
            array = getattr(chunk.data, name)
            if array is not None:
                pieces.setdefault(name, []).append(array[rows])
        pieces.setdefault("folds", []).append(chunk.folds.of_row[rows])
    whole = {name: np.concatenate(parts) for name, parts in pieces.items()}
    data = trusted(whole, chunk.data.action_names, chunk.data.feature_names)
    folds = Folds(of_row=whole["folds"], n_folds=chunk.folds.n_folds, reason="")
    return Chunk(data=data, folds=folds, scores=np.empty((0, data.n_actions)))
