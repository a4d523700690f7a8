"""That the comparison of two checkouts notices what it is there to notice."""

import json
import shlex

import numpy as np
import pytest
import same_results

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
