"""Logged decisions: what was seen, what was done, what was gained."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedopl.base.arrays import FloatArray, IntArray, check_finite, check_length, float_array, frozen
from fedopl.base.errors import DataError, refuse_to_leave
from fedopl.base.labels import factorise, quoted, unique_names
from fedopl.client.disk.disk_array import DiskArray, slices

if TYPE_CHECKING:
    from fedopl.base.schema import Schema

# How far a row of propensities may be from adding up to one.
SUM_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False, repr=False, init=False)
class LoggedData:
    """One client's logged bandit data {(X_i, A_i, Y_i)}, checked once and never changed.

    A larger reward is always better. Arrays are not copied where they already have the right type,
    so do not write to them afterwards. Where there are more rows than memory holds, each array is
    in a file and gives slices only: take a `part`, which is as any other data.

    Args:
        contexts: what was seen before each decision, numbers, shape (n_rows, n_features).
        actions: what was done, as labels or as codes 0 … n_actions − 1, shape (n_rows,).
        rewards: what was gained, shape (n_rows,).
        propensities: if known, the probability with which the logging policy took the logged
            action, shape (n_rows,), or each action, shape (n_rows, n_actions).
        action_names: every action there is, in the order of their codes. Without it the actions
            are those that occur, in sorted order, so name them if one may not occur here.
        feature_names: one for each column of the contexts.
        weights: how much each row counts, all above zero.
        groups: which rows belong together (a person, a school): they share a fold, and standard
            errors allow for their likeness.
        schema: what the columns of the table meant that all of this was read from; policies learned
            from it then know how to decide on such tables.

    """

    contexts: FloatArray  # (n_rows, n_features)
    actions: IntArray  # (n_rows,)
    rewards: FloatArray  # (n_rows,)
    propensities: FloatArray | None  # (n_rows,) or (n_rows, n_actions)
    action_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    weights: FloatArray | None  # (n_rows,)
    groups: IntArray | None  # (n_rows,)
    schema: "Schema | None"

    __reduce_ex__ = refuse_to_leave

    def __init__(
        self,
        contexts: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        propensities: ArrayLike | None = None,
        *,
        action_names: Sequence[object] | None = None,
        feature_names: Sequence[str] | None = None,
        weights: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        schema: "Schema | None" = None,
    ) -> None:
        features, column_names = _checked_contexts(contexts, feature_names)
        n_rows = len(features)
        known = None if propensities is None else _propensity_array(propensities, n_rows)
        codes, names = _checked_actions(actions, action_names, known)
        check_length(codes, "actions", n_rows)
        if known is not None:
            check_propensities(known, codes, names)
        fields = {
            "contexts": frozen(features),
            "actions": frozen(codes),
            "rewards": frozen(_checked_vector(rewards, "rewards", n_rows)),
            "propensities": None if known is None else frozen(known),
            "action_names": names,
            "feature_names": column_names,
            "weights": None if weights is None else frozen(checked_weights(weights, n_rows)),
            "groups": None if groups is None else frozen(_checked_groups(groups, n_rows)),
            "schema": schema,
        }
        if schema and (names, column_names) != (schema.actions, schema.feature_names):
            raise DataError("schema: it is of other actions or features than these")
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def is_on_disk(self) -> bool:
        """Whether the rows are in files, to be had a slice at a time."""
        return isinstance(self.contexts, DiskArray)

    def part(self, rows: slice) -> "LoggedData":
        """These rows, in memory; a group keeps its code, so that parts can be put together."""
        return self._of(lambda array: array[rows])

    def taken(self, order: IntArray) -> "LoggedData":
        """These rows in this order, where rows are in memory."""
        return self._of(lambda array: array.take(order, axis=0))

    def with_contexts(self, contexts: FloatArray) -> "LoggedData":
        """The same rows with other contexts, which are to be trusted."""
        return self._of(lambda array: contexts if array is self.contexts else array)

    def _of(self, some: Callable[[NDArray[Any]], NDArray[Any]]) -> "LoggedData":
        def maybe(array: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if array is None else some(array)

        groups = maybe(self.groups)
        return trusted(
            some(self.contexts),
            some(self.actions).astype(np.int64, copy=False),
            some(self.rewards),
            maybe(self.propensities),
            weights=maybe(self.weights),
            groups=None if groups is None else groups.astype(np.int64, copy=False),
            action_names=self.action_names,
            feature_names=self.feature_names,
            schema=self.schema,
        )

    @property
    def n_rows(self) -> int:
        """How many decisions were logged, n_c in the paper."""
        return len(self.actions)

    @property
    def n_features(self) -> int:
        """How many numbers describe a context, p in the paper."""
        return int(self.contexts.shape[1])

    @property
    def n_actions(self) -> int:
        """How many actions there are, taken here or not, d in the paper."""
        return len(self.action_names)

    @property
    def rows_per_action(self) -> IntArray:  # (n_actions,)
        """How often each action was taken."""
        if not self.is_on_disk:
            return np.bincount(self.actions, minlength=self.n_actions)
        counts = np.zeros(self.n_actions, np.int64)
        for rows in slices(self.n_rows):
            counts += np.bincount(self.actions[rows], minlength=self.n_actions)
        return counts

    @property
    def n_groups(self) -> int:
        """How many groups there are, 0 if rows have none."""
        if self.groups is None:
            return 0
        parts = slices(self.n_rows) if self.is_on_disk else [slice(None)]
        return 1 + max(int(self.groups[rows].max()) for rows in parts)

    def __repr__(self) -> str:
        counts = [
            f"{self.n_rows:,} rows",
            f"{self.n_features:,} features",
            f"{self.n_actions:,} actions",
        ]
        if self.groups is not None:
            counts.append(f"{self.n_groups:,} groups")
        if self.weights is not None:
            counts.append("weighted")
        if self.propensities is not None:
            whose = "the logged action" if self.propensities.ndim == 1 else "every action"
            counts.append(f"propensities of {whose}")
        if self.is_on_disk:
            counts.append("on disk")
        return f"LoggedData({', '.join(counts)})"


def folder_of(data: LoggedData) -> Path:
    """Where the files are of data on disk, for what else is kept of them."""
    contexts: Any = data.contexts
    if not isinstance(contexts, DiskArray):
        raise TypeError("these rows are in memory")
    return contexts.path.parent


def fingerprint(data: LoggedData) -> str:
    """A hash of all rows, so it changes whenever they do; it never leaves the client."""
    digest = hashlib.blake2b(digest_size=16)
    arrays = (data.contexts, data.actions, data.rewards, data.propensities, data.weights)
    for array in (*arrays, data.groups):
        digest.update(b"none" if array is None else _content(array))
    return digest.hexdigest()


def _content(array: NDArray[Any] | DiskArray) -> bytes | memoryview:
    """What stands for an array in the fingerprint: its bytes, or the digest of its file."""
    if not isinstance(array, DiskArray):
        return np.ascontiguousarray(array).data
    if not array.digest:
        raise ValueError(f"{array.path}: nobody took its digest")
    return array.digest.encode()


def trusted(
    contexts: FloatArray | DiskArray,
    actions: NDArray[Any] | DiskArray,
    rewards: FloatArray | DiskArray,
    propensities: FloatArray | DiskArray | None = None,
    *,
    action_names: tuple[str, ...],
    feature_names: tuple[str, ...],
    weights: FloatArray | DiskArray | None = None,
    groups: NDArray[Any] | DiskArray | None = None,
    schema: "Schema | None" = None,
) -> LoggedData:
    """Data from arrays that were checked before: none of them is looked at again."""
    arrays = {
        "contexts": contexts,
        "actions": actions,
        "rewards": rewards,
        "propensities": propensities,
        "weights": weights,
        "groups": groups,
    }
    data = LoggedData.__new__(LoggedData)
    for name, array in arrays.items():
        value = frozen(array) if isinstance(array, np.ndarray) else array
        object.__setattr__(data, name, value)
    object.__setattr__(data, "action_names", action_names)
    object.__setattr__(data, "feature_names", feature_names)
    object.__setattr__(data, "schema", schema)
    return data


def _checked_contexts(
    contexts: ArrayLike, feature_names: Sequence[str] | None
) -> tuple[FloatArray, tuple[str, ...]]:
    if feature_names is None:
        feature_names = [str(name) for name in getattr(contexts, "columns", ())] or None
    array = float_array(contexts, "contexts", ndim=2)
    n_rows, n_features = array.shape
    if not n_rows or not n_features:
        raise DataError(
            f"contexts: expected at least one row and one feature, came shape {array.shape}"
        )
    if feature_names is None:
        feature_names = [f"x{column}" for column in range(n_features)]
    names = unique_names(feature_names, "feature_names")
    if len(names) != n_features:
        raise DataError(
            f"feature_names: expected {n_features} as contexts has columns, came {len(names)}"
        )
    check_finite(array, "contexts", names)
    return array, names


def _checked_vector(values: ArrayLike, name: str, n_rows: int) -> FloatArray:
    array = float_array(values, name, ndim=1)
    check_length(array, name, n_rows)
    check_finite(array, name)
    return array


def checked_weights(weights: ArrayLike, n_rows: int) -> FloatArray:
    """Row weights, one for each row and all above zero."""
    array = _checked_vector(weights, "weights", n_rows)
    not_above = int((array <= 0).sum())
    if not_above:
        raise DataError(
            f"weights: {not_above:,} of {n_rows:,} are zero or less; leave those rows out"
        )
    return array


def _checked_groups(groups: ArrayLike, n_rows: int) -> IntArray:
    # Only codes are kept: the labels may be people's names, and nothing here needs them.
    _, codes = factorise(groups, "groups")
    check_length(codes, "groups", n_rows)
    return codes


def _checked_actions(
    actions: ArrayLike, action_names: Sequence[object] | None, propensities: FloatArray | None
) -> tuple[IntArray, tuple[str, ...]]:
    labels, codes = factorise(actions, "actions")
    are_integers = np.asarray(actions).dtype.kind in "iu"
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


def _propensity_array(propensities: ArrayLike, n_rows: int) -> FloatArray:
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
    """Refuse propensities that cannot be those with which these actions were taken."""
    n_rows = len(codes)
    if known.ndim == 2 and known.shape[1] != len(names):
        raise DataError(
            f"propensities: expected {len(names)} columns, one for each of {quoted(names)}, "
            f"came {known.shape[1]}"
        )
    check_finite(known, "propensities", names if known.ndim == 2 else None)
    if known.min() < 0 or known.max() > 1:
        outside = int(((known < 0) | (known > 1)).sum())
        raise DataError(
            f"propensities: {outside:,} values outside 0 to 1 (they range from {known.min():.4g} "
            f"to {known.max():.4g}); give probabilities, not weights, odds or per cent"
        )
    logged = known if known.ndim == 1 else known[np.arange(n_rows), codes]
    if not logged.all():
        zero = int((logged == 0).sum())
        raise DataError(
            f"propensities: 0 for the action that was taken in {zero:,} of {n_rows:,} rows; "
            "what happened cannot have probability 0"
        )
    if known.ndim == 2:
        _check_sums(known @ np.ones(known.shape[1]))


def _check_sums(totals: FloatArray) -> None:
    away = np.abs(totals - 1)
    if away.max() > SUM_TOLERANCE:
        off = int((away > SUM_TOLERANCE).sum())
        raise DataError(
            f"propensities: {off:,} of {len(totals):,} rows do not add up to 1 (they add up to "
            f"{totals.min():.4g} … {totals.max():.4g}); give each action's probability in each row"
        )
