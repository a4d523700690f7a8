"""Rows without an outcome: dropped or refused by choice, and counted by action."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import fedopl
from tiny_study import rows, write_csv, write_tiny

N_ROWS = 200
NAMES = {"action": "arm", "actions": ["usual", "new", "rare"], "reward": "gain"}


def schema(**more):
    return fedopl.Schema(**NAMES, direction="higher", numeric=["age"], **more)


def table(lost, n_ages_missing=0):
    """Half of the rows of either arm; of `lost` = (usual, new) rows the outcome is missing."""
    rng = np.random.default_rng(0)
    arm = np.array(["usual", "new"] * (N_ROWS // 2))
    gain = rng.standard_normal(N_ROWS)
    for name, n_lost in zip(("usual", "new"), lost, strict=True):
        gain[np.flatnonzero(arm == name)[:n_lost]] = np.nan
    age = rng.normal(60, 9, N_ROWS)
    age[N_ROWS - n_ages_missing :] = np.nan
    return pa.table({"age": age, "arm": arm, "gain": gain})


def test_they_are_dropped_where_the_study_says_so_and_counted_by_action():
    with pytest.warns(fedopl.FedoplWarning) as caught:
        data = fedopl.read_logged(table((5, 9)), schema(missing_reward="drop"))
    assert data.n_rows == N_ROWS - 14
    (warning,) = caught
    said = "dropped 14 of 200 rows for missing values (by column: 'gain' 14). Outcomes are missing "
    assert f"{said}by action: 'usual' 5 of 100 (5%), 'new' 9 of 100 (9%)" in str(warning.message)
    assert "uneven" not in str(warning.message)


def test_attrition_that_chance_does_not_explain_is_called_uneven():
    with pytest.warns(fedopl.FedoplWarning, match=r"'new' 30 of 100 \(30%\); that is more uneven"):
        fedopl.read_logged(table((5, 30)), schema(missing_reward="drop"))


def test_even_attrition_is_hardly_ever_called_uneven():
    from fedopl.client.table.encoder import Attrition

    rng = np.random.default_rng(0)
    called = 0
    for _ in range(2000):
        actions = rng.integers(0, 3, 300)
        found = Attrition.of(actions, rng.random(300) < 0.1, ("a", "b", "c"))
        called += found.is_uneven
    assert called <= 10  # 2 are expected


@pytest.mark.parametrize("rules", [{}, {"missing_reward": "error", "missing": "drop"}])
def test_they_are_refused_otherwise_and_counted_all_the_same(rules):
    with pytest.raises(fedopl.DataError) as caught:
        fedopl.read_logged(table((5, 9)), schema(**rules))
    assert "missing values in 14 of 200 rows (by column: 'gain' 14)" in str(caught.value)
    assert "missing_reward='drop'" in str(caught.value)
    assert "'usual' 5 of 100 (5%), 'new' 9 of 100 (9%)" in str(caught.value)


@pytest.mark.parametrize(
    ("rules", "n_kept"),
    [
        ({"missing": "drop"}, N_ROWS - 14 - 3),
        ({"missing": "indicator", "missing_reward": "drop"}, N_ROWS - 14),
    ],
)
def test_other_missing_values_go_by_their_own_rule(rules, n_kept):
    with pytest.warns(fedopl.FedoplWarning, match="Outcomes are missing by action"):
        assert fedopl.read_logged(table((5, 9), 3), schema(**rules)).n_rows == n_kept
    with pytest.raises(fedopl.DataError, match=r"missing values in 3 of 200 rows .*'age' 3"):
        fedopl.read_logged(table((5, 9), 3), schema(missing_reward="drop"))


def test_rows_on_disk_are_counted_alike(tmp_path, monkeypatch):
    monkeypatch.setattr("fedopl.client.table.spool.ROWS_PER_BATCH", 32)
    parquet.write_table(table((5, 30)), tmp_path / "rows.parquet")
    for _ in range(2):  # read once, then found again
        with pytest.warns(fedopl.FedoplWarning, match=r"'usual' 5 of 100 .*'new' 30 of 100"):
            data = fedopl.read_logged(
                tmp_path / "rows.parquet",
                schema(missing_reward="drop"),
                on_disk=tmp_path / "kept",
            )
        assert data.n_rows == N_ROWS - 35


def test_a_table_without_any_outcome_is_refused():
    with pytest.raises(fedopl.DataError, match="every row has a missing value"):
        fedopl.read_logged(table((100, 100)), schema(missing_reward="drop"))


def test_a_study_says_it_and_each_client_sees_its_own_counts(tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    tiny.edit('direction = "higher"', 'direction = "higher"\nmissing = "drop"')
    own = rows()
    own["gain"] = ["" if k < 9 else cell for k, cell in enumerate(own["gain"])]
    write_csv(tiny.table(), own)
    checked = tiny.check()
    assert checked.code == 0, checked.text
    assert checked.out.count("Outcomes are missing by action: 'usual'") == 1
    assert checked.out.index("── north") < checked.out.index("Outcomes are missing by")
    by_client = tiny.check("--json").json()["clients"]
    assert sum(by_client["north"]["outcomes_missing"].values()) == 9
    assert by_client["south"]["outcomes_missing"] == {}
    done = tiny.run()
    assert done.code == 0
    assert "Outcomes are missing by action" in done.err


def test_a_study_that_does_not_say_it_is_hashed_as_before():
    assert "missing_reward" not in schema().model_dump(mode="json")
    assert schema(missing_reward="drop").model_dump(mode="json")["missing_reward"] == "drop"
