"""A table that was decided runs nothing in the spreadsheet that opens it."""

import csv
import gzip
import io

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import fedopl
from fedopl.base.errors import OptionError
from fedopl.base.schema import Encoding
from fedopl.client.apply_policy import decide_table
from tiny_study import fedopl as command
from tiny_study import write_csv

HARMFUL = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("a",1)']
HARMLESS = ["", "text", "'=1", "a=b", "1-2", "a@b.org", " 5", "-inf"]
NUMBERS = ["-1.5", "+3", "-.5", "1e-3", "-5.", "-7"]
ENCODING = Encoding(numeric=["age"], categorical={})
POLICY = fedopl.LinearPolicy(np.eye(2), ("=wait", "go"), ENCODING.feature_names, ENCODING)


def table_of(path, notes):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([["age", "=note"], *(["-1.5", note] for note in notes)])
    return path


def rows_of(path):
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz"])
def test_text_that_would_run_is_written_behind_an_apostrophe(tmp_path, name):
    notes = [*HARMFUL, *HARMLESS, *NUMBERS]
    decide_table(POLICY, table_of(tmp_path / "in.csv", notes), tmp_path / name, column="-action")
    header, *rows = rows_of(tmp_path / name)
    assert header == ["age", "'=note", "'-action"]
    expected = [*(f"'{note}" for note in HARMFUL), *HARMLESS, *NUMBERS]
    assert rows == [["-1.5", note, "go"] for note in expected]


def test_names_of_actions_are_text_too(tmp_path):
    write_csv(tmp_path / "in.csv", {"age": ["9", "-9"]})
    decide_table(POLICY, tmp_path / "in.csv", tmp_path / "out.csv")
    assert [row[-1] for row in rows_of(tmp_path / "out.csv")] == ["action", "'=wait", "go"]


def test_whoever_asks_for_it_gets_the_text_as_it_was(tmp_path):
    source = table_of(tmp_path / "in.csv", HARMFUL)
    decide_table(POLICY, source, tmp_path / "out.csv", formulas="keep")
    assert [row[:2] for row in rows_of(tmp_path / "out.csv")] == rows_of(source)


def test_numbers_of_a_parquet_file_stay_numbers_in_csv(tmp_path):
    texts = pyarrow.array(["=1", "a"]).dictionary_encode()
    table = pyarrow.table({"age": [-1.5, 2.0], "level": [-3, 4], "text": texts})
    parquet.write_table(table, tmp_path / "in.parquet")
    decide_table(POLICY, tmp_path / "in.parquet", tmp_path / "out.csv")
    rows = [row[:3] for row in rows_of(tmp_path / "out.csv")[1:]]
    assert rows == [["-1.5", "-3", "'=1"], ["2", "4", "a"]]


def test_a_parquet_file_holds_text_as_it_was(tmp_path):
    decide_table(POLICY, table_of(tmp_path / "in.csv", HARMFUL), tmp_path / "out.parquet")
    assert parquet.read_table(tmp_path / "out.parquet")["=note"].to_pylist() == HARMFUL


def test_another_wish_is_refused(tmp_path):
    with pytest.raises(OptionError, match="expected 'escape' or 'keep', came 'run'"):
        decide_table(POLICY, table_of(tmp_path / "in.csv", []), tmp_path / "o.csv", formulas="run")


def test_the_command_line_offers_both(tmp_path):
    POLICY.save(tmp_path / "policy.json")
    source = table_of(tmp_path / "in.csv", ["=1"])
    for more, expected in ([], "'=1"), (["--formulas", "keep"], "=1"):
        done = command("decide", tmp_path / "policy.json", source, *more)
        assert done.code == 0, done.err
        assert rows_of(tmp_path / "in-decided.csv")[1][1] == expected
