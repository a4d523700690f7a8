"""Logged decisions of one client: contexts, actions and rewards, in memory or in files."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedopl.base.arrays import BoolArray, FloatArray, IntArray, check_length, frozen
from fedopl.base.errors import DataError, refuse_to_leave
from fedopl.base.known_shares import Chances
from fedopl.base.labels import quoted
from fedopl.client.disk.disk_array import DiskArray, slices
from fedopl.client.disk.passes import PassEngine
from fedopl.client.table.checked_arrays import (
    check_propensities,
    checked_actions,
    checked_groups,
    checked_outcomes,
    checked_vector,
    checked_weights,
    named_contexts,
    propensity_array,
    stated_propensities,
)

if TYPE_CHECKING:
    from fedopl.base.schema import Schema

# The arrays with one entry per row; all other fields are about columns.
ROW_ARRAYS = ("contexts", "actions", "rewards", "propensities", "weights", "groups", "outcomes")
CODE_ARRAYS = {"actions", "groups"}


@dataclass(frozen=True, eq=False, repr=False, init=False)
class LoggedData:
    """One client's logged bandit data {(X_i, A_i, Y_i)}, checked once and never changed.

    A larger reward is always better. Arrays are not copied if they already have the right type, so
    do not write to them afterwards. If there are more rows than fit in memory, each array is in a
    file and gives only slices: take a `part`, which is ordinary data.

    Args:
        contexts: what was known before each decision, numbers, shape (n_rows, n_features).
        actions: what was done, as labels or as codes 0 … n_actions − 1, shape (n_rows,).
        rewards: what was gained, shape (n_rows,).
        propensities: if known, the probability with which the logging policy took the logged
            action, shape (n_rows,), or each action, shape (n_rows, n_actions). If it is the same in
            every row: 0.5 for every action, or a number for each, {"drug": 0.4, "placebo": 0.6}.
        action_names: all actions, in the order of their codes. Without it the actions are those
            that occur, in sorted order, so name them if one may not occur here.
        feature_names: one for each column of the contexts.
        weights: how much each row counts, all above zero.
        groups: which rows belong together (a person, a school). They share a fold, and standard
            errors allow for their dependence.
        outcomes: by name, further outcomes for guardrails, as they were logged, each of shape
            (n_rows,).
        schema: the meaning of the columns of the table that this was read from. With it, policies
            learned from the data can decide on such tables.

    """

    contexts: FloatArray  # (n_rows, n_features)
    actions: IntArray  # (n_rows,)
    rewards: FloatArray  # (n_rows,)
    propensities: FloatArray | None  # (n_rows,) or (n_rows, n_actions)
    action_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    weights: FloatArray | None  # (n_rows,)
    groups: IntArray | None  # (n_rows,)
    outcomes: FloatArray | None  # (n_rows, n_outcomes)
    outcome_names: tuple[str, ...]
    schema: "Schema | None"
    engine: PassEngine | None  # whose workers sum rows on disk, if this process does not

    __reduce_ex__ = refuse_to_leave

    def __init__(
        self,
        contexts: ArrayLike,
        actions: ArrayLike,
        rewards: ArrayLike,
        propensities: ArrayLike | Chances | None = None,
        *,
        action_names: Sequence[object] | None = None,
        feature_names: Sequence[str] | None = None,
        weights: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        outcomes: Mapping[str, ArrayLike] | None = None,
        schema: "Schema | None" = None,
    ) -> None:
        features, column_names = named_contexts(contexts, feature_names)
        n_rows = len(features)
        # Shares that a trial states are checked later, because they need the names of actions. An
        # array of propensities may tell these names.
        stated = propensities if isinstance(propensities, int | float | dict) else None
        is_array = propensities is not None and stated is None
        known = propensity_array(cast("ArrayLike", propensities), n_rows) if is_array else None
        codes, names = checked_actions(actions, action_names, known)
        check_length(codes, "actions", n_rows)
        if stated is not None:
            known = stated_propensities(stated, n_rows, names)
        if known is not None:
            check_propensities(known, codes, names)
        fields = {
            "contexts": frozen(features),
            "actions": frozen(codes),
            "rewards": frozen(checked_vector(rewards, "rewards", n_rows)),
            "propensities": None if known is None else frozen(known),
            "action_names": names,
            "feature_names": column_names,
            "weights": None if weights is None else frozen(checked_weights(weights, n_rows)),
            "groups": None if groups is None else frozen(checked_groups(groups, n_rows)),
            "outcomes": checked_outcomes(outcomes or {}, n_rows),
            "outcome_names": tuple(outcomes or ()),
            "schema": schema,
            "engine": None,
        }
        if schema and (names, column_names) != (schema.actions, schema.feature_names):
            raise DataError("schema: it is of other actions or features than these")
        if schema and schema.outcomes != fields["outcome_names"]:
            raise DataError("schema: it is of other outcomes than these")
        vars(self).update(fields)  # bypasses the frozen dataclass, only here

    @property
    def is_on_disk(self) -> bool:
        """Whether the rows are in files, which can be read a slice at a time."""
        return isinstance(self.contexts, DiskArray)

    def part(self, rows: slice) -> "LoggedData":
        """These rows, in memory; a group keeps its code, so that parts can be combined."""
        return self._of(lambda array: array[rows])

    def taken(self, order: IntArray) -> "LoggedData":
        """These rows in this order, if rows are in memory."""
        return self._of(lambda array: array.take(order, axis=0))

    def with_contexts(self, contexts: FloatArray) -> "LoggedData":
        """The same rows with other contexts, which are not checked."""
        return self._of(lambda array: contexts if array is self.contexts else array)

    def with_rewards(self, rewards: FloatArray) -> "LoggedData":
        """The same rows with other rewards, which are not checked."""
        return self._of(lambda array: rewards if array is self.rewards else array)

    def valued_by(self, outcome: str) -> "LoggedData":
        """The same rows with this further outcome, as it was logged, in place of the reward."""
        assert self.outcomes is not None  # noqa: S101  (it has a name)
        place = self.outcome_names.index(outcome)
        return self.with_rewards(np.ascontiguousarray(self.outcomes[:, place]))

    def _of(self, some: Callable[[NDArray[Any]], NDArray[Any]]) -> "LoggedData":
        arrays: dict[str, NDArray[Any]] = {
            name: some(array) for name in ROW_ARRAYS if (array := getattr(self, name)) is not None
        }
        # Files store codes in as few bytes as they need.
        for name in CODE_ARRAYS & arrays.keys():
            arrays[name] = arrays[name].astype(np.int64, copy=False)
        names = self.action_names, self.feature_names, self.schema, self.outcome_names
        return trusted(arrays, *names)

    @property
    def n_rows(self) -> int:
        """The number of logged decisions, n_c in the paper."""
        return len(self.actions)

    @property
    def n_features(self) -> int:
        """The number of features, p in the paper."""
        return int(self.contexts.shape[1])

    @property
    def n_actions(self) -> int:
        """The number of actions, taken here or not, d in the paper."""
        return len(self.action_names)

    @property
    def bytes_in_memory(self) -> int:
        """The bytes of all rows, 0 if they are in files."""
        arrays = (getattr(self, name) for name in ROW_ARRAYS)
        return sum(array.nbytes for array in arrays if isinstance(array, np.ndarray))

    def slices(self, *size: int) -> Iterable[slice]:
        """Slices of all rows, of at most `size` rows if they are on disk."""
        return slices(self.n_rows, *size) if self.is_on_disk else [slice(None)]

    @property
    def rows_per_action(self) -> IntArray:  # (n_actions,)
        """How often each action was taken."""
        counts = np.zeros(self.n_actions, np.int64)
        for rows in self.slices():
            counts += np.bincount(self.actions[rows], minlength=self.n_actions)
        return counts

    @property
    def n_groups(self) -> int:
        """The number of groups, 0 if rows have none."""
        groups = self.groups
        return 0 if groups is None else 1 + max(int(groups[rows].max()) for rows in self.slices())

    def weights_of(self, rows: slice | BoolArray = slice(None)) -> FloatArray:  # (n_rows,)
        """The weights of these rows; ones if all weigh the same."""
        return np.ones(self.n_rows)[rows] if self.weights is None else self.weights[rows]

    def groups_of(self, rows: slice) -> IntArray | None:  # (n_rows,)
        """The groups of these rows, None if there are none."""
        return None if self.groups is None else self.groups[rows]

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


def check_outcomes(data: LoggedData, outcomes: Sequence[str], name: str) -> None:
    """Raise an error if a further outcome is missing, or is the same in every row."""
    for outcome in outcomes:
        if outcome not in data.outcome_names:
            raise DataError(
                f"{name}: has no outcome '{outcome}', which a guardrail is about; there are "
                f"{quoted(data.outcome_names) or 'none'}. Give it in outcomes={{...}} of LoggedData"
            )
        place = data.outcome_names.index(outcome)
        parts = (data.outcomes[rows][:, place] for rows in data.slices())  # type: ignore[index]
        ranges = [(float(part.min()), float(part.max())) for part in parts]
        low, high = min(least for least, _ in ranges), max(most for _, most in ranges)
        if low == high:
            raise DataError(
                f"{name}: column '{outcome}', which a guardrail is about, is {low:g} in every "
                "row, so these rows cannot show what changes it; leave the guardrail out, or "
                "join this client with another"
            )


def with_engine(data: LoggedData, engine: PassEngine) -> LoggedData:
    """The same rows, which are on disk, with workers to go through them, which see the files."""
    contexts: Any = data.contexts  # in a file, though it stands for an array
    engine.check(contexts.path, contexts.n_bytes)
    arrays = {name: getattr(data, name) for name in ROW_ARRAYS}
    names = data.action_names, data.feature_names, data.schema, data.outcome_names
    return trusted(arrays, *names, engine=engine)


def folder_of(data: LoggedData) -> Path:
    """The folder with the files of data on disk; derived arrays are also kept there."""
    contexts: Any = data.contexts  # a file that takes the place of an array
    folder: Path = contexts.path.parent
    return folder


def fingerprint(data: LoggedData) -> str:
    """A hash of all rows, which changes whenever they do; it never leaves the client."""
    digest = hashlib.blake2b(digest_size=16)
    for name in ROW_ARRAYS:
        array = getattr(data, name)
        if isinstance(array, DiskArray):
            if not array.digest:
                raise ValueError(f"{array.path}: nobody took its digest")
            digest.update(array.digest.encode())  # that of its file
        elif array is not None:
            digest.update(np.ascontiguousarray(array).data)
        elif name != "outcomes":  # the first fingerprints had no outcomes
            digest.update(b"none")
    return digest.hexdigest()


def trusted(
    arrays: Mapping[str, NDArray[Any] | DiskArray | None],
    action_names: tuple[str, ...],
    feature_names: tuple[str, ...],
    schema: "Schema | None" = None,
    outcome_names: tuple[str, ...] = (),
    engine: PassEngine | None = None,
) -> LoggedData:
    """Data from named arrays that were checked before and are not checked again."""
    data = LoggedData.__new__(LoggedData)
    for name in ROW_ARRAYS:
        array = arrays.get(name)
        vars(data)[name] = frozen(array) if isinstance(array, np.ndarray) else array
    vars(data).update(
        action_names=action_names,
        feature_names=feature_names,
        schema=schema,
        outcome_names=schema.outcomes if schema else outcome_names,
        engine=engine,
    )
    return data
