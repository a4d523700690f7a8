"""Encodes columns of a table, or of a batch of its rows, by a schema; says what is missing."""

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np

from fedopl.base.arrays import BoolArray, FloatArray, IntArray, shortlist
from fedopl.base.errors import DataError, FedoplWarning, OptionError
from fedopl.base.schema import Schema
from fedopl.client.table import columns
from fedopl.client.table.checked_arrays import check_propensities, checked_weights
from fedopl.client.table.columns import codes_of, moments, numbers_of
from fedopl.client.table.formats import Columns
from fedopl.client.table.logged_data import LoggedData, trusted
from fedopl.client.table.text_files import FileFormat
from fedopl.messages.combining import weighted_sum

# Names of columns of ids, unless they have at most the second number of different values: codes.
NAMED_ID = re.compile(r"(?:(?:^|[_\W])(?i:ids?|uuid|guid|mrn|ssn|identifier)|[a-z]I[dD])$")
MOST_CODES = 20
# Missing outcomes are called uneven if chance makes them so uneven in one of this many tables.
ONE_IN = 1000


@dataclass(frozen=True, kw_only=True)
class Attrition:
    """By action, how often it was taken and how often its outcome is missing."""

    taken: dict[str, int]
    lost: dict[str, int]

    @classmethod
    def of(cls, actions: IntArray, missing: BoolArray, names: Sequence[str]) -> Self:
        """Count the rows whose action is known."""
        known = actions >= 0
        taken = np.bincount(actions[known], minlength=len(names)).tolist()
        lost = np.bincount(actions[known & missing], minlength=len(names)).tolist()
        return cls(
            taken=dict(zip(names, taken, strict=True)), lost=dict(zip(names, lost, strict=True))
        )

    def __add__(self, more: "Attrition") -> "Attrition":
        return Attrition(taken=_added(self.taken, more.taken), lost=_added(self.lost, more.lost))

    @property
    def is_uneven(self) -> bool:
        """Whether some actions lost more of their outcomes than chance explains (χ² test)."""
        from scipy.special import chdtrc

        taken = np.array([n for n in self.taken.values() if n], float)
        lost = np.array([self.lost[action] for action, n in self.taken.items() if n], float)
        share = lost.sum() / max(taken.sum(), 1.0)
        if len(taken) < 2 or not 0 < share < 1:
            return False
        statistic = float(((lost - taken * share) ** 2 / (taken * share * (1 - share))).sum())
        return bool(chdtrc(len(taken) - 1, statistic) < 1 / ONE_IN)

    def in_words(self) -> str:
        """The counts as the end of a sentence; empty if no outcome is missing."""
        if not any(self.lost.values()):
            return ""
        counts = [
            f"'{action}' {lost:,} of {self.taken[action]:,} ({lost / self.taken[action]:.0%})"
            for action, lost in self.lost.items()
            if self.taken[action]
        ]
        uneven = (
            "; that is more uneven than chance, so the rows that remain may differ from "
            "those left out, and values may be wrong"
            if self.is_uneven
            else ""
        )
        return f". Outcomes are missing by action: {shortlist(counts)}{uneven}"


@dataclass(frozen=True, kw_only=True)
class Gaps:
    """How many rows cannot be used because a value is missing."""

    n_rows: int  # all rows
    n_missing: int
    n_refused: int  # rows with a missing value in a column whose rows are not dropped
    by_column: dict[str, int]  # of each column that must not have gaps
    attrition: Attrition

    def __add__(self, more: "Gaps") -> "Gaps":
        return Gaps(
            n_rows=self.n_rows + more.n_rows,
            n_missing=self.n_missing + more.n_missing,
            n_refused=self.n_refused + more.n_refused,
            by_column=_added(self.by_column, more.by_column),
            attrition=self.attrition + more.attrition,
        )


class RowsDroppedWarning(FedoplWarning):
    """Warns that rows were left out because a value is missing."""

    def __init__(self, message: str, gaps: Gaps) -> None:
        super().__init__(message)
        self.gaps = gaps


def _added(these: Mapping[str, int], those: Mapping[str, int]) -> dict[str, int]:
    return {name: count + those[name] for name, count in these.items()}


