"""Reads a table of logged decisions by an agreed schema."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from fedopl.base.errors import DataError, OptionError, StorageError
from fedopl.base.schema import Schema
from fedopl.client.disk.passes import PassEngine
from fedopl.client.table.encoder import Encoder
from fedopl.client.table.formats import FileFormat, open_table
from fedopl.client.table.logged_data import LoggedData, with_engine
from fedopl.client.table.row_batches import RowBatches
from fedopl.client.table.spool import spool
from fedopl.client.table.spool_writer import Number
from fedopl.client.table.table_form import TableForm, check_schema
from fedopl.client.table.text_files import TextFormat


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
    text = TextFormat(encoding=encoding, delimiter=delimiter, decimal=decimal)
    file = FileFormat(text=text, sheet=sheet)
    form = TableForm.of(source, name=name, columns=columns, labels=labels, file=file)
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
