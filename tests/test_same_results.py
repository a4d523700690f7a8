"""That the comparison of two checkouts notices what it is there to notice."""

import json
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest
import results_apart
import same_results

import fedopl

LEDGER = "clients/north/ledger.jsonl"
FILES = {
    "printed.txt": "$ fedopl run\nThe report is run/report.html\n",
    "run/report.html": "<style>p { color: red }</style><p class=x>It <b>pays</b>.</p>",
    "run/values.csv": "policy,value\nlearned,0.1\n",
    "run/run.json": json.dumps({"finished": "2026-11-16T01:02:03+00:00", "files": {"a": "1f"}}),
    LEDGER: '{"when": "2026-11-16T01:02:03.456+00:00", "sha256": "1f", "n_bytes": 8}\n',
}


@pytest.fixture
def folders(tmp_path):
    for side in ("before", "after"):
        for name, text in FILES.items():
            path = tmp_path / side / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        np.savez(tmp_path / side / "run" / "sums.npz", grams=np.ones(3), counts=np.arange(2))
    return tmp_path / "before", tmp_path / "after"


def differing(folders):
    return {what: how for what, how in same_results.differences(*folders) if how}


def test_equal_folders_are_the_same(folders):
    assert not differing(folders)
    assert len(list(same_results.differences(*folders))) == len(FILES) + 1


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("run/report.html", "red", "blue"),
        ("run/report.html", "class=x", "class=y"),
        ("run/run.json", "01:02:03", "04:05:06"),
        ("run/run.json", "1f", "2f"),
        (LEDGER, "01:02:03.456", "04:05:06.789"),
    ],
)
def test_times_and_what_nobody_reads_may_change(folders, name, old, new):
    path = folders[1] / name
    path.write_text(path.read_text().replace(old, new))
    assert not differing(folders)


@pytest.mark.parametrize(
    ("name", "old", "new", "what"),
    [
        ("printed.txt", "is run", "was run", "printed.txt"),
        ("run/report.html", "pays", "paid", "report.html"),
        ("run/values.csv", "0.1", "0.10000000000000002", "values.csv"),
        (LEDGER, "1f", "2f", "bytes of every answer"),
        (LEDGER, "8", "9", "bytes of every answer"),
    ],
)
def test_a_change_is_named(folders, name, old, new, what):
    path = folders[1] / name
    path.write_text(path.read_text().replace(old, new))
    assert list(differing(folders)) == [what]
    assert name in differing(folders)[what]


def test_one_bit_of_one_sum_is_noticed(folders):
    grams = np.ones(3)
    grams[1] = np.nextafter(1, 2)
    np.savez(folders[1] / "run" / "sums.npz", grams=grams, counts=np.arange(2))
    assert "grams" in differing(folders)["sums.npz"]


def test_another_type_of_number_is_noticed(folders):
    np.savez(folders[1] / "run" / "sums.npz", grams=np.ones(3), counts=np.arange(2, dtype=np.int32))
    assert "counts" in differing(folders)["sums.npz"]


@pytest.mark.parametrize("side", [0, 1])
def test_a_missing_file_is_noticed(folders, side):
    (folders[side] / "run" / "values.csv").unlink()
    assert differing(folders)["values.csv"].endswith(("only after", "only before")[side])


def test_every_command_of_a_job_can_be_split_and_names_are_unique():
    assert all(shlex.split(command) for job in same_results.JOBS for command in job.commands)
    names = [same_results._as_file_name(job.name) for job in same_results.JOBS]
    assert len(names) == len(set(names))


# --- limits ---------------------------------------------------------------------------------------

KNOWN = list(fedopl.Limits.model_fields)
FEWER = ["minimum_rows", "minimum_cell", "parameter_share", "values", "studies", "norm_cap"]
CLIENT = 'name = "x"\n\n[limits]\nminimum_cell = 10  # more\n\n[columns]\nage = "years"\n'


@pytest.mark.parametrize("known", [KNOWN, FEWER], ids=["all", "fewer"])
def test_a_client_has_the_limits_that_its_version_knows_and_they_are_open(known):
    found = tomllib.loads(same_results.limits_of(known))["limits"]
    assert found.keys() == set(known) - same_results.OPEN_BY_DEFAULT
    limits = fedopl.Limits.model_validate_json(json.dumps(found), strict=True)
    assert (limits.minimum_rows, limits.minimum_cell) == (1, 0)
    assert limits.parameter_share > 1e6


