"""`fedopl export` writes files that decide as `fedopl decide` does, under a client's own names."""

import csv
import sqlite3
import subprocess
import sys

from tiny_study import CLIENT, fedopl, rows, write_csv


def test_a_run_is_exported_under_a_clients_own_names_and_decides_as_decide_does(finished, tmp_path):
    table = rows(seed=9)
    labels = [label.upper() for label in table["living"]]
    own = {"years": table["age"], "severity": table["severity"], "living": labels}
    write_csv(tmp_path / "new.csv", own)
    (tmp_path / "client.toml").write_text(
        f'{CLIENT}[columns]\nage = "years"\n'
        '[labels.living]\nALONE = "alone"\n"WITH OTHERS" = "with others"\n'
    )
    names = ["--client", tmp_path / "client.toml", "--column", "what to do"]
    assert fedopl("decide", finished.out, tmp_path / "new.csv", *names).code == 0
    with (tmp_path / "new-decided.csv").open(newline="") as file:
        expected = [row["what to do"] for row in csv.DictReader(file)]
    assert len(set(expected)) == 2

    out = tmp_path / "policy.sql"
    done = fedopl("export", finished.out, "--to", "sql", "--table", "new", *names, "--out", out)
    assert (done.code, done.out, done.err) == (0, f"{out}\n", "")
    base = sqlite3.connect(":memory:")
    base.execute("CREATE TABLE new (years REAL, severity REAL, living TEXT)")
    base.executemany("INSERT INTO new VALUES (?, ?, ?)", zip(*own.values(), strict=True))
    assert [row[-1] for row in base.execute(out.read_text())] == expected

    out = tmp_path / "policy.py"
    fedopl("export", finished.out / "policy.json", "--to", "python", *names, "--out", out)
    command = [sys.executable, "-I", "-S", out, tmp_path / "new.csv"]
    ran = subprocess.run(command, capture_output=True, check=True, text=True)
    found = [row["what to do"] for row in csv.DictReader(ran.stdout.splitlines())]
    assert found == expected


def test_it_is_written_into_the_runs_folder_which_stays_whole(finished, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    for file in finished.out.iterdir():
        if file.is_file():
            (folder / file.name).write_bytes(file.read_bytes())
    done = fedopl("export", folder, "--to", "excel", "--json")
    assert done.json() == [str(folder / "policy.xlsx")]
    assert (folder / "policy.xlsx").read_bytes()[:2] == b"PK"
    assert fedopl("explain", folder).code == 0  # a run that was changed would be refused


def test_a_table_is_for_sql_alone(finished, tmp_path):
    out = tmp_path / "policy.py"
    done = fedopl("export", finished.out, "--to", "python", "--table", "x", "--out", out)
    assert done.code == 1
    assert "--table: only SQL names a table" in done.err
    assert not out.exists()


def test_a_policy_file_that_is_run_without_its_columns_says_which(finished, tmp_path):
    write_csv(tmp_path / "new.csv", {"age": [1.0]})
    out = tmp_path / "policy.py"
    fedopl("export", finished.out, "--to", "python", "--out", out)
    command = [sys.executable, out, tmp_path / "new.csv"]
    ran = subprocess.run(command, capture_output=True, check=False, text=True)
    assert ran.returncode == 1
    assert ran.stderr == f"{tmp_path / 'new.csv'}: has no column severity, living\n"
