"""Places are filled so that all together gain most, and nobody loses by one unless asked."""

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from fedopl.base.errors import OptionError
from fedopl.solvers import places as solver
from fedopl.solvers.places import fill_places


def best_by_assignment(scores, places, fill):
    """The most that can be had, with a column for every place."""
    n_rows, n_actions = scores.shape
    columns = [a for a in range(n_actions) for _ in range(min(places.get(a, n_rows), n_rows))]
    worth = np.where(np.isneginf(scores), -1e6, scores)[:, columns]
    worth += np.array([1e4 if fill and a in places else 0.0 for a in columns])
    rows, taken = linear_sum_assignment(worth, maximize=True)
    codes = np.array(columns)[taken]
    return scores[rows, codes].sum(), [np.count_nonzero(codes == a) for a in places]


@pytest.mark.parametrize("fewest", [4_000, 1])
def test_places_are_filled_as_an_assignment_would(monkeypatch, fewest):
    monkeypatch.setattr(solver, "_FEWEST_MOVED", fewest)  # 1: prices decide, and are checked
    for seed in range(120):
        rng = np.random.default_rng(seed)
        n_rows, n_actions = int(rng.integers(2, 25)), int(rng.integers(2, 5))
        scores = rng.normal(size=(n_rows, n_actions))
        scores = np.round(scores) if seed % 2 else scores  # with ties
        if seed % 3 == 0:
            scores[:, 1:][rng.random((n_rows, n_actions - 1)) < 0.15] = -np.inf
        some = rng.permutation(np.arange(1, n_actions))[: rng.integers(1, n_actions)]
        places = {int(action): int(rng.integers(0, n_rows)) for action in some}
        fill = bool(rng.random() < 0.4)
        codes = fill_places(scores, places, fill=fill)
        worth, counts = best_by_assignment(scores, places, fill)
        filled = [np.count_nonzero(codes == action) for action in places]
        assert all(n <= places[a] for n, a in zip(filled, places, strict=True))
        assert sum(filled) == sum(counts) or not fill
        assert scores[np.arange(n_rows), codes].sum() == pytest.approx(worth, abs=1e-9)


def test_of_rows_that_are_alike_the_first_get_the_places():
    scores = np.array([[0.0, 1.0]] * 5)
    assert fill_places(scores, {1: 2}).tolist() == [1, 1, 0, 0, 0]
    assert fill_places(-scores, {1: 2}).tolist() == [0] * 5  # it is worse for all of them
    assert fill_places(-scores, {1: 2}, fill=True).tolist() == [1, 1, 0, 0, 0]


def test_places_that_are_too_few_are_an_error():
    scores = np.zeros((3, 2))
    with pytest.raises(OptionError, match="2 in all for 3 rows"):
        fill_places(scores, {0: 1, 1: 1})
    scores[:, 0] = -np.inf
    with pytest.raises(OptionError, match="too few for 1 rows"):
        fill_places(scores, {1: 2})