def test_a_checkout_is_asked_what_limits_it_knows():
    here = Path(fedopl.__file__).parents[2]
    assert same_results.open_limits(here) == same_results.limits_of(KNOWN)


def test_a_limit_that_the_script_cannot_open_is_named():
    with pytest.raises(ValueError, match="opens these limits: shyness"):
        same_results.limits_of([*KNOWN, "shyness"])


def test_limits_of_a_job_are_replaced_and_all_else_stays():
    limits = same_results.limits_of(["minimum_rows", "minimum_cell"])
    expected = {"minimum_rows": 1, "minimum_cell": 0}
    found = tomllib.loads(same_results.with_limits(CLIENT, limits))
    assert found == {"name": "x", "columns": {"age": "years"}, "limits": expected}
    without = CLIENT.partition("[limits]")[0]
    assert tomllib.loads(same_results.with_limits(without, limits))["limits"] == expected


def test_some_job_keeps_the_limits_of_its_files():
    own = [job.name for job in same_results.JOBS if job.own_limits]
    assert {"demo", "refusals"} < set(own) < {job.name for job in same_results.JOBS}


# --- results alone --------------------------------------------------------------------------------

PAGE = """<section><h2 id="{name}">x</h2><table><tr><th>learned</th><td>{number}</td></tr></table>
</section>"""
RESULTS = {
    "run/values.csv": "policy,value\nlearned,0.1\n",
    "run/policy.json": json.dumps({"kind": "linear", "weights": [[0.5, -2.0], [0.0, 1.0]]}),
    "run/run.json": json.dumps({"study": "1f", "verdict": "better by 0.5818", "files": {"a": "1"}}),
    "run/report.html": PAGE.format(name="worth", number="+0.58")
    + PAGE.format(name="left", number="4,045"),
    "run/rounds.jsonl": '{"bytes": 4045}\n',
    LEDGER: '{"sha256": "1f"}\n',
    "run/exchanges/trip.bin": "one",
}


@pytest.fixture
def both(tmp_path):
    for side in ("before", "after"):
        for name, text in RESULTS.items():
            path = tmp_path / side / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        np.savez(tmp_path / side / "run" / "sums.npz", grams=np.array([4.0, np.nan, 8.0]))
    return tmp_path / "before", tmp_path / "after"


def apart(both):
    return {what: by for what, by, _ in results_apart.furthest_apart(*both) if by}


def test_equal_results_are_not_apart(both):
    assert not apart(both)
    files = [what for what, *_ in results_apart.furthest_apart(*both)]
    assert files == [f"run/{name}" for name in ("policy.json", "report.html", "run.json")] + [
        "run/sums.npz",
        "run/values.csv",
    ]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        (LEDGER, "1f", "2f"),
        ("run/exchanges/trip.bin", "one", "another"),
        ("run/rounds.jsonl", "4045", "4046"),
        ("run/run.json", "1f", "2f"),
        ("run/report.html", "4,045", "5,046"),
        ("run/report.html", "+0.58", "+0.59"),  # as a rounded number may be shown
    ],
)
def test_the_way_to_the_results_may_differ(both, name, old, new):
    path = both[1] / name
    path.write_text(path.read_text().replace(old, new))
    assert not apart(both)


@pytest.mark.parametrize(
    ("name", "old", "new", "by"),
    [
        ("run/values.csv", "0.1", "0.1000001", 1e-7),
        ("run/policy.json", "-2.0", "-2.5", 0.2),
        ("run/policy.json", "linear", "tree", np.inf),
        ("run/run.json", "better", "worse", np.inf),
        ("run/run.json", "0.5818", "0.6818", 0.1),
        ("run/report.html", "+0.58", "+0.68", 0.1),
    ],
)
def test_results_that_differ_are_as_far_apart_as_their_numbers(both, name, old, new, by):
    path = both[1] / name
    path.write_text(path.read_text().replace(old, new))
    assert apart(both) == {name: pytest.approx(by)}


def test_sums_are_compared_beside_their_largest_number(both):
    np.savez(both[1] / "run" / "sums.npz", grams=np.array([4.0, np.nan, 8.0 + 8e-9]))
    assert apart(both) == {"run/sums.npz": pytest.approx(1e-9)}
    np.savez(both[1] / "run" / "sums.npz", grams=np.array([4.0, 3.0, 8.0]))
    assert apart(both) == {"run/sums.npz": np.inf}


@pytest.mark.parametrize("side", [0, 1])
def test_a_missing_result_is_infinitely_far(both, side):
    (both[side] / "run" / "values.csv").unlink()
    assert apart(both) == {"run/values.csv": np.inf}
