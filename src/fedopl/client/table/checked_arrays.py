"""Checks arrays that a user gives: each is converted and checked once, and named in errors."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from fedopl.base.arrays import FloatArray, IntArray, check_finite, check_length, float_array, frozen
from fedopl.base.errors import DataError
from fedopl.base.known_shares import Chances, as_chances, in_full
from fedopl.base.labels import factorise, quoted, unique_names

# How far the propensities of a row may be from adding up to one.
PROPENSITY_TOLERANCE = 1e-6


def named_contexts(
    contexts: ArrayLike, feature_names: Sequence[str] | None
) -> tuple[FloatArray, tuple[str, ...]]:
    """The contexts, and the features' names: as given, as in a frame, or x0, x1 and so on."""
    if feature_names is None:
        feature_names = [str(name) for name in getattr(contexts, "columns", ())] or None
    array = float_array(contexts, "contexts", ndim=2)
    n_rows, n_features = array.shape
    if not n_rows or not n_features:
        raise DataError(
            f"contexts: expected at least one row and one feature, came shape {array.shape}"
        )
    if feature_names is None:
        names = _numbered(n_features)
    else:
        names = unique_names(feature_names, "feature_names")
    if len(names) != n_features:
        raise DataError(
            f"feature_names: expected {n_features} as contexts has columns, came {len(names)}"
        )
    check_finite(array, "contexts", names)
    return array, names


@lru_cache(16)  # clients of a study have as many features
def _numbered(n_features: int) -> tuple[str, ...]:
    return tuple(f"x{column}" for column in range(n_features))


def checked_vector(values: ArrayLike, name: str, n_rows: int) -> FloatArray:
    """The values as an array with one finite number for each row."""
    array = float_array(values, name, ndim=1)
    check_length(array, name, n_rows)
    check_finite(array, name)
    return array


def checked_weights(weights: ArrayLike, n_rows: int) -> FloatArray:
    """Row weights as an array, one for each row and all above zero."""
    array = checked_vector(weights, "weights", n_rows)
    not_above = int((array <= 0).sum())
    if not_above:
        raise DataError(
            f"weights: {not_above:,} of {n_rows:,} are zero or less; leave those rows out"
        )
    return array


def checked_groups(groups: ArrayLike, n_rows: int) -> IntArray:
    """The code of each row's group."""
    # Only codes are kept: labels may be people's names, and nothing here needs them.
    _, codes = factorise(groups, "groups")
    check_length(codes, "groups", n_rows)
    return codes


def checked_actions(
    actions: ArrayLike, action_names: Sequence[object] | None, propensities: FloatArray | None
) -> tuple[IntArray, tuple[str, ...]]:
    """The code of each row's action, and the names of all actions."""
    actions = np.asarray(actions)
    labels, codes = factorise(actions, "actions")
    are_integers = actions.dtype.kind in "iu"
    if action_names is not None:
        names = unique_names(action_names, "action_names")
    elif are_integers and propensities is not None and propensities.ndim == 2:
        names = tuple(str(code) for code in range(propensities.shape[1]))
    else:
        names = tuple(labels)
    if len(names) < 2:
        raise DataError(
            f"actions: a decision needs at least two actions, came {quoted(names) or 'none'}; "
            "name them all with action_names, taken here or not"
        )
    positions = {name: code for code, name in enumerate(names)}
    if are_integers and not positions.keys() & set(labels):
        positions = {str(code): code for code in range(len(names))}
    unknown = [label for label in labels if label not in positions]
    if unknown:
        n_unknown = int(np.isin(codes, [labels.index(label) for label in unknown]).sum())
        raise DataError(
            f"actions: {n_unknown:,} of {len(codes):,} rows have an action that is not one of the "
            f"{len(names)} named ({quoted(names)}); unknown: {quoted(unknown)}"
        )
    return np.array([positions[label] for label in labels], np.int64)[codes], names


def checked_outcomes(
    outcomes: Mapping[str, ArrayLike], n_rows: int
) -> FloatArray | None:  # (n_rows, n_outcomes)
    """Further outcomes, one column each; None if there are none."""
    columns = [
        checked_vector(values, f"outcomes '{name}'", n_rows) for name, values in outcomes.items()
    ]
    return frozen(np.ascontiguousarray(np.column_stack(columns))) if columns else None


def stated_propensities(
    shares: Chances, n_rows: int, names: tuple[str, ...]
) -> FloatArray:  # (n_rows, n_actions)
    """Propensities that are the same in every row."""
    try:
        stated = in_full(as_chances(shares), names)
    except ValueError as error:
        raise DataError(f"propensities: {error}") from None
    return np.tile(np.array(stated), (n_rows, 1))


def propensity_array(propensities: ArrayLike, n_rows: int) -> FloatArray:
    """Propensities of the logged action, or of every action, as an array."""
    ndim = np.ndim(propensities)
    if ndim not in (1, 2):
        raise DataError(
            "propensities: expected shape (n_rows,) for the logged action or (n_rows, n_actions) "
            f"for every action, came {np.shape(propensities)}"
        )
    array = float_array(propensities, "propensities", ndim=ndim)
    check_length(array, "propensities", n_rows)
    return array


def check_propensities(known: FloatArray, codes: IntArray, names: tuple[str, ...]) -> None:
    """Raise an error for propensities with which these actions cannot have been taken."""
    n_rows = len(codes)
    if known.ndim == 2 and known.shape[1] != len(names):
        raise DataError(
            f"propensities: expected {len(names)} columns, one for each of {quoted(names)}, "
            f"came {known.shape[1]}"
        )
    check_finite(known, "propensities", names if known.ndim == 2 else None)
    flat = known.reshape(-1)  # in which `argmin` is faster than `min`
    if flat[flat.argmin()] < 0 or flat[flat.argmax()] > 1:
        outside = int(((known < 0) | (known > 1)).sum())
        raise DataError(
            f"propensities: {outside:,} values outside 0 to 1 (they range from {known.min():.4g} "
            f"to {known.max():.4g}); give probabilities, not weights, odds or per cent"
        )
    logged = known if known.ndim == 1 else known[np.arange(n_rows), codes]
    if np.count_nonzero(logged) < n_rows:
        zero = int((logged == 0).sum())
        raise DataError(
            f"propensities: 0 for the action that was taken in {zero:,} of {n_rows:,} rows; "
            "what happened cannot have probability 0"
        )
    if known.ndim == 2:
        _check_sums(known @ np.ones(known.shape[1]))


def _check_sums(totals: FloatArray) -> None:
    away = np.abs(totals - 1)
    if away.max() > PROPENSITY_TOLERANCE:
        off = int((away > PROPENSITY_TOLERANCE).sum())
        raise DataError(
            f"propensities: {off:,} of {len(totals):,} rows do not add up to 1 (they add up to "
            f"{totals.min():.4g} … {totals.max():.4g}); give each action's probability in each row"
        )
