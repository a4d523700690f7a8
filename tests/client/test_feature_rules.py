"""Dates become features by a named rule, ids are no features, and many levels are pooled."""

from datetime import date, datetime, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import fedopl
from fedopl.client.apply_policy import decide_table
from fedopl.study.study_file import read_study
from tiny_study import rows, write_csv, write_tiny

N_ROWS = 90
DAYS = [date(2024, 2, 25) + timedelta(days=7 * k // 3) for k in range(N_ROWS)]
TIMES = [datetime(d.year, d.month, d.day, k % 24, 30) for k, d in enumerate(DAYS)]
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
RULES = {
    "days since 2024-01-01": lambda d: (d - date(2024, 1, 1)).days,
    "year": lambda d: d.year,
    "month": lambda d: d.month - 1,
    "weekday": lambda d: d.weekday(),
}


def schema(**features):
    names = {"action": "arm", "actions": ["a", "b"], "reward": "gain", "direction": "higher"}
    return fedopl.Schema(**names, **features)


def table(**columns):
    rng = np.random.default_rng(0)
    given = {"arm": rng.choice(["a", "b"], N_ROWS), "gain": rng.standard_normal(N_ROWS)}
    return pa.table({**given, **columns})


def feature_of(contexts):
    """One number per row: the only column, or which of the 0/1 columns is one (0: none)."""
    if contexts.shape[1] == 1:
        return contexts[:, 0]
    return contexts @ np.arange(1, contexts.shape[1] + 1)


@pytest.mark.parametrize(("rule", "expected"), RULES.items(), ids=RULES)
@pytest.mark.parametrize("kept_as", ["date32", "timestamp", "text", "csv", "disk"])
def test_a_date_is_the_same_feature_however_it_is_stored(tmp_path, rule, expected, kept_as):
    columns = {
        "date32": pa.array(DAYS),
        "timestamp": pa.array([datetime(d.year, d.month, d.day, 13) for d in DAYS]),
    }
    rows_of = table(admitted=columns.get(kept_as, pa.array([d.isoformat() for d in DAYS])))
    agreed, source, how = schema(dates={"admitted": rule}), rows_of, {}
    if kept_as == "csv":
        source = tmp_path / "rows.csv"
        rows_of.to_pandas().to_csv(source, index=False)
    if kept_as == "disk":
        source, how = tmp_path / "rows.parquet", {"on_disk": tmp_path / "kept"}
        parquet.write_table(rows_of, source)
    data = fedopl.read_logged(source, agreed, **how)
    found = feature_of(data.contexts[slice(None)])
    np.testing.assert_array_equal(found, [expected(d) for d in DAYS])


def test_the_hour_is_that_of_the_clock_on_the_wall():
    zoned = pd.Series(TIMES).dt.tz_localize("Europe/Zurich", ambiguous=True, nonexistent="NaT")
    data = fedopl.read_logged(
        table(at=pa.array(zoned)), schema(dates={"at": "hour"}, missing="drop")
    )
    np.testing.assert_array_equal(data.contexts[:, 0], [t.hour for t in TIMES])


def test_levels_of_a_rule_are_named_and_need_not_be_written():
    agreed = schema(dates={"admitted": "weekday"}, numeric=["age"])
    assert agreed.categorical == {"admitted": WEEKDAYS}
    assert agreed.feature_names[:2] == ("age", "admitted=Tuesday")
    assert fedopl.Schema.model_validate_json(agreed.model_dump_json()) == agreed


def test_a_missing_date_is_a_missing_value():
    days = pa.array([None, *DAYS[1:]])
    with pytest.raises(fedopl.DataError, match="'admitted' 1"):
        fedopl.read_logged(table(admitted=days), schema(dates={"admitted": "year"}))
    marked = schema(dates={"admitted": "month"}, missing="indicator")
    data = fedopl.read_logged(table(admitted=days), marked)
    assert data.contexts[0].tolist() == [0] * 11 + [1]


@pytest.mark.parametrize("cell", ["31.12.2024", "2024-06-31", "soon"])
def test_what_is_no_date_is_counted_and_not_shown(cell):
    texts = pa.array([cell, *(d.isoformat() for d in DAYS[1:])])
    with pytest.raises(fedopl.DataError, match=r"'admitted': expected dates.* in 1 of 90 rows"):
        fedopl.read_logged(table(admitted=texts), schema(dates={"admitted": "year"}))
    with pytest.raises(fedopl.DataError, match="expected dates, came int64"):
        fedopl.read_logged(table(admitted=[2024] * N_ROWS), schema(dates={"admitted": "year"}))


@pytest.mark.parametrize("rule", ["quarter", "days since 2024-13-01", "days since", 3, None])
def test_only_named_rules_are_taken(rule):
    with pytest.raises(fedopl.SchemaError, match="expected a rule for dates"):
        schema(dates={"admitted": rule})


def test_a_date_that_is_called_a_number_is_told_about_rules():
    with pytest.raises(fedopl.DataError, match=r'came dates; name a rule .*"weekday"'):
        fedopl.read_logged(table(admitted=pa.array(DAYS)), schema(numeric=["admitted"]))


# --- ids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["id", "patient_id", "patientId", "MRN", "case id"])
def test_an_id_is_refused_as_a_feature(name):
    with pytest.raises(fedopl.DataError, match=f"'{name}': is an id, by its name and its 90 diff"):
        fedopl.read_logged(table(**{name: np.arange(N_ROWS)}), schema(numeric=[name]))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("age", np.arange(N_ROWS)),
        ("income", np.arange(N_ROWS) * 37),
        ("valid", np.arange(N_ROWS)),
        ("site_id", np.arange(N_ROWS) % 5),
        ("acid", np.arange(N_ROWS) / 7),
        ("humid id", np.arange(N_ROWS) / 7),
    ],
)
def test_a_quantity_or_a_code_is_no_id(name, values):
    assert fedopl.read_logged(table(**{name: values}), schema(numeric=[name])).n_rows == N_ROWS


