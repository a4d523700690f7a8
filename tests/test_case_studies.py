"""The case studies: scripts run on made-up tables, refuse what they cannot use, and pages agree.

On the real tables they run with `--quick`, where these are at hand.
"""

import csv
import importlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
CASES = {"warfarin": "iwpc.csv.gz", "gusto": "gusto.csv.gz", "stroke": "IST.csv.gz"}


def table_of_warfarin(rng):
    n_rows = 360
    age = rng.integers(3, 9, n_rows)
    genotype = rng.choice(["G/G", "A/G", "A/A", ""], n_rows)
    dose = 45 - 3 * age - 12 * (genotype == "A/A") + rng.normal(0, 8, n_rows)
    return {
        "site": np.arange(n_rows) % 3 + 1,
        "gender": rng.choice(["male", "female"], n_rows),
        "race": rng.choice(["White", "Asian", "Unknown"], n_rows),
        "age_decade": [f"{decade}0 - {decade}9" for decade in age],
        "height_cm": rng.normal(168, 10, n_rows).round(1),
        "weight_kg": rng.normal(78, 15, n_rows).round(1),
        "amiodarone": rng.choice(["0", "1", ""], n_rows),
        "carbamazepine": rng.choice(["0", ""], n_rows),
        "phenytoin": rng.choice(["0", ""], n_rows),
        "rifampin": rng.choice(["0", ""], n_rows),
        "cyp2c9": rng.choice(["*1/*1", "*1/*3", "*2/*3", "*1/*5", ""], n_rows),
        "vkorc1": genotype,
        "dose_mg_week": [f"{x:.1f}" if x > 3 else "" for x in dose],
    }


def table_of_gusto(rng):
    n_rows = 1200
    arms = rng.choice(["SK", "tPA", "SK+tPA"], n_rows, p=[0.5, 0.25, 0.25])
    age = rng.normal(61, 12, n_rows)
    risk = 0.1 + 0.004 * (age - 60) - 0.03 * (arms == "tPA")
    return {
        "regl": np.arange(n_rows) % 2 + 1,
        "tx": arms,
        "day30": (rng.random(n_rows) < risk).astype(int),
        "age": age.round(1),
        "sysbp": rng.normal(129, 20, n_rows).round(),
        "pulse": rng.normal(75, 15, n_rows).round(),
        "weight": rng.normal(79, 12, n_rows).round(1),
        "sex": rng.choice(["male", "female"], n_rows),
        "Killip": rng.choice(["I", "II", "III", "IV"], n_rows),
        "miloc": rng.choice(["Inferior", "Anterior", "Other"], n_rows),
        "pmi": rng.choice(["no", "yes"], n_rows),
        "dia": rng.integers(0, 2, n_rows),
        "htn": rng.integers(1, 3, n_rows),
        "prevcvd": rng.integers(1, 3, n_rows),
    }


