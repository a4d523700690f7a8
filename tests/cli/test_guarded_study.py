"""Guardrails in a study file: read, checked before anybody is asked, run, and said first."""

import json

import numpy as np
import pytest

from tiny_study import fedopl, rows, write_csv, write_tiny

GUARDRAIL = """
[guardrails.falls]
column = "falls"
at_most = 0.05
more_than = "what was done"
"""


def with_falls(seed, n_rows=400):
    """Rows in which those fall to whom the new arm does good, if they get it."""
    table = rows(n_rows, seed)
    rng = np.random.default_rng(seed)
    new = np.array([arm == "new" for arm in table["arm"]])
    severe = np.array(table["severity"], float) > 2
    falls = rng.random(n_rows) < 0.1 + 0.8 * (new & severe)
    return table | {"falls": [f"{fell:d}" for fell in falls]}


@pytest.fixture
def tiny(tmp_path):
    tiny = write_tiny(tmp_path)
    for turn, name in enumerate(("north", "south", "west")):
        write_csv(tiny.table(name), with_falls(turn, 1600))
    tiny.add(GUARDRAIL)
    return tiny


def test_a_policy_that_breaks_a_guardrail_is_said_first_and_never_recommended(tiny):
    done = tiny.run("--json")
    assert done.code == 0, done.text
    said = done.json()
    first = "The learned policy does not keep every guardrail: 'falls' (at most 0.05 more falls"
    assert said["verdict"].startswith(first)
    assert said["recommendation"]["sentence"].startswith(first)
    assert said["recommendation"]["policy"] != "learned"
    (guardrail,) = said["guardrails"]
    assert guardrail["words"] == "at most 0.05 more falls than what was done"
    by_policy = {one["policy"]: one for one in guardrail["policies"]}
    assert by_policy["everybody gets new"]["verdict"] == "broken"
    assert by_policy["everybody gets usual"]["verdict"] == "kept"
    assert by_policy["logging policy"]["bounds"] == [0, 0]
    kept = json.loads((tiny.out / "run.json").read_text())
    assert kept["verdict"].startswith(first)
    assert kept["guardrails"]["falls"]["everybody gets new"] == "broken"
    report = (tiny.out / "report.html").read_text()
    assert report.index("does not keep every guardrail") < report.index("What it is worth")
    assert "broken: all of it lies beyond the limit" in report
    again = fedopl("report", tiny.out, "--out", tiny.folder / "again.html")
    assert again.code == 0, again.text
    assert "broken: all of it lies beyond the limit" in (tiny.folder / "again.html").read_text()


def test_check_and_preview_know_it(tiny):
    assert tiny.check().code == 0
    preview = fedopl("preview", tiny.study, tiny.clients / "north")
    assert preview.code == 0, preview.text
    assert preview.out.count("Value → Values") == 2  # by the outcome, and by falls


FAULTS = {
    "nobody has it": ('column = "falls"', 'column = "death"', "'death'"),
    "text": ('column = "falls"', 'column = "note"', "expected numbers, came text"),
    "the outcome itself": ('column = "falls"', 'column = "gain"', "'gain' is the outcome itself"),
    "a feature": ('column = "falls"', 'column = "age"', "age is the action or an outcome"),
    "no action": ('"what was done"', '"placebo"', "'placebo' is neither"),
    "no amount": ("at_most = 0.05\n", "", "either at_most or at_least"),
    "two amounts": ("at_most = 0.05", "at_most = 0.05\nat_least = 0", "either at_most or"),
    "below zero": ("at_most = 0.05", "at_most = -1", "at_most"),
    "nothing to compare": ('more_than = "what was done"\n', "", "either more_than or less_than"),
    "no rows held out": (
        "[guardrails.falls]",
        "[evaluation]\nshare = 0\n[guardrails.falls]",
        "hold",
    ),
    "several splits": (
        "[guardrails.falls]",
        "[evaluation]\nsplits = 3\n[guardrails.falls]",
        "guardrails are judged under one split",
    ),
}


@pytest.mark.parametrize(("old", "new", "said"), FAULTS.values(), ids=FAULTS)
def test_what_cannot_be_judged_is_refused_before_anybody_is_asked(tiny, old, new, said):
    tiny.edit(old, new)
    for name in ("north", "south", "west"):
        write_csv(tiny.table(name), with_falls(0) | {"note": ["fell badly"] * 400})
    done = tiny.run()
    assert done.code != 0
    assert said in done.err
    assert "Traceback" not in done.text
    assert not list(tiny.clients.glob("*/ledger.jsonl"))


@pytest.mark.parametrize(
    ("falls", "said"),
    [
        (None, "'falls'"),
        (["0"] * 160, "column 'falls', which a guardrail is about, is 0 in every row"),
        (["", *["0", "1"] * 79, "1"], "missing values in 1 of 160 rows (by column: 'falls' 1)"),
    ],
    ids=["lacks it", "constant", "gap"],
)
def test_one_client_whose_column_cannot_be_used_is_named(tiny, falls, said):
    tiny.change(falls=falls)
    for done in (tiny.run(), tiny.check()):
        assert done.code != 0
        assert "north" in done.text
        assert said in done.text
    assert not list(tiny.clients.glob("*/ledger.jsonl"))
