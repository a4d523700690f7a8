"""Ridge regressions on nested sets of terms: on the first few, on more, or on all terms.

Outcome models are the best of them, or weighted means of them and of other models.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray
from fedopl.base.decompositions import eigh
from fedopl.solvers import least_squares
from fedopl.solvers.least_squares import LinearModels

if TYPE_CHECKING:  # scoring arrays needs no basis, and a basis is slow to import
    from fedopl.policies.terms import Terms


def outcome_ridge(
    sums: FloatArray, effective_rows: FloatArray, terms: "Terms | None"
) -> LinearModels:
    """Ridge on all columns, or on the family of terms that fits each model best."""
    if terms is None:
        return least_squares.ridge(sums, effective_rows)
    sizes = {terms.sizes[family] for family in terms.families}
    if sums.ndim > 3:  # part by part, as each family needs copies
        parts = zip(sums, effective_rows, strict=True)
        return least_squares.stacked_models(
            [ridge_of_best(part, rows, sizes) for part, rows in parts]
        )
    return ridge_of_best(sums, effective_rows, sizes)


def of_usable(
    sums: FloatArray, terms: "Terms | None", screenings: Collection[int]
) -> FloatArray:  # shaped as sums
    """Sums with zeros for terms that any of these screenings did not find, so that none is used."""
    if terms is None or terms.basis.found_by_fold is None:
        return sums
    found = sums.copy()
    unused = np.setdiff1d(np.arange(terms.n_terms), terms.usable(terms.n_terms, screenings))
    found[..., unused, :] = found[..., unused] = 0.0
    return found


def of_usable_by_fold(others: FloatArray, terms: "Terms | None") -> FloatArray:
    """The same for sums without each fold and, last, those of all folds."""
    if terms is None or terms.basis.found_by_fold is None:
        return others
    return np.array([of_usable(own, terms, [fold]) for fold, own in enumerate(others)])


def ridge_of_best(
    sums: FloatArray, effective_rows: FloatArray, sizes: Collection[int]
) -> LinearModels:
    """For each sum in a stack, ridge on the number of first terms that has the least error.

    Errors are from generalised cross-validation. If several numbers have the same error, the fewest
    terms win.
    """
    found = ridge_by_size(sums, effective_rows, sorted(sizes))
    least, best = found[0]
    for errors, models in found[1:]:
        better = errors < least
        least = np.where(better, errors, least)
        best = LinearModels(
            coefficients=np.where(better[..., None], models.coefficients, best.coefficients),
            intercepts=np.where(better, models.intercepts, best.intercepts),
            penalties=np.where(better, models.penalties, best.penalties),
        )
    return best


def ridge_by_size(
    sums: FloatArray, effective_rows: FloatArray, sizes: Sequence[int]
) -> list[tuple[FloatArray, LinearModels]]:
    """For each size, errors and models of ridge on that number of first terms."""
    found = []
    for size in sizes:
        kept = with_last(np.arange(size), sums.shape[-1], last=2)
        models, errors = least_squares.ridge_and_errors(
            sums[..., kept[:, None], kept], effective_rows
        )
        wide = np.zeros((*models.coefficients.shape[:-1], sums.shape[-1] - 2))
        wide[..., :size] = models.coefficients
        found.append((errors, replace(models, coefficients=wide)))
    return found


def with_last(used: IntArray, n_columns: int, *, last: int) -> IntArray:  # (n_used + last,)
    """Positions of these columns and of the last ones: intercept, perhaps outcome."""
    return np.concatenate([used, np.arange(n_columns - last, n_columns)])


def ridge_paths(
    fitted: tuple[FloatArray, FloatArray], used: IntArray
) -> FloatArray:  # (n_penalties, n_actions, n_used + 1)
    """Ridge on these terms at every penalty.

    From mean squares (n_grams, n_columns, n_columns) and products (n_actions, n_columns), the
    intercept last. One Gram matrix may be shared by all actions.
    """
    grams, products = (narrowed(one, used) for one in fitted)
    return least_squares.ridge_along(grams, products, least_squares.PENALTIES)


def held_out_losses(
    paths: FloatArray, held_out: tuple[FloatArray, FloatArray], used: IntArray
) -> FloatArray:  # (n_penalties, n_actions)
    """Mean (Γ̂ − φᵀθ)² − Γ̂² on held-out rows, for every penalty, from the same means as paths."""
    grams, products = (narrowed(one, used) for one in held_out)
    turned = paths @ grams[0] if len(grams) == 1 else (paths[:, :, None] @ grams)[:, :, 0]
    return np.asarray(((turned - 2 * products) * paths).sum(axis=-1))


def shrunk_solution(
    grams: FloatArray, products: FloatArray, used: IntArray, penalties: FloatArray
) -> FloatArray:  # shaped as products
    """Ridge on these terms, with one penalty per action; all other coefficients are zero."""
    chosen, place = np.unique(penalties, return_inverse=True)
    found = least_squares.ridge_along(narrowed(grams, used), narrowed(products, used), chosen)
    own = found[place, np.arange(len(products))]
    wide = np.zeros_like(products)
    wide[:, used], wide[:, -1] = own[:, :-1], own[:, -1]
    return wide


def narrowed(means: FloatArray, used: IntArray) -> FloatArray:
    """Mean squares or products of these terms and the intercept."""
    kept = with_last(used, means.shape[-1], last=1)
    return means[..., kept[:, None], kept] if means.ndim == 3 else means[..., kept]


# --- weighted means ------------------------------------------------------------------------------

# A super learner (van der Laan, Polley & Hubbard 2007). For the rows of fold k, the weights
# minimise the squared error on other folds j of models that were fitted without folds k and j. The
# weights are then applied to models that were fitted without fold k. So no outcome influences the
# models of its own row, and the rows that choose the weights did not train what is compared.

# The weights of a fold are chosen on this many neighbours on either side: with five folds, on all
# others. With more folds, the number of models grows with the folds, not with their square.
NEIGHBOURS = 2
FEWEST_FOLDS = 3  # without two folds, there has to be something left

# For a part and another fold: Σ w·(y − f_m)(y − f_n) over the fold's rows that took each action, by
# models fitted without both.
Residuals = Callable[[int, int], FloatArray]  # (n_actions, n_models, n_models)


@lru_cache(64)
def fold_sets(n_folds: int) -> tuple[frozenset[int], ...]:
    """Sets of folds that models are fitted without: each fold, none, then every two neighbours."""
    each = [frozenset({fold}) for fold in range(n_folds)]
    pairs = {frozenset({k, j}) for k in range(n_folds) for j in chosen_on(k, n_folds)}
    return (*each, frozenset(), *sorted(pairs, key=sorted))


@lru_cache(64)
def n_folds_of(n_sets: int) -> int:
    """The number of folds that has `n_sets` sets in `fold_sets`."""
    return next(n for n in range(FEWEST_FOLDS, n_sets) if len(fold_sets(n)) == n_sets)


def chosen_on(part: int, n_folds: int) -> list[int]:
    """The folds on which a part's weights are chosen; all folds for held-out rows."""
    if part == n_folds:
        return list(range(n_folds))
    steps = range(-NEIGHBOURS, NEIGHBOURS + 1)
    return sorted({(part + step) % n_folds for step in steps} - {part})