def table_of_stroke(rng):
    n_rows = 1300
    return {
        "HOSPNUM": np.concatenate([np.full(1240, 9), np.arange(60) // 20]),
        "COUNTRY": np.repeat(["UK", "ITAL", "SRI"], [640, 620, 40]),
        "RXASP": rng.choice(["Y", "N"], n_rows),
        "RXHEP": rng.choice(["N", "L", "M", "H"], n_rows, p=[0.5, 0.25, 0.2, 0.05]),
        "OCCODE": rng.choice([1, 2, 3, 4, 9], n_rows, p=[0.2, 0.4, 0.2, 0.19, 0.01]),
        "H14": (rng.integers(0, 20, n_rows) == 0).astype(int),
        "TRAN14": rng.integers(0, 2, n_rows),
        "AGE": rng.integers(45, 95, n_rows),
        "RDELAY": rng.integers(1, 48, n_rows),
        "RSBP": rng.normal(160, 25, n_rows).round(),
        "SEX": rng.choice(["F", "M"], n_rows),
        "RCONSC": rng.choice(["F", "D"], n_rows),
        "STYPE": rng.choice(["PACS", "TACS", "LACS", "POCS"], n_rows),
        "RATRIAL": rng.choice(["N", "Y", ""], n_rows),
    }


TABLES = {"warfarin": table_of_warfarin, "gusto": table_of_gusto, "stroke": table_of_stroke}


def written(path, columns):
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = csv.writer(file)
        lines.writerow(columns)
        lines.writerows(zip(*columns.values(), strict=True))
    return path


@pytest.fixture(params=CASES)
def case(request):
    return request.param


@pytest.fixture
def script(case):
    return importlib.import_module(case)


def test_a_script_runs_on_a_made_up_table(case, script, tmp_path, capsys):
    columns = TABLES[case](np.random.default_rng(0))
    table = written(tmp_path / "table.csv", columns)
    assert script.main([str(table), "--quick", "--out", str(tmp_path / "out")]) == 0
    results = json.loads((tmp_path / "out" / f"{case}.json").read_text(encoding="utf-8"))
    printed = capsys.readouterr().out
    assert not re.search(r"\b(1 draws|1 splits|0(\.0)? minutes)", printed)
    for lines in results["page"].values():
        assert "\n".join(lines) in printed
        assert "nan" not in "\n".join(lines)
    figures = sorted(path.name for path in (tmp_path / "out").glob("*.svg"))
    assert figures
    assert all(name.startswith(case) for name in figures)


def test_a_table_that_is_not_there_is_named_with_where_to_get_it(case, script, tmp_path, capsys):
    assert script.main([str(tmp_path / "absent.csv")]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "absent.csv: there is no such file" in told.err
    assert script.SOURCE.how_to_get in told.err
    assert script.SOURCE.terms in told.err


def test_a_folder_in_place_of_a_table_is_called_one(case, script, tmp_path, capsys):
    assert script.main([str(tmp_path)]) == 1
    assert f"{tmp_path}: is a folder" in capsys.readouterr().err


@pytest.mark.parametrize(("name", "option"), [("warfarin", "--draws"), ("gusto", "--splits")])
@pytest.mark.parametrize("number", ["0", "-1", "two"])
def test_less_than_one_repetition_is_refused(name, option, number, capsys):
    with pytest.raises(SystemExit):
        importlib.import_module(name).main(["table.csv", f"{option}={number}"])
    told = capsys.readouterr().err
    assert f"argument {option}: expected a whole number from 1 on, came {number}" in told


def test_a_table_with_other_columns_is_refused_by_name(case, script, tmp_path, capsys):
    columns = TABLES[case](np.random.default_rng(0))
    gone = script.SOURCE.columns[-1]
    del columns[gone]
    assert script.main([str(written(tmp_path / "other.csv", columns))]) == 1
    told = capsys.readouterr().err
    assert f"other.csv: has no column {gone}; expected" in told


def test_a_table_without_rows_is_refused(case, script, tmp_path, capsys):
    columns = {name: [] for name in script.SOURCE.columns}
    assert script.main([str(written(tmp_path / "empty.csv", columns))]) == 1
    assert "empty.csv: has no rows" in capsys.readouterr().err


def test_a_real_table_is_tried(case, script, tmp_path):
    if not (DATA / CASES[case]).exists():
        pytest.skip("the table is not at hand")
    assert script.main([str(DATA / CASES[case]), "--quick", "--out", str(tmp_path)]) == 0


# --- pages ---------------------------------------------------------------------------------------


def page_and_results(case):
    page = (ROOT / "docs" / f"{case}.md").read_text(encoding="utf-8")
    kept = ROOT / "examples" / "results" / f"{case}.json"
    return page, json.loads(kept.read_text(encoding="utf-8"))


def test_a_page_shows_what_the_script_found(case):
    page, results = page_and_results(case)
    for mark, lines in results["page"].items():
        shown = page.split(f"<!-- {mark} -->\n")[1].split(f"<!-- end of {mark} -->")[0]
        # If not: python experiments/case_pages.py FOLDER
        assert shown == "".join(f"{line}\n" for line in lines), mark
    assert f"$ {results['command']}" in page


def test_numbers_in_a_pages_words_are_those_of_its_tables(case):
    page, results = page_and_results(case)
    found = {n for lines in results["page"].values() for n in numbers_in("\n".join(lines))}
    words = re.sub(
        r"^```.*?^```$|^ {4}.*?$|<!-- (\w+) -->.*?<!-- end of \1 -->", "", page, flags=re.M | re.S
    )
    words = re.sub(r"`[^`]*`|\]\([^)]*\)", "", words)
    settings = numbers_in(" ".join(results["settings"]))
    for number in numbers_in(words):
        assert number in found | settings, number


def numbers_in(text):
    """Numbers with a decimal point, without their sign."""
    return set(re.findall(r"(?<![\d.])\d+\.\d+(?![\d.])", text))
