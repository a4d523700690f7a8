"""An outcome that is a stated weighted sum of columns is the outcome that a column of it is."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

import fedopl
from fedopl.client.client_file import read_client
from fedopl.client.table.logged_data import ROW_ARRAYS
from tiny_study import STUDY, write_tiny

N_ROWS = 240
PARTS = {"home": 1.0, "pain": -0.2, "falls": -3}
CALLED = "(home − 0.2 × pain − 3 × falls)"
OTHERS = {"action": "arm", "actions": ["usual", "new"], "numeric": ["age"], "group": "person"}


def table():
    """Rows with three outcomes, each with gaps of its own, and a column with their sum."""
    rng = np.random.default_rng(5)
    outcomes = {name: rng.normal(size=N_ROWS).round(3) for name in PARTS}
    for place, values in enumerate(outcomes.values()):
        values[10 + 7 * place : 15 + 7 * place] = np.nan
    added = outcomes["home"] - 0.2 * outcomes["pain"] - 3 * outcomes["falls"]
    columns = outcomes | {
        "added": added,
        "age": rng.normal(50, 9, N_ROWS).round(3),
        "arm": rng.choice(["usual", "new"], N_ROWS),
        "person": rng.choice([f"p{i}" for i in range(60)], N_ROWS),
    }
    return pa.table(columns)


def from_frame(_folder, schema):
    return fedopl.read_logged(table(), schema)


def from_text(folder, schema):
    csv.write_csv(table(), folder / "rows.csv")
    return fedopl.read_logged(folder / "rows.csv", schema)


def from_disk(folder, schema):
    if not (folder / "rows.parquet").exists():
        parquet.write_table(table(), folder / "rows.parquet")
    return fedopl.read_logged(folder / "rows.parquet", schema, on_disk=folder / "spool")


def from_query(folder, schema):
    with duckdb.connect(str(folder / "rows.duckdb")) as connection:
        outcomes = table()  # noqa: F841  the query names it
        select = "select age as years, * exclude age from outcomes"
        connection.execute(f"create or replace table logs as {select}")
    query = 'database = "rows.duckdb"\nquery = "select * from logs"'
    (folder / "client.toml").write_text(f'[data]\n{query}\n[columns]\nage = "years"\n')
    return read_client(folder).read(schema)


@pytest.mark.filterwarnings("ignore::fedopl.FedoplWarning")
@pytest.mark.parametrize("direction", ["higher", "lower"])
@pytest.mark.parametrize("read", [from_frame, from_text, from_disk, from_query])
def test_a_sum_is_what_a_column_with_the_sum_is_however_rows_are_read(tmp_path, read, direction):
    rules = {**OTHERS, "direction": direction, "missing_reward": "drop"}
    summed = read(tmp_path, fedopl.Schema(reward_sum=PARTS, **rules))
    added = read(tmp_path, fedopl.Schema(reward="added", **rules))
    for name in ROW_ARRAYS:
        if getattr(added, name) is not None:
            ours, theirs = getattr(summed, name)[:], getattr(added, name)[:]
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    assert summed.n_rows == N_ROWS - 15
    assert (summed.schema.reward, summed.schema.direction) == (CALLED, direction)


def test_a_gap_in_any_of_its_columns_is_a_missing_outcome():
    with pytest.raises(fedopl.DataError) as caught:
        from_frame(None, fedopl.Schema(reward_sum=PARTS, direction="higher", **OTHERS))
    said = "missing values in 15 of 240 rows (by column: 'home' 5, 'pain' 5, 'falls' 5); "
    assert f"{said}complete them, or say missing_reward='drop'" in str(caught.value)
    assert "Outcomes are missing by action: 'usual'" in str(caught.value)


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ("", "column: name the column with the outcome, or say which columns it is the"),
        ("sum = { gain = 1 }", "a sum has two columns or more; of one column, name the column"),
        ("sum = { gain = 1, pain = 0 }", "'pain' is multiplied by 0, so it has no part in the sum"),
        ("sum = { gain = 1, pain = nan }", "sum.pain"),
        ('sum = { gain = 1, pain = "much" }', "sum.pain"),
        ('column = "gain"\nsum = { gain = 1, pain = 1 }', "one column or a sum of several"),
        ("sum = { gain = 1, age = 1 }", "age is the action or an outcome, which is not known"),
        ("sum = { gain = 1, arm = 1 }", "named more than once: 'arm'"),
    ],
)
def test_what_is_no_sum_is_refused_where_the_file_says_it(tmp_path, instead, said):
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace('column = "gain"', instead))
    with pytest.raises(fedopl.FedoplError) as caught:
        fedopl.read_study(path)
    assert said in str(caught.value)
    assert "study.toml" in str(caught.value)


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_a_run_names_the_sum_wherever_the_outcome_is_named(tmp_path, direction):
    tiny = write_tiny(tmp_path)
    tiny.edit('column = "gain"', "sum = { gain = 1, age = -0.1 }")
    tiny.edit('age = "number"\n', "")
    tiny.edit('"higher"', f'"{direction}"')
    done = tiny.run()
    assert done.code == 0, done.text
    assert "(gain − 0.1 × age)" in done.out
    report = (tiny.out / "report.html").read_text()
    assert f"(gain − 0.1 × age) per decision ({direction} is better)" in report


def test_a_column_of_a_sum_that_is_not_there_is_named_before_anything_is_asked(tmp_path):
    tiny = write_tiny(tmp_path)
    tiny.edit('column = "gain"', "sum = { gain = 1, pain = -0.2 }")
    done = tiny.run()
    assert done.code != 0
    assert "'pain'" in done.err
    assert not list(tiny.clients.glob("*/ledger.jsonl"))
