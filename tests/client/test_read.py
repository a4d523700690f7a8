import gzip
import warnings

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from pyarrow import parquet

import fedopl

TABLE = {
    "age": [30.0, 41.5, 52.0, 63.0],
    "sex": ["f", "m", "m", "f"],
    "arm": ["drug", "placebo", "drug", "placebo"],
    "cost": [10, 20, 30, 40],
    "p": [0.5, 0.5, 0.25, 0.75],
    "person": ["p1", "p2", "p2", "p3"],
    "unused": ["x", "y", "z", "w"],
}
SCHEMA = {
    "action": "arm",
    "actions": ["placebo", "drug", "both"],
    "reward": "cost",
    "direction": "lower",
    "numeric": ["age"],
    "categorical": {"sex": ["f", "m"]},
}


def schema(**changes):
    return fedopl.Schema(**{**SCHEMA, **changes})


def csv_text(table):
    columns = list(table)
    rows = zip(*table.values(), strict=True)
    cells = [columns, *(["" if cell is None else str(cell) for cell in row] for row in rows)]
    return "\n".join(",".join(row) for row in cells) + "\n"


def as_csv(table, folder):
    path = folder / "north.csv"
    path.write_text(csv_text(table))
    return path


def as_gzip(table, folder):
    path = folder / "north.csv.gz"
    path.write_bytes(gzip.compress(csv_text(table).encode()))
    return path


def as_parquet(table, folder):
    path = folder / "north.parquet"
    parquet.write_table(pyarrow.table(table), path)
    return path


SOURCES = {
    "csv": as_csv,
    "csv path as text": lambda table, folder: str(as_csv(table, folder)),
    "gzip": as_gzip,
    "parquet": as_parquet,
    "pandas": lambda table, _: pandas.DataFrame(table),
    "pandas categorical": lambda table, _: pandas.DataFrame(table).astype({"sex": "category"}),
    "polars": lambda table, _: polars.DataFrame(table),
    "polars lazy": lambda table, _: polars.LazyFrame(table),
    "pyarrow": lambda table, _: pyarrow.table(table),
}


@pytest.fixture(params=list(SOURCES))
def stored(request, tmp_path):
    """A function that stores a table in one of the ways that can be read."""
    return lambda table: SOURCES[request.param](table, tmp_path)


def test_every_kind_of_table_reads_alike(stored):
    data = fedopl.read_logged(stored(TABLE), schema(propensity="p", group="person", weight="age"))
    assert data.feature_names == ("age", "sex=m")
    np.testing.assert_array_equal(data.contexts, [[30, 0], [41.5, 1], [52, 1], [63, 0]])
    assert data.action_names == ("placebo", "drug", "both")
    assert data.actions.tolist() == [1, 0, 1, 0]
    np.testing.assert_array_equal(data.rewards, [-10, -20, -30, -40])
    np.testing.assert_array_equal(data.propensities, TABLE["p"])
    assert data.groups.tolist() == [0, 1, 1, 2]
    np.testing.assert_array_equal(data.weights, TABLE["age"])


def test_higher_rewards_stay_as_they_are(stored):
    data = fedopl.read_logged(stored(TABLE), schema(direction="higher"))
    np.testing.assert_array_equal(data.rewards, TABLE["cost"])


def test_a_propensity_for_every_action(stored):
    table = {**TABLE, "p0": [0.5] * 4, "p1": [0.3] * 4, "p2": [0.2] * 4}
    columns = {"both": "p2", "drug": "p1", "placebo": "p0"}
    data = fedopl.read_logged(stored(table), schema(propensity=columns))
    np.testing.assert_array_equal(data.propensities, [[0.5, 0.3, 0.2]] * 4)


@pytest.mark.parametrize("plan", [[0, 25, 25, 95], ["0", "25", "25", "95"]])
def test_numbers_can_be_labels(stored, plan):
    data = fedopl.read_logged(
        stored({**TABLE, "plan": plan}), schema(action="plan", actions=[25, 95, 0])
    )
    assert data.action_names == ("25", "95", "0")
    assert data.actions.tolist() == [2, 0, 0, 1]


def test_a_gap_turns_whole_numbers_into_floats_and_changes_no_label():
    frame = pandas.DataFrame({**TABLE, "plan": [0, 25, None, 95]})
    with pytest.warns(fedopl.FedoplWarning, match="dropped 1 of 4"):
        data = fedopl.read_logged(frame, schema(action="plan", actions=[0, 25, 95], missing="drop"))
    assert data.actions.tolist() == [0, 1, 2]


def test_leading_zeros_and_labels_called_na_survive_csv(tmp_path):
    table = {**TABLE, "arm": ["01", "1", "NA", "01"], "sex": ["None", "m", "None", "m"]}
    data = fedopl.read_logged(
        as_csv(table, tmp_path),
        schema(actions=["1", "01", "NA"], categorical={"sex": ["None", "m"]}),
    )
    assert data.actions.tolist() == [1, 0, 2, 1]


