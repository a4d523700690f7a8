"""Applies a policy to every row of a table in batches, so that tables may have any length."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa

from fedopl.base.arrays import BoolArray, FloatArray, IntArray, shortlist
from fedopl.base.errors import DataError, OptionError, PolicyError
from fedopl.base.files import replacing
from fedopl.base.labels import quoted
from fedopl.base.schema import Encoding
from fedopl.client.ranked_rows import RANK, RankedRows, Ranking
from fedopl.client.table import columns
from fedopl.client.table.batched_io import (
    BATCH_READERS,
    BATCH_WRITERS,
    Formulas,
    RecordBatch,
    open_batches,
    without_formulas,
)
from fedopl.client.table.columns import Instants, codes_of, moments, moments_among, numbers_of
from fedopl.client.table.formats import check_file, check_header, suffix_of
from fedopl.client.table.text_files import FileFormat
from fedopl.policies.policy import Policy

OnUndecided = Literal["error", "blank"]
# The number of characters of a cell that an error shows.
EXAMPLE_LENGTH = 30


@dataclass(frozen=True, kw_only=True)
class Decided:
    """The number of rows, and how often each action was decided on."""

    n_rows: int
    counts: dict[str, int]  # by action, in the policy's order
    n_undecided: int
    spending: float | None = None  # the mean cost of a decision, where there is a budget


@dataclass(frozen=True, kw_only=True)
class _Task:
    """A policy, and the names of its features' columns and labels in one table."""

    policy: Policy
    encoding: Encoding
    called: Mapping[str, str]  # the encoding's name of a column: its name in the table
    labels: Mapping[str, Mapping[str, str]]
    decimal: str  # the decimal sign in numbers of a text file


@dataclass(frozen=True, eq=False)
class _Doubt:
    """Rows of a batch that cannot be decided because of one column, and the reason."""

    column: str
    why: str
    rows: BoolArray  # (n_rows,)


def decide_table(
    policy: Policy,
    source: str | Path,
    out: str | Path,
    *,
    column: str = "action",
    columns: Mapping[str, str] | None = None,
    labels: Mapping[str, Mapping[str, str]] | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    decimal: str = ".",
    undecided: OnUndecided = "error",
    formulas: Formulas = "escape",
    client: str | None = None,
    ranking: Ranking | None = None,
    progress: Callable[[int], None] | None = None,
) -> Decided:
    """Copy a table, with a last column that names the action to take in each row.

    All other columns stay as they are. The cells of a CSV file are the same text, but for
    formulas; blank lines and quotation marks that no cell needs are left out. Either the whole
    table is written or nothing is, and what was there before stays.

    Args:
        policy: one learned on tables, which knows how columns become features.
        source: a text (.csv, .csv.gz, .tsv) or Parquet file.
        out: a .csv, .csv.gz or .parquet file to write. CSV files are written as UTF-8, and what was
            read from one is text in Parquet.
        column: what the new column is called.
        columns: what columns are called in this table, by the policy's name, where it differs.
        labels: by the policy's name of a column, the policy's label for each label of this table.
        encoding: of a text file that is read.
        delimiter: between its cells; a comma, or in .tsv a tab, if not said.
        decimal: the sign in its numbers, "." or ",".
        undecided: what to do about rows with a value that is missing, not a finite number, or a
            label the policy does not know: refuse the table, or leave the new column empty there.
        formulas: what to do, in a CSV file that is written, about text that begins with = + - @, a
            tab or a line break and is no number: a spreadsheet would run it as a formula. "escape"
            puts an apostrophe before it, "keep" leaves it as it is.
        client: where decisions are made, if clients have actions of their own.
        ranking: adds each action's score, the margin of what is decided and the rank by it, and
            fills places or spends a budget. The table is read twice; memory holds all scores.
        progress: called after each batch with how many rows are done.

    """
    source, out = Path(source), Path(out)
    text = FileFormat(encoding=encoding, delimiter=delimiter, decimal=decimal)
    here = policy.at(policy.permissions.checked_client(client)) if policy.permissions else policy
    task = _task(here, columns or {}, labels or {}, decimal)
    if undecided not in get_args(OnUndecided):
        raise OptionError(f"undecided: expected 'error' or 'blank', came {undecided!r}")
    if formulas not in get_args(Formulas):
        raise OptionError(f"formulas: expected 'escape' or 'keep', came {formulas!r}")
    check_file(source, str(source), BATCH_READERS)
    _check_out(out, source)
    tally = np.zeros(len(policy.action_names) + 1, np.int64)
    names = pa.array([*policy.action_names, None], pa.string())
    ranked = RankedRows(here, ranking) if ranking else None
    if ranked:
        with open_batches(source, text) as (schema, batches):
            _check_columns(schema, task, source, [column, *ranked.names])
            for start, batch in _numbered(batches):
                codes, kept, contexts = _decided(batch, task, start, source, undecided)
                ranked.see(contexts, codes, kept)
        ranked.finish()
    with open_batches(source, text) as (schema, batches):
        _check_columns(schema, task, source, [column])
        schema = schema.append(pa.field(column, pa.string()))
        for name in ranked.names if ranked else ():
            schema = schema.append(pa.field(name, pa.int64() if name == RANK else pa.float64()))
        suffix = suffix_of(out)
        as_it_is = formulas == "keep" or suffix == ".parquet"
        writer = BATCH_WRITERS[suffix] if as_it_is else partial(without_formulas, suffix=suffix)
        with replacing(out) as file, writer(file, schema) as write:
            for start, batch in _numbered(batches):
                rows = slice(start, start + batch.num_rows)
                # Refused at the first batch in doubt: `replacing` then leaves no file.
                codes = (
                    ranked.codes[rows]
                    if ranked
                    else _decided(batch, task, start, source, undecided)[0]
                )
                added = [names.take(pa.array(codes))]
                for own in ranked.columns(rows) if ranked else ():
                    blank = own == 0 if own.dtype.kind == "i" else np.isnan(own)
                    added.append(pa.array(own, mask=blank))
                write(pa.RecordBatch.from_arrays([*batch.columns, *added], schema=schema))
                tally += np.bincount(codes, minlength=len(tally))
                if progress:
                    progress(int(tally.sum()))
    *counts, n_undecided = tally.tolist()
    by_action = dict(zip(policy.action_names, counts, strict=True))
    spending = float(np.nanmean(ranked.cost)) if ranked and len(ranked.cost) else None
    return Decided(
        n_rows=int(tally.sum()), counts=by_action, n_undecided=n_undecided, spending=spending
    )