@dataclass(frozen=True, eq=False, kw_only=True)
class Encoded:
    """The schema's columns as numbers, with NaN or −1 where a value is missing."""

    numeric: dict[str, FloatArray]
    categorical: dict[str, IntArray]
    numbers: dict[str, FloatArray]  # reward, propensities, weight
    labels: dict[str, IntArray]  # action, group
    strata: IntArray | None  # (n_rows,)  of known propensities

    @property
    def missing(self) -> dict[str, BoolArray]:
        """By column, the rows in which its value is missing."""
        features = _missing(self.numeric, self.categorical)
        return _missing(self.numbers, self.labels) | features


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """Encodes one table, or a batch of its rows in the same way as the whole table."""

    schema: Schema
    name: str  # the table's name in errors
    called: Mapping[str, str]  # the name in the table of each of the schema's columns
    labels: Mapping[str, Mapping[str, str]]  # by column: the schema's label for each label here
    group_codes: columns.GroupCodes = field(default_factory=columns.GroupCodes)

    def encode(self, table: Columns) -> Encoded:
        """All columns as numbers; an error where a column holds anything else."""
        schema = self.schema
        actions = {schema.action: self._codes(table, schema.action, schema.actions)}
        found = self.encode_contexts(table)
        stratum, shares = schema.stratum, tuple(schema.known_shares)
        strata = self._codes(table, stratum, shares) if stratum else None
        needed = (*schema.outcome_columns, *schema.propensity_columns)
        return replace(
            found,
            numbers={column: self._numbers(table, column) for column in needed} | found.numbers,
            labels=actions | found.labels,
            strata=strata,
        )

    def encode_contexts(self, table: Columns) -> Encoded:
        """Features, weights and groups as numbers, for a table without actions and outcomes."""
        schema = self.schema
        return Encoded(
            numeric={column: self._feature(table, column) for column in schema.numeric},
            categorical={
                column: self._codes(table, column, levels)
                for column, levels in schema.categorical.items()
            },
            numbers={schema.weight: self._numbers(table, schema.weight)} if schema.weight else {},
            labels={schema.group: self.group_codes(table[schema.group])} if schema.group else {},
            strata=None,
        )

    def _numbers(self, table: Columns, column: str) -> FloatArray:
        if rule := self.schema.dates.get(column):
            return numbers_of(moments(table[column], self._column(column)), rule)
        values = columns.numbers(table[column], self._column(column))
        infinite = int(np.isinf(values).sum())
        if infinite:
            raise DataError(
                f"{self._column(column)}: infinite in {infinite:,} of {len(values):,} rows; "
                "correct them"
            )
        return values

    def _feature(self, table: Columns, column: str) -> FloatArray:
        values = self._numbers(table, column)
        if NAMED_ID.search(column) and column not in self.schema.dates:
            different = np.unique(values[~np.isnan(values)])
            if len(different) > MOST_CODES and not np.any(different % 1):
                raise DataError(
                    f"{self._column(column)}: is an id, by its name and its {len(different):,} "
                    "different whole numbers, and no feature; leave it out, or say that it is the "
                    "group if its rows belong together. A quantity needs another name in the study"
                )
        return values

    def _codes(self, table: Columns, column: str, levels: tuple[str, ...]) -> IntArray:
        if rule := self.schema.dates.get(column):
            return codes_of(moments(table[column], self._column(column)), rule)
        return columns.codes(
            table[column],
            levels,
            self._column(column),
            self.labels.get(column, {}),
            self.schema.others.get(column),
        )

    def _column(self, column: str) -> str:
        return f"{self.name}: column '{self.called[column]}'"

    def usable(self, encoded: Encoded) -> tuple[BoolArray | slice, Gaps]:
        """The rows without relevant gaps, and the number of rows with gaps."""
        schema = self.schema
        needed = _missing(encoded.numbers, encoded.labels)
        if schema.stratum and encoded.strata is not None:
            needed[schema.stratum] = encoded.strata < 0
        features = _missing(encoded.numeric, encoded.categorical)
        missing = needed if schema.missing == "indicator" else needed | features
        n_rows = len(encoded.labels[schema.action])
        anywhere = _any([mask for mask in missing.values() if mask.any()], n_rows)
        refused = [mask for column, mask in missing.items() if not schema.drops(column)]
        n_missing = int(anywhere.sum())
        gaps = Gaps(
            n_rows=n_rows,
            n_missing=n_missing,
            n_refused=int(_any(refused, n_rows).sum()),
            by_column={column: int(mask.sum()) for column, mask in missing.items()},
            attrition=Attrition.of(
                encoded.labels[schema.action],
                _any([needed[column] for column in schema.outcome_columns], n_rows),
                schema.actions,
            ),
        )
        return ~anywhere if n_missing else slice(None), gaps

    def refuse_gaps(self, gaps: Gaps) -> None:
        """Raise an error for missing values, unless the schema drops their rows and leaves some."""
        refused = {
            column: n for column, n in gaps.by_column.items() if not self.schema.drops(column)
        }
        if gaps.n_refused:
            raise DataError(
                f"{self.name}: missing values in {gaps.n_refused:,} of {gaps.n_rows:,} rows "
                f"{_counted(refused)}; {self._remedy(refused)}{gaps.attrition.in_words()}"
            )
        if gaps.n_missing == gaps.n_rows:
            raise DataError(
                f"{self.name}: every row has a missing value {_counted(gaps.by_column)}"
            )

    def _remedy(self, refused: Mapping[str, int]) -> str:
        schema = self.schema
        gone = {column for column, count in refused.items() if count}
        if gone <= set(schema.outcome_columns):
            return (
                "complete them, or say missing_reward='drop' in the schema (missing = \"drop\" in "
                "[outcome] of the study file) to leave these rows out"
            )
        of_features = gone <= set(schema.feature_columns)
        rule = "missing='drop' or 'indicator'" if of_features else "missing='drop'"
        return f"complete them, or say {rule} in the schema ([rows] of the study file)"

    def warn_of_gaps(self, gaps: Gaps) -> None:
        """Warn that rows were dropped, if any were."""
        if gaps.n_missing:
            text = (
                f"{self.name}: dropped {gaps.n_missing:,} of {gaps.n_rows:,} rows for missing "
                f"values {_counted(gaps.by_column)}{gaps.attrition.in_words()}"
            )
            warnings.warn(RowsDroppedWarning(text, gaps), stacklevel=3)

    def logged(self, encoded: Encoded, kept: BoolArray | slice) -> LoggedData:
        """The usable rows, after checks that need several columns."""
        schema = self.schema
        actions = encoded.labels[schema.action][kept]
        try:
            rewards = self._rewards(encoded, kept)
            propensities = self._propensities(encoded, kept, len(actions))
            if propensities is not None:
                check_propensities(propensities, actions, schema.actions)
            weights = encoded.numbers[schema.weight][kept] if schema.weight else None
            if weights is not None:
                checked_weights(weights, len(weights))
        except DataError as error:
            raise DataError(f"{self.name}: {error}") from None
        outcomes = [encoded.numbers[column][kept] for column in schema.outcomes]
        arrays = {
            "contexts": columns.contexts(encoded.numeric, encoded.categorical, schema, kept),
            "actions": actions,
            # From here on a larger reward is better, whatever the table's direction.
            "rewards": rewards if schema.direction == "higher" else -rewards,
            "propensities": propensities,
            "outcomes": np.ascontiguousarray(np.column_stack(outcomes)) if outcomes else None,
            "weights": weights,
            "groups": encoded.labels[schema.group][kept] if schema.group else None,
        }
        return trusted(arrays, schema.actions, schema.feature_names, schema)

    def _rewards(self, encoded: Encoded, kept: BoolArray | slice) -> FloatArray:  # (n_rows,)
        schema = self.schema
        parts = {column: encoded.numbers[column][kept] for column in schema.reward_columns}
        if not schema.reward_sum:
            return parts[schema.reward]
        with np.errstate(over="ignore", invalid="ignore"):
            added = weighted_sum(schema.reward_sum, parts)
        if not np.isfinite(added).all():
            raise DataError(f"outcome {schema.reward}: too large in some rows; correct them")
        return added

    def _propensities(
        self, encoded: Encoded, kept: BoolArray | slice, n_rows: int
    ) -> FloatArray | None:  # (n_rows,) or (n_rows, n_actions)
        schema = self.schema
        if schema.known_shares:
            by_stratum = np.array(list(schema.known_shares.values()))
            strata = np.zeros(n_rows, np.int64) if encoded.strata is None else encoded.strata[kept]
            return by_stratum.take(strata, axis=0)
        columns = [encoded.numbers[column][kept] for column in schema.propensity_columns]
        if not columns:
            return None
        return (
            np.ascontiguousarray(np.column_stack(columns))
            if schema.propensity_shape
            else columns[0]
        )