def test_flags_are_numbers(stored):
    table = {**TABLE, "old": [True, False, True, True]}
    data = fedopl.read_logged(stored(table), schema(numeric=["old"]))
    np.testing.assert_array_equal(data.contexts[:, 0], [1, 0, 1, 1])


# --- missing values --------------------------------------------------------------------------

GAPS = {**TABLE, "age": [30.0, None, 52.0, 63.0], "sex": ["f", "m", None, "f"]}


def test_missing_features_are_refused_by_default(stored):
    with pytest.raises(
        fedopl.DataError,
        match=r"missing values in 2 of 4 rows \(by column: 'age' 1, 'sex' 1\).*'drop' or 'indic",
    ):
        fedopl.read_logged(stored(GAPS), schema())


def test_missing_rows_are_dropped_loudly_when_asked(stored):
    with pytest.warns(fedopl.FedoplWarning, match="dropped 2 of 4 rows"):
        data = fedopl.read_logged(stored(GAPS), schema(missing="drop"))
    np.testing.assert_array_equal(data.contexts, [[30, 0], [63, 0]])


def test_missing_features_get_columns_of_their_own_when_asked(stored):
    data = fedopl.read_logged(stored(GAPS), schema(missing="indicator"))
    assert data.feature_names == ("age", "age is missing", "sex=m", "sex is missing")
    np.testing.assert_array_equal(
        data.contexts, [[30, 0, 0, 0], [0, 1, 1, 0], [52, 0, 0, 1], [63, 0, 0, 0]]
    )


def test_every_client_encodes_alike_whether_or_not_it_has_gaps(tmp_path):
    rule = schema(missing="indicator")
    with_gaps = fedopl.read_logged(as_csv(GAPS, tmp_path), rule)
    without = fedopl.read_logged(pandas.DataFrame(TABLE), rule)
    assert with_gaps.feature_names == without.feature_names


@pytest.mark.parametrize("column", ["arm", "cost", "p", "person"])
@pytest.mark.parametrize("rule", ["error", "indicator"])
def test_what_is_needed_cannot_be_missing(stored, column, rule):
    table = {**TABLE, column: [*TABLE[column][:3], None]}
    with pytest.raises(
        fedopl.DataError,
        match=f"1 of 4 rows \\(by column: '{column}' 1\\).*missing(_reward)?='drop' in",
    ):
        fedopl.read_logged(stored(table), schema(missing=rule, propensity="p", group="person"))


def test_nothing_left_after_dropping_is_an_error(stored):
    table = {**TABLE, "age": [None] * 4}
    with pytest.raises(fedopl.DataError, match="every row has a missing value"):
        fedopl.read_logged(stored(table), schema(missing="drop"))


def test_nothing_is_said_when_nothing_is_dropped(stored):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fedopl.read_logged(stored(TABLE), schema(missing="drop"))


# --- bad tables ------------------------------------------------------------------------------

BAD_TABLES = {
    "a column is missing": (
        {name: column for name, column in TABLE.items() if name != "age"},
        r"1 of the schema's 4 columns missing: 'age'; the table has 'sex'",
    ),
    "a column is renamed": (
        {("Age" if name == "age" else name): column for name, column in TABLE.items()},
        "missing: 'age'; is it 'Age' for 'age'",
    ),
    "an unknown action": (
        {**TABLE, "arm": ["drug", "placebo", "surgery", "surgery"]},
        r"column 'arm': 2 of 4 rows .* 3 in the schema .*; unknown: 'surgery'",
    ),
    "an unseen level": (
        {**TABLE, "sex": ["f", "m", "x", "f"]},
        r"column 'sex': 1 of 4 rows .*\('f', 'm'\); unknown: 'x'",
    ),
    "text among numbers": (
        {**TABLE, "age": ["30", "old", "52", "63"]},
        "column 'age': expected numbers, came text; 1 of 4 rows are not numbers, such as 'old'",
    ),
    "a reward that is text": (
        {**TABLE, "cost": ["low", "high", "low", "low"]},
        "column 'cost': expected numbers",
    ),
    "an infinite feature": (
        {**TABLE, "age": [30.0, np.inf, 52.0, 63.0]},
        "'age': infinite in 1 of 4 rows",
    ),
    "a propensity above one": ({**TABLE, "p": [0.5, 0.5, 2.5, 0.5]}, "outside 0 to 1"),
}


@pytest.mark.parametrize(("table", "message"), BAD_TABLES.values(), ids=BAD_TABLES)
def test_a_bad_table_is_refused_in_words_that_name_it(stored, table, message):
    source = stored(table)
    rule = schema(propensity="p") if "propensity" in message or "outside" in message else schema()
    with pytest.raises(fedopl.DataError, match=message) as caught:
        fedopl.read_logged(source, rule)
    name = "north" if isinstance(source, str) or hasattr(source, "suffix") else "Frame|Table"
    assert any(part in str(caught.value) for part in name.split("|"))


