"""Several splits on the command line: check, preview, run, ledger and evaluate."""

import re

import pytest

from fedopl.study.splits import split_studies
from fedopl.study.study_file import read_study
from tiny_study import fedopl, write_tiny

LONG_NAME = "Who of those admitted in winter " + "and in spring " * 8 + "gains"


@pytest.fixture
def tiny(tmp_path):
    written = write_tiny(tmp_path)
    written.add("\n[evaluation]\nshare = 0.25\nsplits = 2\n")
    return written


def test_a_study_with_splits_goes_all_the_way(tiny):
    tiny.edit('"Tiny"', f'"{LONG_NAME}"')
    assert "Ready" in tiny.check().out
    shown = fedopl("preview", tiny.study, tiny.clients / "north", "--brief").out
    assert shown.count("── SumScores") == 2
    assert "═══ once more, under split 2 of 2" in shown
    assert shown.count("── Describe") == 1  # of the policy in hand alone
    done = tiny.run()
    assert done.code == 0
    assert "would have said" in done.out
    listed = fedopl("ledger", tiny.clients / "north", "--lifetime").out
    assert "studies: 2 of 20 answered" in listed
    assert f"{LONG_NAME} " in listed
    assert "…" not in listed
    # A saved policy is valued on the first split alone, in a study of its own.
    valued = fedopl("evaluate", tiny.out, "--study", tiny.study, "--clients", tiny.clients)
    assert valued.code == 0
    assert "medians over" not in valued.out
    listed = fedopl("ledger", tiny.clients / "north", "--lifetime").out
    assert "studies: 3 of 20 answered" in listed


def test_what_is_previewed_leaves_and_nothing_else(tiny):
    shown = fedopl("preview", tiny.study, tiny.clients / "north", "--json").json()
    found = tiny.run("--json").json()
    assert [left["split"] for left in shown] == [1] * 8 + [2] * 5
    assert found["exchanges"] == len(shown)
    assert found["splits"]["number"] == 2


def test_check_says_which_split_too_many_there_are_and_what_to_raise(tiny):
    tiny.edit('file = "data.csv"', 'file = "data.csv"\n[limits]\nstudies = 1', tiny.settings())
    done = tiny.check()
    assert "would refuse Enrol (TOO_MANY_STUDIES)" in done.out
    assert "'studies', toward which each split of the rows counts" in done.out


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("splits = 0", "1"),
        ("splits = 101", "100"),
        ("splits = 2\nshare = 0", "no rows are held out"),
        ('splits = 2\n\n[policy]\nkind = "finite"', "another candidate"),
        ("splits = 2\n\n[joining]\ndiagnose = true", "joining is judged under one split"),
    ],
)
def test_what_cannot_be_is_named_with_its_line(tiny, setting, said):
    tiny.edit("share = 0.25\nsplits = 2", setting)
    done = tiny.check()
    assert done.code != 0
    assert re.search(rf"study\.toml, line \d+.*splits.*{said}", done.text, re.DOTALL)


def test_the_studies_of_splits_are_named_after_the_first(tiny):
    study, _ = read_study(tiny.study)
    assert [one.name for one in split_studies(study)] == ["Tiny", "Tiny, split 2"]