def _counted(by_column: Mapping[str, int]) -> str:
    missing = [f"'{column}' {count:,}" for column, count in by_column.items() if count]
    return f"(by column: {shortlist(missing)})"


def _any(masks: list[BoolArray], n_rows: int) -> BoolArray:  # (n_rows,)
    return np.asarray(np.logical_or.reduce([np.zeros(n_rows, np.bool_), *masks]))


def _missing(numbers: dict[str, FloatArray], labels: dict[str, IntArray]) -> dict[str, BoolArray]:
    masks = {column: np.isnan(values) for column, values in numbers.items()}
    return masks | {column: values < 0 for column, values in labels.items()}


@dataclass(frozen=True)
class TableForm:
    """The names of a table, its columns and its labels, and the format of its file."""

    name: str  # in errors
    columns: Mapping[str, str] = field(default_factory=dict)  # by the schema's name, if it differs
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    file: FileFormat = field(default_factory=FileFormat)

    def encoder(self, schema: Schema, needed: Iterable[str]) -> Encoder:
        """An encoder for these columns of the schema as the table has them."""
        called = {column: self.columns.get(column, column) for column in dict.fromkeys(needed)}
        return Encoder(schema=schema, name=self.name, called=called, labels=self.labels)


def check_schema(schema: object) -> None:
    """Refuse anything that is no schema."""
    if not isinstance(schema, Schema):
        raise OptionError(f"schema: expected a fedopl.Schema, came {type(schema).__name__}")