def test_a_table_without_rows_is_refused(stored):
    empty = {name: column[:0] for name, column in TABLE.items()}
    with pytest.raises(fedopl.DataError, match=r"no rows|every row"):
        fedopl.read_logged(stored(empty), schema())


def test_a_date_is_not_a_number():
    frame = pandas.DataFrame(TABLE).assign(age=pandas.to_datetime(["2024-01-01"] * 4))
    with pytest.raises(fedopl.DataError, match="column 'age': expected numbers, came dates"):
        fedopl.read_logged(frame, schema())


def test_a_column_of_mixed_types_is_refused():
    frame = pandas.DataFrame(TABLE).assign(age=[1, "two", 3.0, None])
    with pytest.raises(fedopl.DataError, match="column 'age' mixes values of different types"):
        fedopl.read_logged(frame, schema())


def test_a_frame_can_be_given_a_name():
    with pytest.raises(fedopl.DataError, match=r"^north: "):
        fedopl.read_logged(pandas.DataFrame({"x": [1]}), schema(), name="north")


def test_only_needed_columns_are_looked_at(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("age,sex,arm,cost,notes\n30,f,drug,1,5\n31,m,placebo,2,free text\n")
    assert fedopl.read_logged(path, schema()).n_rows == 2


# --- bad files -------------------------------------------------------------------------------


def test_a_column_twice_in_a_file_is_refused(tmp_path):
    path = tmp_path / "twice.csv"
    path.write_text("age,age,sex,arm,cost\n30,31,f,drug,1\n")
    with pytest.raises(fedopl.DataError, match="more than one column is called 'age'"):
        fedopl.read_logged(path, schema())


BAD_FILES = {
    "nothing.csv": (None, "the file is not there"),
    "empty.csv": (b"", "the file is empty"),
    "table.mat": (b"x", r"expected a file that ends in \.csv, \.csv\.gz, \.tsv, .*\.parquet, "),
    "latin.csv": ("age,sex,arm,cost\n30,f,caf\xe9,1\n".encode("latin-1"), "UTF-8|utf-8|UTF8"),
    "ragged.csv": (b"age,sex,arm,cost\n30,f,drug,1\n31,m\n", "Expected 4 columns, got 2"),
    "fake.parquet": (b"age,sex,arm,cost\n30,f,drug,1\n", "cannot be read as .parquet"),
    "fake.csv.gz": (b"age,sex,arm,cost\n30,f,drug,1\n", "is not compressed; rename it to fake.csv"),
    "cut.csv.gz": (gzip.compress(csv_text(TABLE).encode())[:-20], "cannot be read as .csv.gz"),
    "header.csv": (b"age,sex,arm,cost\n", "no rows"),
}


@pytest.mark.parametrize(("file", "case"), BAD_FILES.items(), ids=BAD_FILES)
def test_a_bad_file_is_refused_in_words_that_name_it(tmp_path, file, case):
    content, message = case
    if content is not None:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(fedopl.DataError, match=message) as caught:
        fedopl.read_logged(tmp_path / file, schema())
    assert file in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_is_not_a_table(tmp_path):
    (tmp_path / "data.csv").mkdir()
    with pytest.raises(fedopl.DataError, match="the file is a folder"):
        fedopl.read_logged(tmp_path / "data.csv", schema())


@pytest.mark.parametrize("source", [3, None, [1, 2], np.eye(3)])
def test_something_else_is_no_table(source):
    with pytest.raises(fedopl.OptionError, match="expected a path or a pandas, polars or pyarrow"):
        fedopl.read_logged(source, schema())


def test_a_schema_is_a_schema():
    with pytest.raises(fedopl.OptionError, match=r"expected a fedopl\.Schema, came dict"):
        fedopl.read_logged(pandas.DataFrame(TABLE), SCHEMA)


def test_a_ragged_row_is_named_by_its_length_and_never_shown(tmp_path):
    path = tmp_path / "ragged.csv"
    path.write_text("age,arm,reward\n61,a,2\n7,Jane Doe\n")
    schema = fedopl.Schema(
        action="arm", actions=["a", "b"], reward="reward", direction="higher", numeric=["age"]
    )
    with pytest.raises(fedopl.DataError, match="Expected 3 columns, got 2") as caught:
        fedopl.read_logged(path, schema)
    assert "Jane" not in str(caught.value)


def test_cells_may_hold_line_breaks_however_long_the_file(tmp_path):
    path = tmp_path / "notes.csv"
    lines = [f'{age},"seen\ntwice",{"ab"[age % 2]},{age % 7}' for age in range(200_000)]
    path.write_text("\n".join(["age,note,arm,reward", *lines]) + "\n")
    schema = fedopl.Schema(
        action="arm", actions=["a", "b"], reward="reward", direction="higher", numeric=["age"]
    )
    assert fedopl.read_logged(path, schema).n_rows == 200_000