# --- before anything is written --------------------------------------------------------------


def _task(
    policy: Policy,
    columns: Mapping[str, str],
    labels: Mapping[str, Mapping[str, str]],
    decimal: str,
) -> _Task:
    if policy.encoding is None:
        raise PolicyError(
            "the policy was learned on arrays, not on tables with a schema, so the columns "
            "of its features are not known; use policy.decide on arrays"
        )
    encoding = policy.encoding
    called = {name: columns.get(name, name) for name in encoding.feature_columns}
    return _Task(policy=policy, encoding=encoding, called=called, labels=labels, decimal=decimal)


def _check_out(out: Path, source: Path) -> None:
    if suffix_of(out) not in BATCH_WRITERS:
        endings = ", ".join(BATCH_WRITERS)
        raise OptionError(f"{out}: expected a name that ends in {endings}, came '{out.name}'")
    if out.is_dir():
        raise OptionError(f"{out}: is a folder; name a file to write")
    if out.exists() and out.samefile(source):
        raise OptionError(f"{out}: is the table that is read; name another file to write")


def _check_columns(schema: Any, task: _Task, source: Path, new: list[str]) -> None:
    name, own = str(source), tuple(dict.fromkeys(task.called.values()))
    check_header(schema.names, own, name)
    if new[0] in schema.names:
        raise OptionError(
            f"{name}: there is a column '{new[0]}' already; choose another name for the new one, "
            "with column= (--column)"
        )
    there = [column for column in new if column in schema.names]
    if there or len(set(new)) < len(new):
        raise OptionError(
            f"{name}: scores, margin and rank are written to columns {quoted(new[1:])}; there is "
            f"one named {quoted(there or new[:1])} already: rename it"
        )
    if suffix_of(source) == ".parquet":
        _check_kinds(schema, task, name)


def _check_kinds(schema: Any, task: _Task, name: str) -> None:
    for column, own in task.called.items():
        kind, what = schema.field(own).type, f"{name}: column '{own}'"
        if column in task.encoding.dates:
            moments(pa.chunked_array([], kind), what)
        elif column in task.encoding.numeric:
            columns.check_numbers(kind, what)
        elif pa.types.is_nested(kind):
            raise DataError(f"{what}: expected labels, came {kind}; make them text first")


