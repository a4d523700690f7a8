"""Propensities of the same rows, fitted once for all tests of a file that asks for it.

To fit them takes more than half the time of a run by default. What is learned is the same to the
last bit, as a fit is a function of the rows, their folds and a seed. It is for files that run the
same few tables again and again and say nothing about fits.
"""

import hashlib
from functools import partial

import pytest

from fedopl.client.scoring.propensity import MOST_FITTED, PROPENSITIES

FITTED = ("auto", "logistic", "boosting")  # the others take no time


@pytest.fixture(scope="module")
def propensities_fitted_once():
    kept = {}
    with pytest.MonkeyPatch.context() as patch:
        for name in FITTED:
            once = partial(_once, kept, name, PROPENSITIES[name])
            patch.setitem(PROPENSITIES, name, once)
        yield


def _once(kept, name, fit, rows, seed):
    if rows.given.is_on_disk or rows.given.n_rows > MOST_FITTED:
        return fit(rows, seed)
    key = (name, seed, *_told_by(rows.sample(MOST_FITTED)))
    if key not in kept:
        kept[key] = fit(rows, seed)
    return kept[key]


def _told_by(chunk):
    """All that propensities can follow from."""
    data, folds = chunk.data, chunk.folds
    yield data.n_actions
    yield folds.n_folds
    for array in (
        *(data.contexts, data.actions, data.weights, data.groups, data.propensities),
        folds.of_row,
    ):
        if array is None:
            yield None
        else:
            yield array.shape, array.dtype.str, hashlib.sha256(array.tobytes()).digest()
