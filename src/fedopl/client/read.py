"""Reading a table of logged decisions by an agreed schema."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedopl.arrays import BoolArray, FloatArray, IntArray, shortlist
from fedopl.client import encode
from fedopl.client.logged_data import LoggedData
from fedopl.client.tables import Columns, open_table, table_name
from fedopl.errors import DataError, FedoplWarning, OptionError
from fedopl.schema import Schema


@dataclass(frozen=True, eq=False, kw_only=True)
class _Encoded:
    """The schema's columns as numbers, with NaN or −1 where a value is missing."""

    numeric: dict[str, FloatArray]
    categorical: dict[str, IntArray]
    numbers: dict[str, FloatArray]  # reward, propensities, weight
    labels: dict[str, IntArray]  # action, group


def read_logged(
    source: object,
    schema: Schema,
    *,
    name: str | None = None,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, Mapping[str, str]] | None = None,
    encoding: str = "utf-8",
) -> LoggedData:
    """Read logged decisions from a CSV (.csv, .csv.gz) or Parquet file, or from a frame.

    Rewards of which a lower one is better are turned round, so that more is better from here on.

    Args:
        source: a path, or a pandas, polars or pyarrow frame.
        schema: what the columns mean.
        name: what errors should call the table, instead of its path.
        columns: what columns are called in this table, by the schema's name, where it differs.
        labels: by column of the schema, the schema's label for each label of this table.
        encoding: of a CSV file.

    """
    if not isinstance(schema, Schema):
        raise OptionError(f"schema: expected a fedopl.Schema, came {type(schema).__name__}")
    name = name or table_name(source)
    called = {column: (columns or {}).get(column, column) for column in schema.columns}
    table = open_table(source, called, schema.label_columns, name, encoding)
    if not len(table[schema.reward]):
        raise DataError(f"{name}: no rows; expected a header and at least one row")
    names = {column: f"{name}: column '{own}'" for column, own in called.items()}
    encoded = _encode(table, schema, labels or {}, names)
    kept = _rows_to_keep(encoded, schema, name)
    try:
        return _logged(encoded, kept, schema)
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _encode(
    table: Columns, schema: Schema, own: Mapping[str, Mapping[str, str]], names: dict[str, str]
) -> _Encoded:
    def numbers(column: str) -> FloatArray:
        values = encode.numbers(table[column], names[column])
        infinite = int(np.isinf(values).sum())
        if infinite:
            raise DataError(
                f"{names[column]}: infinite in {infinite:,} of {len(values):,} rows; correct them"
            )
        return values

    def codes(column: str, levels: tuple[str, ...]) -> IntArray:
        return encode.codes(table[column], levels, names[column], own.get(column, {}))

    labels = {schema.action: codes(schema.action, schema.actions)}
    if schema.group:
        labels[schema.group] = encode.groups(table[schema.group])
    weight = [schema.weight] if schema.weight else []
    return _Encoded(
        numeric={column: numbers(column) for column in schema.numeric},
        categorical={
            column: codes(column, levels) for column, levels in schema.categorical.items()
        },
        numbers={c: numbers(c) for c in (schema.reward, *schema.propensity_columns, *weight)},
        labels=labels,
    )


def _rows_to_keep(encoded: _Encoded, schema: Schema, name: str) -> BoolArray | slice:
    needed = _missing(encoded.numbers, encoded.labels)
    features = _missing(encoded.numeric, encoded.categorical)
    missing = needed if schema.missing == "indicator" else needed | features
    if not missing:
        return slice(None)
    anywhere: BoolArray = np.logical_or.reduce(list(missing.values()))
    counts = shortlist([f"'{column}' {mask.sum():,}" for column, mask in missing.items()])
    rows = f"{anywhere.sum():,} of {len(anywhere):,} rows"
    if schema.missing != "drop":
        remedy = "missing='drop'" if missing.keys() & needed else "missing='drop' or 'indicator'"
        raise DataError(
            f"{name}: missing values in {rows} (by column: {counts}); complete them, or say "
            f"{remedy} in the schema ([rows] of the study file)"
        )
    if anywhere.all():
        raise DataError(f"{name}: every row has a missing value (by column: {counts})")
    warnings.warn(
        f"{name}: dropped {rows} for missing values (by column: {counts})",
        FedoplWarning,
        stacklevel=3,
    )
    return ~anywhere


def _missing(numbers: dict[str, FloatArray], labels: dict[str, IntArray]) -> dict[str, BoolArray]:
    masks = {column: np.isnan(values) for column, values in numbers.items()}
    masks |= {column: values < 0 for column, values in labels.items()}
    return {column: mask for column, mask in masks.items() if mask.any()}


def _logged(encoded: _Encoded, kept: BoolArray | slice, schema: Schema) -> LoggedData:
    rewards = encoded.numbers[schema.reward][kept]
    chances = [encoded.numbers[column][kept] for column in schema.propensity_columns]
    every_action = isinstance(schema.propensity, dict)
    propensities = np.column_stack(chances) if every_action else chances[0] if chances else None
    return LoggedData(
        encode.contexts(encoded.numeric, encoded.categorical, schema, kept),
        np.array(schema.actions)[encoded.labels[schema.action][kept]],
        rewards if schema.direction == "higher" else -rewards,
        propensities,
        action_names=schema.actions,
        feature_names=schema.feature_names,
        weights=encoded.numbers[schema.weight][kept] if schema.weight else None,
        groups=encoded.labels[schema.group][kept] if schema.group else None,
        schema=schema,
    )