def test_a_text_in_which_no_two_rows_agree_is_called_an_id():
    texts = [f"P{k:04d}" for k in range(N_ROWS)]
    with pytest.raises(fedopl.DataError, match="no two rows have the same: an id is no feature"):
        fedopl.read_logged(table(person=texts), schema(numeric=["person"]))


# --- many levels ----------------------------------------------------------------------------------

POOLED = {"categorical": {"code": ["I21", "I50", "other"]}, "others": {"code": "other"}}


def test_labels_that_are_not_listed_are_the_others():
    codes = [("I21", "I50", "J44", "K35", "other")[k % 5] for k in range(N_ROWS)]
    data = fedopl.read_logged(table(code=codes), schema(**POOLED))
    assert data.feature_names == ("code=I50", "code=other")
    expected = [[0, 0], [1, 0], [0, 1], [0, 1], [0, 1]] * (N_ROWS // 5)
    np.testing.assert_array_equal(data.contexts, expected)


def test_a_gap_is_still_a_gap():
    codes = ["", *["J44"] * (N_ROWS - 1)]
    with pytest.raises(fedopl.DataError, match="missing values in 1 of 90 rows"):
        fedopl.read_logged(table(code=codes), schema(**POOLED))


def test_the_level_of_others_is_one_of_the_levels():
    with pytest.raises(fedopl.SchemaError, match="'rest' is not one of the levels of 'code'"):
        schema(categorical={"code": ["I21", "I50"]}, others={"code": "rest"})


# --- in studies and decisions ---------------------------------------------------------------------


def test_a_study_says_it_and_a_policy_keeps_it(tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    tiny.edit(
        "[nuisances]",
        'admitted = "weekday"\ncode = { levels = ["I21", "I50"], others = "other" }\n\n[nuisances]',
    )
    rng = np.random.default_rng(0)
    for turn, name in enumerate(("north", "south", "west")):
        own = {
            "admitted": [DAYS[k % N_ROWS].isoformat() for k in range(600)],
            "code": [
                ("I21", "I50", f"X{k}")[turn] for k, turn in enumerate(rng.integers(0, 3, 600))
            ],
        }
        write_csv(tiny.table(name), {**rows(600, seed=turn), **own})
    study, _ = read_study(tiny.study)
    assert study.table.others == {"code": "other"}
    assert fedopl.Study.model_validate_json(study.model_dump_json()) == study
    done = tiny.run()
    assert done.code == 0, done.text
    policy = fedopl.load_policy(tiny.out / "policy.json")
    assert policy.encoding == study.encoding
    decided = decide_table(policy, tiny.table(), tmp_path / "decided.csv")
    assert (decided.n_rows, decided.n_undecided) == (600, 0)
    broken = {**rows(), "admitted": ["soon"] + ["2024-01-01"] * 159, "code": ["I21"] * 160}
    write_csv(tiny.table(), broken)
    with pytest.raises(fedopl.DataError, match="'admitted' 1 not a date"):
        decide_table(policy, tiny.table(), tmp_path / "decided.csv")


def test_a_study_without_rules_is_hashed_as_before():
    plain = schema(numeric=["age"])
    assert {"dates", "others"}.isdisjoint(plain.model_dump(mode="json"))