def place_without(part: int, fold: int, n_folds: int) -> int:
    """The position in `fold_sets` of the models fitted without this part and without this fold."""
    return fold_sets(n_folds).index(frozenset({part, fold} - {n_folds}))


def models_by_size(
    sums: FloatArray,
    squared_weights: FloatArray,
    sizes: Sequence[int],
    terms: "Terms | None" = None,
) -> FloatArray:  # (n_sets, n_sizes, n_actions, n_terms + 1)
    """Ridge on each number of first terms, without each set of folds; the intercept is last.

    From sums (n_folds, n_actions, n_terms + 2, n_terms + 2). NaN where no row is left. Terms that
    were not found without each fold of a set are not used.
    """
    found = []
    for left_out in fold_sets(len(sums)):  # one by one, as sums of many terms are large
        others = [fold for fold in range(len(sums)) if fold not in left_out]
        left = of_usable(sums[others].sum(axis=0), terms, left_out or {-1})
        rows = least_squares.effective_rows(left[..., -2, -2], squared_weights[others].sum(axis=0))
        models = [models for _, models in ridge_by_size(left, rows, sizes)]
        found.append(
            [np.concatenate([m.coefficients, m.intercepts[..., None]], axis=-1) for m in models]
        )
    return np.array(found)


def residual_squares(
    models: FloatArray, sums: FloatArray
) -> FloatArray:  # (n_actions, n_models, n_models)
    """Σ w·(y − f_m)(y − f_n) over the rows in `sums`, (n_actions, n_terms + 2, n_terms + 2)."""
    left = residual_loadings(models)
    return np.asarray(left @ sums @ np.swapaxes(left, -1, -2))


