"""Ridge regressions on nested sets of terms: on the first few, on more, or on all terms."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedopl.base.arrays import FloatArray, IntArray
from fedopl.solvers.least_squares import (
    PENALTIES,
    LinearModels,
    ridge,
    ridge_along,
    ridge_and_errors,
    stacked_models,
)

if TYPE_CHECKING:  # scoring arrays needs no basis, and a basis is slow to import
    from fedopl.policies.terms import Terms


def outcome_ridge(
    sums: FloatArray, effective_rows: FloatArray, terms: "Terms | None"
) -> LinearModels:
    """Ridge on all columns, or on the family of terms that fits each model best."""
    if terms is None:
        return ridge(sums, effective_rows)
    sizes = {terms.sizes[family] for family in terms.families}
    if sums.ndim > 3:  # part by part, as each family needs copies
        parts = zip(sums, effective_rows, strict=True)
        return stacked_models([ridge_of_best(part, rows, sizes) for part, rows in parts])
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
        models, errors = ridge_and_errors(sums[..., kept[:, None], kept], effective_rows)
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
    return ridge_along(grams, products, PENALTIES)


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
    found = ridge_along(narrowed(grams, used), narrowed(products, used), chosen)
    own = found[place, np.arange(len(products))]
    wide = np.zeros_like(products)
    wide[:, used], wide[:, -1] = own[:, :-1], own[:, -1]
    return wide


def narrowed(means: FloatArray, used: IntArray) -> FloatArray:
    """Mean squares or products of these terms and the intercept."""
    kept = with_last(used, means.shape[-1], last=1)
    return means[..., kept[:, None], kept] if means.ndim == 3 else means[..., kept]