# --- deciding --------------------------------------------------------------------------------


def _numbered(batches: Iterable[RecordBatch]) -> Iterator[tuple[int, RecordBatch]]:
    """Each batch with the number of its first row."""
    start = 0
    for batch in batches:
        yield start, batch
        start += batch.num_rows


def _decided(
    batch: RecordBatch, task: _Task, start: int, source: Path, undecided: OnUndecided
) -> tuple[IntArray, BoolArray | slice, FloatArray]:
    """Each row's action code (one past the last if undecided), the decided rows, their contexts."""
    numeric, categorical, doubts = {}, {}, list[_Doubt]()
    for column in task.encoding.numeric:
        numeric[column], found = _numbers(batch, column, task)
        doubts += found
    for column in task.encoding.categorical:
        categorical[column], found = _codes(batch, column, task)
        doubts += found
    doubts = [doubt for doubt in doubts if doubt.rows.any()]
    if doubts and undecided == "error":
        raise _refusal(doubts, start, source)
    kept = ~_anywhere(doubts) if doubts else slice(None)
    contexts = columns.contexts(numeric, categorical, task.encoding, kept)
    codes = np.full(batch.num_rows, len(task.policy.action_names), np.int64)
    codes[kept] = task.policy.decide(contexts)
    return codes, kept, contexts


def _numbers(batch: RecordBatch, column: str, task: _Task) -> tuple[FloatArray, list[_Doubt]]:
    own = task.called[column]
    cells = pa.chunked_array([batch[own]])
    if rule := task.encoding.dates.get(column):
        found, doubts = _moments(cells, own, task)
        return numbers_of(found, rule), doubts
    if not pa.types.is_string(cells.type):
        values, others = columns.numbers(cells, own), np.zeros(len(cells), np.bool_)
    else:
        values, others = columns.numbers_in_text(cells, task.decimal)
    example = _example(cells.filter(pa.array(others))[0].as_py()) if others.any() else ""
    return values, [
        _Doubt(own, f"not a number, such as {example}", others),
        _Doubt(own, "infinite", np.isinf(values)),
        *_gaps(own, np.isnan(values) & ~others, task),
    ]


def _codes(batch: RecordBatch, column: str, task: _Task) -> tuple[IntArray, list[_Doubt]]:
    own, levels = task.called[column], task.encoding.categorical[column]
    cells = pa.chunked_array([batch[own]])
    if rule := task.encoding.dates.get(column):
        found, doubts = _moments(cells, own, task)
        return codes_of(found, rule), doubts
    codes, unknown = columns.look_up(cells, levels, task.labels.get(column, {}))
    if other := task.encoding.others.get(column):
        codes = columns.pooled(codes, levels, other)
    example = _example(next(iter(unknown), ""))
    why = f"not one of the policy's {len(levels)} labels, such as {example}"
    return codes, [
        _Doubt(own, why, codes == columns.UNKNOWN_LABEL),
        *_gaps(own, codes == columns.MISSING_LABEL, task),
    ]


def _moments(cells: Any, own: str, task: _Task) -> tuple[Instants, list[_Doubt]]:
    found, others = moments_among(cells, own)
    missing = np.isnat(found) & ~others
    return found, [_Doubt(own, "not a date", others), *_gaps(own, missing, task)]


def _gaps(column: str, rows: BoolArray, task: _Task) -> list[_Doubt]:
    return [] if task.encoding.missing == "indicator" else [_Doubt(column, "missing", rows)]


def _example(cell: str) -> str:
    """The beginning of a cell: with an unclosed quotation mark, one cell spans many rows."""
    shown = "".join(cell.splitlines()[:1])[:EXAMPLE_LENGTH]
    return f"'{shown}'" if shown == cell else f"'{shown}…'"


def _anywhere(doubts: list[_Doubt]) -> BoolArray:
    return np.asarray(np.logical_or.reduce([doubt.rows for doubt in doubts]))


def _refusal(doubts: list[_Doubt], n_before: int, source: Path) -> DataError:
    anywhere = _anywhere(doubts)
    counts = [f"'{doubt.column}' {doubt.rows.sum():,} {doubt.why}" for doubt in doubts]
    return DataError(
        f"{source}: {anywhere.sum():,} of the first {n_before + len(anywhere):,} rows cannot be "
        f"decided (by column: {shortlist(counts)}); complete them, or say undecided='blank' "
        "(--undecided blank) to leave them empty"
    )
