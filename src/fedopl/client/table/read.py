"""Reads a table by an agreed schema: logged decisions, or contexts alone."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from fedopl.base.arrays import BoolArray, FloatArray, IntArray, frozen, shortlist
from fedopl.base.errors import DataError, FedoplWarning, OptionError, StorageError, refuse_to_leave
from fedopl.base.schema import Schema
from fedopl.client.disk.passes import PassEngine
from fedopl.client.table import columns as column_values
from fedopl.client.table.batched_io import RowBatches
from fedopl.client.table.checked_arrays import checked_groups, checked_weights, named_contexts
from fedopl.client.table.encoder import Encoder, TableForm, check_schema
from fedopl.client.table.formats import open_table, table_name
from fedopl.client.table.logged_data import LoggedData, trusted, with_engine
from fedopl.client.table.spool import Number, spool
from fedopl.client.table.text_files import FileFormat


def read_logged(
    source: object,
    schema: Schema,
    *,
    name: str | None = None,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, Mapping[str, str]] | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    decimal: str = ".",
    sheet: str | None = None,
    on_disk: str | Path | None = None,
    numbers: Number = "float64",
    engine: PassEngine | None = None,
) -> LoggedData:
    """Read logged decisions from a file, by its ending, from a frame, or from Arrow batches.

    Text files are .csv, .tsv or .txt, also with .gz. .parquet and .feather files are read
    directly. Workbooks (.xlsx, .xls, .ods) and files of Stata, SPSS and SAS need an extra.

    If lower rewards are better, their sign is changed, so that more is better from here on.

    Args:
        source: a path, a pandas, polars or pyarrow frame, or a pyarrow.RecordBatchReader, whose
            batches are read one after the other.
        schema: what the columns mean.
        name: the name of the table in error messages, instead of its path.
        columns: by the schema's name of a column, its name in this table, if they differ.
        labels: by column of the schema, the schema's label for each label of this table.
        encoding: of a text file.
        delimiter: separates cells of a text file; default: a comma, or a tab in .tsv.
        decimal: the sign in numbers of a text file, "." or ",".
        sheet: the sheet, of a workbook with several.
        on_disk: a folder for private files that hold the rows of a Parquet file or of batches
            instead of memory. They are used again as long as the rows and the way they are read
            stay the same.
        numbers: how contexts are stored there; float32 takes half the space.
        engine: a `fedopl.DaskEngine` or `fedopl.SparkEngine`, whose workers go through the rows on
            disk.

    """
    check_schema(schema)
    file = FileFormat(encoding=encoding, delimiter=delimiter, decimal=decimal, sheet=sheet)
    form = TableForm(name or table_name(source), columns or {}, labels or {}, file)
    if isinstance(source, pa.RecordBatchReader):
        source = RowBatches(source.schema.names, source, name=form.name)
    if on_disk is None:
        if engine is not None:
            raise OptionError("engine: workers read rows on disk; name a folder for them (on_disk)")
        return read_into_memory(source, schema, form)
    rows = read_onto_disk(source, schema, form, Path(on_disk), numbers)
    return rows if engine is None else with_engine(rows, engine)


def read_into_memory(source: object, schema: Schema, form: TableForm) -> LoggedData:
    """The rows of a path, a frame or batches."""
    encoder = form.encoder(schema, schema.columns)
    if isinstance(source, RowBatches):
        source = source.table()
    table = open_table(source, encoder.called, schema.label_columns, form.name, form.file)
    if not len(table[schema.action]):
        raise DataError(f"{form.name}: no rows; expected a header and at least one row")
    encoded = encoder.encode(table)
    kept, gaps = encoder.usable(encoded)
    encoder.refuse_gaps(gaps)
    encoder.warn_of_gaps(gaps)
    if schema.group:
        codes = encoded.labels[schema.group]
        encoded.labels[schema.group] = encoder.group_codes.final([codes[kept]])[codes]
    return encoder.logged(encoded, kept)


def read_onto_disk(
    source: object, schema: Schema, form: TableForm, folder: Path, numbers: Number
) -> LoggedData:
    """The rows of a Parquet file or of batches, in files of this folder."""
    encoder: Encoder = form.encoder(schema, schema.columns)
    if not isinstance(source, str | Path | RowBatches):
        came = type(source).__name__
        raise OptionError(
            "on_disk: expected the path of a Parquet file to read, or a "
            f"pyarrow.RecordBatchReader, came a {came}"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StorageError(f"{folder}: cannot be made: {error.strerror or error}") from None
    return spool(Path(source) if isinstance(source, str) else source, encoder, folder, numbers)


# --- contexts alone, which is what a site without outcomes has ------------------------------------


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Contexts:
    """Rows of a site without actions and outcomes, checked once and never changed.

    Args:
        contexts: what is known about each person or case, numbers, shape (n_rows, n_features).
        feature_names: one for each column, the same as at the clients that have outcomes.
        weights: how much each row counts, all above zero.
        groups: which rows belong together.
        schema: the meaning of the columns of the table that this was read from.

    """

    contexts: FloatArray  # (n_rows, n_features)
    feature_names: tuple[str, ...]
    weights: FloatArray | None  # (n_rows,)
    groups: IntArray | None  # (n_rows,)
    schema: Schema | None

    __reduce_ex__ = refuse_to_leave

    def __init__(
        self,
        contexts: ArrayLike,
        *,
        feature_names: Sequence[str] | None = None,
        weights: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        schema: Schema | None = None,
    ) -> None:
        features, names = named_contexts(contexts, feature_names)
        n_rows = len(features)
        if schema and names != schema.feature_names:
            raise DataError("schema: its features are not those of the contexts")
        fields = {
            "contexts": frozen(features),
            "feature_names": names,
            "weights": None if weights is None else frozen(checked_weights(weights, n_rows)),
            "groups": None if groups is None else frozen(checked_groups(groups, n_rows)),
            "schema": schema,
        }
        vars(self).update(fields)  # bypasses the frozen dataclass, only here

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(self.contexts)

    def __repr__(self) -> str:
        return f"Contexts({self.n_rows:,} rows, {len(self.feature_names):,} features)"

    def as_rows(self, action_names: tuple[str, ...]) -> LoggedData:
        """The same as rows of a study, with zeros for actions and rewards, which are not used.

        So folders, fingerprints and masks of rare values are those of any client. The door of a
        target answers only queries about contexts.
        """
        arrays = {
            "contexts": self.contexts,
            "actions": np.zeros(self.n_rows, np.int64),
            "rewards": np.zeros(self.n_rows),
            "weights": self.weights,
            "groups": self.groups,
        }
        return trusted(arrays, action_names, self.feature_names, self.schema)


def read_contexts(
    source: object,
    schema: Schema,
    *,
    name: str | None = None,
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, Mapping[str, str]] | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    decimal: str = ".",
    sheet: str | None = None,
) -> Contexts:
    """Read contexts from a file, by its ending, or from a frame; arguments as in `read_logged`.

    The table needs the schema's features, and the columns of weights and groups if the schema
    names them. All other columns are ignored, including actions and outcomes.
    """
    check_schema(schema)
    file = FileFormat(encoding=encoding, delimiter=delimiter, decimal=decimal, sheet=sheet)
    form = TableForm(name or table_name(source), columns or {}, labels or {}, file)
    return contexts_in(source, schema, form)


def contexts_in(source: object, schema: Schema, form: TableForm) -> Contexts:
    """The contexts in a path or a frame."""
    needed = [*schema.feature_columns, *filter(None, (schema.weight, schema.group))]
    encoder = form.encoder(schema, needed)
    called, name = encoder.called, form.name
    text_columns = tuple(column for column in schema.label_columns if column in called)
    encoded = encoder.encode_contexts(open_table(source, called, text_columns, name, form.file))
    kept = _usable(encoder, encoded.missing)
    found = column_values.contexts(encoded.numeric, encoded.categorical, schema, kept)
    groups = None
    if schema.group:
        codes = encoded.labels[schema.group]
        groups = encoder.group_codes.final([codes[kept]])[codes[kept]]
    weights = encoded.numbers[schema.weight][kept] if schema.weight else None
    try:
        return Contexts(
            found, feature_names=schema.feature_names, weights=weights, groups=groups, schema=schema
        )
    except DataError as error:
        raise DataError(f"{name}: {error}") from None


def _usable(encoder: Encoder, missing: Mapping[str, BoolArray]) -> BoolArray | slice:
    """The rows without relevant gaps; an error unless the schema drops rows with gaps."""
    schema, name = encoder.schema, encoder.name
    # If gaps are marked, a missing feature counts as a value.
    marked = schema.feature_columns if schema.missing == "indicator" else ()
    gone = {c: rows for c, rows in missing.items() if rows.any() and c not in marked}
    if not gone:
        return slice(None)
    anywhere: BoolArray = np.logical_or.reduce(list(gone.values()))
    counted = shortlist([f"'{column}' {rows.sum():,}" for column, rows in gone.items()])
    found = f"{anywhere.sum():,} of {len(anywhere):,} rows (by column: {counted})"
    if any(not schema.drops(column) for column in gone):
        raise DataError(
            f"{name}: missing values in {found}; complete them, or say missing='drop' or "
            "'indicator' in the schema ([rows] of the study file)"
        )
    if anywhere.all():
        raise DataError(f"{name}: every row has a missing value (by column: {counted})")
    warnings.warn(f"{name}: dropped {found} for missing values", FedoplWarning, stacklevel=3)
    return ~anywhere