def residual_loadings(models: FloatArray) -> FloatArray:  # (n_actions, n_models, n_terms + 2)
    """Turn z = (x, 1, y) into y − f(x): loadings of models (n_models, n_actions, n_terms + 1)."""
    by_action = np.swapaxes(np.nan_to_num(models), 0, 1)
    return np.concatenate([-by_action, np.ones((*by_action.shape[:2], 1))], axis=-1)


def stacking_weights(
    residuals: Residuals, supported: BoolArray, n_shared: int, counted: BoolArray
) -> FloatArray:  # (n_folds + 1, n_actions, n_models)
    """The weights of each part's models, on the simplex; the first `n_shared` models are shared.

    All actions together choose the weights, since each action has few rows. An action uses the
    shared models alone if these predict its rows no worse. An action that is not `counted`,
    (n_actions,), also uses the shared models, and does not influence the weights. `supported`,
    (n_sets, n_models, n_actions), marks the models that had any row to learn from.
    """
    n_models, n_actions = supported.shape[1:]
    n_folds = n_folds_of(len(supported))
    weights = np.zeros((n_folds + 1, n_actions, n_models))
    for part in range(n_folds + 1):
        others = chosen_on(part, n_folds)
        squares = np.sum([residuals(part, fold) for fold in others], axis=0)
        places = [part, *(place_without(part, fold, n_folds) for fold in others)]
        there = np.asarray(supported[places].all(axis=0) & counted)
        weights[part] = _weights_of_part(squares, there, n_shared)
    return weights


def _weights_of_part(
    squares: FloatArray, supported: BoolArray, n_shared: int
) -> FloatArray:  # (n_actions, n_models)
    n_actions, n_models = squares.shape[:2]
    usable = supported.all(axis=0)
    best = _pooled_weights(squares[usable], n_models)
    if not n_shared:
        return np.tile(best, (n_actions, 1))
    usable_shared = supported[:n_shared].all(axis=0)
    shared = np.zeros(n_models)
    shared[:n_shared] = _pooled_weights(squares[usable_shared][:, :n_shared, :n_shared], n_shared)
    better = np.array([best @ own @ best < shared @ own @ shared for own in squares])
    return np.where((usable & better)[:, None], best, shared)


def _pooled_weights(squares: FloatArray, n_models: int) -> FloatArray:  # (n_models,)
    """The weights of least error over these actions; the simplest model if there are no actions."""
    if not len(squares):
        return np.asarray(np.eye(n_models)[0])
    return simplex_weights(squares.sum(axis=0))


def simplex_weights(squares: FloatArray) -> FloatArray:  # (n_models,)
    """The w ≥ 0 with sum one that minimises wᵀSw, for sums of residuals' products S."""
    from scipy.optimize import nnls  # here, as it is slow to import

    eigenvalues, eigenvectors = eigh((squares + squares.T) / 2)
    root = np.sqrt(np.maximum(eigenvalues, 0.0))[:, None] * eigenvectors.T
    # The minimum of ‖Rw‖² + c²(Σw − 1)² has the direction sought, for any c.
    scale = float(np.sqrt(np.trace(squares) / len(squares))) or 1.0
    wanted = np.append(np.zeros(len(root)), scale)
    found, _ = nnls(np.vstack([root, np.full(len(root), scale)]), wanted, maxiter=1000)
    return np.asarray(found / found.sum())
