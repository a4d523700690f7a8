"""Known propensities that a trial states itself: for all rows, by action, or by stratum."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import fedopl
from fedopl.study.study_file import read_study
from tiny_study import STUDY, rows, write_csv, write_tiny

N_ROWS = 400


def trial(seed=0):
    """Rows of a trial in which the second block drew the drug for one in four."""
    rng = np.random.default_rng(seed)
    block = rng.integers(0, 2, N_ROWS)
    drug = rng.random(N_ROWS) < np.array([0.5, 0.25])[block]
    return {
        "age": rng.normal(60, 9, N_ROWS),
        "block": np.array(["A", "B"])[block],
        "arm": np.where(drug, "drug", "placebo"),
        "gain": rng.standard_normal(N_ROWS) + drug,
    }


def schema(**more):
    names = {"action": "arm", "actions": ["drug", "placebo"], "reward": "gain"}
    return fedopl.Schema(**names, direction="higher", numeric=["age"], **more)


def read(table, **more):
    return fedopl.read_logged(pa.table(table), schema(**more))


BLOCKS = {"stratum": "block", "shares": {"A": 0.5, "B": {"drug": 0.25, "placebo": 0.75}}}


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        (0.5, [0.5, 0.5]),
        ({"drug": 0.25, "placebo": 0.75}, [0.25, 0.75]),
        ({"placebo": 0.67, "drug": 0.33}, [0.33, 0.67]),
        ({"drug": 0.333, "placebo": 0.666}, [1 / 3, 2 / 3]),  # rounded, and made to add up
    ],
)
def test_numbers_hold_in_every_row_of_a_table_and_of_arrays(stated, expected):
    table = trial()
    from_table = read(table, propensity=stated)
    from_arrays = fedopl.LoggedData(
        np.ones((N_ROWS, 1)), table["arm"], table["gain"], stated, action_names=["drug", "placebo"]
    )
    for data in (from_table, from_arrays):
        np.testing.assert_allclose(data.propensities, np.tile(expected, (N_ROWS, 1)), rtol=1e-12)


def test_strata_have_numbers_of_their_own():
    table = trial()
    data = read(table, propensity=BLOCKS)
    of_drug = np.where(table["block"] == "A", 0.5, 0.25)
    np.testing.assert_array_equal(data.propensities, np.column_stack([of_drug, 1 - of_drug]))
    assert fedopl.cross_fit(data).propensity == "known"


def test_a_stratum_may_be_a_feature_or_the_group_and_may_be_called_otherwise():
    table = trial()
    names = {"numeric": ["age"], "categorical": {"block": ["A", "B"]}, "group": "block"}
    given = {"action": "arm", "actions": ["drug", "placebo"], "reward": "gain"}
    agreed = fedopl.Schema(**given, **names, direction="higher", propensity=BLOCKS)
    data = fedopl.read_logged(pa.table(table), agreed)
    assert (data.n_groups, data.feature_names) == (2, ("age", "block=B"))
    own = {name if name != "block" else "site": column for name, column in table.items()}
    own["site"] = np.where(table["block"] == "A", "first", "second")
    renamed = fedopl.read_logged(
        pa.table(own),
        agreed,
        columns={"block": "site"},
        labels={"block": {"first": "A", "second": "B"}},
    )
    np.testing.assert_array_equal(renamed.propensities, data.propensities)


def test_rows_on_disk_have_the_same(tmp_path):
    table = trial()
    parquet.write_table(pa.table(table), tmp_path / "trial.parquet")
    agreed = schema(propensity=BLOCKS)
    on_disk = fedopl.read_logged(tmp_path / "trial.parquet", agreed, on_disk=tmp_path / "rows")
    np.testing.assert_array_equal(
        on_disk.propensities[slice(None)], read(table, propensity=BLOCKS).propensities
    )


def test_a_row_without_a_stratum_is_missing_a_value_and_an_unknown_stratum_is_named():
    table = trial()
    table["block"] = np.where(np.arange(N_ROWS) < 3, "", table["block"])
    with pytest.raises(fedopl.DataError, match=r"missing values in 3 of 400 rows .*'block' 3"):
        read(table, propensity=BLOCKS)
    table["block"][:3] = "C"
    with pytest.raises(fedopl.DataError, match=r"column 'block': 3 of 400 rows .*unknown: 'C'"):
        read(table, propensity=BLOCKS)


BAD = {
    "one number that does not add up": (0.9, r"0\.9 for each of 2 actions adds up to 1\.8"),
    "numbers that do not": (
        {"drug": 0.5, "placebo": 0.7},
        r"add up to 1\.2.*not that of treatment",
    ),
    "no probability": ({"drug": 50, "placebo": 50}, "from 0 to 1 of 'drug', came 50"),
    "an action left out": ({"drug": 1.0}, "a number for each of drug, placebo"),
    "half columns": ({"drug": 0.5, "placebo": "p"}, "not some of both"),
    "a stratum that does not add up": (
        {"stratum": "block", "shares": {"A": 0.5, "B": 0.6}},
        "in stratum 'B'",
    ),
    "a number as the stratum": ({"stratum": "age", "shares": {"1": 0.5}}, "'age' cannot be the"),
    "no stratum": ({"stratum": "block", "shares": {}}, "shares by stratum"),
    "no name": ("", "expected a probability from 0 to 1, came ''"),
}


@pytest.mark.parametrize(("stated", "message"), BAD.values(), ids=BAD)
def test_what_cannot_be_is_refused_when_it_is_stated(stated, message):
    with pytest.raises(fedopl.SchemaError, match=message):
        schema(propensity=stated)


def test_arrays_refuse_numbers_that_do_not_add_up():
    table = trial()
    with pytest.raises(fedopl.DataError, match=r"propensities: 0\.9 for each of 2 actions"):
        fedopl.LoggedData(np.ones((N_ROWS, 1)), table["arm"], table["gain"], 0.9)
    with pytest.raises(fedopl.DataError, match="say one for each of 'drug', 'placebo'"):
        fedopl.LoggedData(np.ones((N_ROWS, 1)), table["arm"], table["gain"], {"drug": 1.0})


def test_numbers_of_a_trial_that_was_another_are_found_out():
    table = trial()
    table["arm"][:380] = "drug"
    with pytest.raises(fedopl.FederationError, match="WRONG_PROPENSITIES"):
        fedopl.learn({"north": read(table, propensity=0.5)}, basis="linear")


def test_the_estimator_takes_them():
    table = trial()
    learner = fedopl.PolicyLearner().fit(
        np.column_stack([table["age"]]), table["arm"], table["gain"], propensity=0.5
    )
    assert set(learner.predict(np.array([[50.0], [70.0]]))) <= {"drug", "placebo"}


# --- in study.toml --------------------------------------------------------------------------------

LEVELS = 'levels = ["usual", "new"]'


@pytest.mark.parametrize(
    "line",
    ["propensity = 0.5", "propensity = { usual = 0.5, new = 0.5 }"],
)
def test_a_study_says_so_and_its_run_says_known(tmp_path, line):
    tiny = write_tiny(tmp_path / "tiny")
    tiny.edit(LEVELS, f"{LEVELS}\n{line}")
    tiny.edit('propensity = "marginal"', 'propensity = "known"')
    checked = tiny.check()
    assert checked.code == 0, checked.text
    assert "propensities of every action" in checked.out
    study, _ = read_study(tiny.study)
    assert fedopl.Study.model_validate_json(study.model_dump_json()) == study


STRATA = f"""{LEVELS}
[action.propensity]
stratum = "block"
[action.propensity.shares]
1 = 0.5
2 = {{ usual = 0.75, new = 0.25 }}
"""


def test_a_study_by_stratum_is_read_and_survives_the_way_through_json(tmp_path):
    tiny = write_tiny(tmp_path / "tiny", ("north",))
    tiny.edit(LEVELS, STRATA)
    tiny.edit('propensity = "marginal"', 'propensity = "known"')
    table = rows(300)
    rng = np.random.default_rng(1)
    block = rng.integers(0, 2, 300)
    new = rng.random(300) < np.array([0.5, 0.25])[block]
    table |= {"block": list(block + 1), "arm": ["new" if flag else "usual" for flag in new]}
    write_csv(tiny.table(), table)
    study, _ = read_study(tiny.study)
    assert fedopl.Study.model_validate_json(study.model_dump_json()) == study
    assert study.table.known_shares == {"1": (0.5, 0.5), "2": (0.75, 0.25)}
    done = tiny.run()
    assert done.code == 0, done.text


def test_a_mistake_is_named_with_its_line(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY.replace(LEVELS, f"{LEVELS}\npropensity = 0.9"), encoding="utf-8")
    with pytest.raises(fedopl.OptionError, match=r"line 10: .*0\.9 for each of 2 actions adds up"):
        read_study(path)


def test_the_check_names_numbers_with_which_arms_cannot_have_been_drawn(tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    tiny.edit(LEVELS, f"{LEVELS}\npropensity = {{ usual = 0.9, new = 0.1 }}")
    tiny.edit('propensity = "marginal"', 'propensity = "known"')
    checked = tiny.check()
    assert checked.code == 1
    assert "propensities: 'new' was taken" in checked.out
    assert "Correct the numbers that the schema states (action.propensity" in checked.out
