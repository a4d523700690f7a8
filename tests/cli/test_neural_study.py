"""A study file that asks for a network: every verb copes, and says nothing false of it."""

import csv
import re

import numpy as np
import pytest

from tiny_study import fedopl, rows, write_csv, write_tiny

NEURAL = """
[policy]
kind = "neural"

[neural]
hidden = [16, 16]
rounds = 6
patience = 3
rate = 0.01
"""
# Three clients that trust the server, so that a small study learns.
TRUSTING = """\
[data]
file = "data.csv"
[limits]
parameter_share = 100.0
"""


def table_of(seed, *, deep, n_rows=1200):
    rng = np.random.default_rng(seed)
    age, severity = rng.normal(60, 9, n_rows), rng.normal(0, 1, n_rows)
    alone, new = rng.random((2, n_rows)) < 0.5
    effect = np.sign((age - 60) * severity * (alone - 0.5)) if deep else severity
    gain = 10 + 2 * new * effect + rng.normal(0, 0.5, n_rows)
    return {
        "age": age.round(3),
        "severity": severity.round(3),
        "living": ["alone" if flag else "with others" for flag in alone],
        "arm": ["new" if flag else "usual" for flag in new],
        "gain": gain.round(3),
    }


def neural_study(folder, *, deep):
    tiny = write_tiny(folder)
    tiny.study.write_text(tiny.study.read_text() + NEURAL)
    for seed, name in enumerate(("north", "south", "west")):
        write_csv(tiny.table(name), table_of(seed, deep=deep))
        tiny.settings(name).write_text(TRUSTING)
    return tiny


@pytest.fixture(scope="module")
def deep(tmp_path_factory):
    tiny = neural_study(tmp_path_factory.mktemp("deep") / "tiny", deep=True)
    done = tiny.run()
    assert (done.code, done.err) == (0, "")
    assert "The learned policy beats the best constant arm" in done.out
    return tiny


def page_of(tiny):
    return (tiny.out / "report.html").read_text()


def test_the_page_shows_curves_and_that_they_are_not_all(deep):
    page = page_of(deep)
    assert "A network beside it was trained in rounds" in page
    assert "Loss of the network on rows kept back" in page
    assert "which is not shown here" in page
    assert "which has no weights to read" in page
    assert "All weights as a table" not in page  # those of the linear part would not be true of it
    assert "weights of the network" in page  # among what was disclosed
    said = fedopl("explain", deep.out).out
    share = float(said.split("accounts for ")[1].split(" %")[0])
    assert share < 30  # the effect is of three features at once, so no curve can show it


def test_the_page_shows_how_the_linear_policy_was_solved_that_training_began_with(deep):
    page = page_of(deep)
    (row,) = re.findall(r"<tr>(?:(?!</tr>).)*>precision<.*?</tr>", page, re.DOTALL)
    assert "auto" in row
    assert "rows" not in row
    assert "Its precision, rows, is not read for this kind of policy" in page


def test_nothing_is_claimed_about_joining_where_own_policies_are_simpler(deep):
    said = fedopl("diagnose", deep.out)
    assert "their difference is not what joining brings" in " ".join(said.text.split())
    assert "the linear policy the client would learn from its own rows alone" in page_of(deep)


def test_without_its_run_only_the_linear_part_is_shown_and_said_to_be_that(deep):
    said = fedopl("explain", deep.out / "policy.json").out
    assert "The linear part alone, which does not decide" in said


def test_it_decides_and_is_exported_and_previewed(deep, tmp_path):
    write_csv(tmp_path / "new.csv", rows(seed=9))
    out = tmp_path / "decided.csv"
    assert fedopl("decide", deep.out, tmp_path / "new.csv", "--out", out).code == 0
    with out.open(newline="") as file:
        assert {row["action"] for row in csv.DictReader(file)} == {"usual", "new"}
    for to, code in (("python", 0), ("sql", 1)):
        path = tmp_path / f"policy.{to}"
        assert fedopl("export", deep.out, "--to", to, "--out", path).code == code
    preview = fedopl("preview", deep.study, deep.clients / "north")
    assert "TrainNetwork → TrainedNetwork" in preview.text
    assert "TrainNetwork 6" in fedopl("ledger", deep.clients / "north", "--lifetime").text


def test_where_the_linear_policy_was_kept_the_page_says_so(tmp_path):
    tiny = neural_study(tmp_path / "tiny", deep=False)
    assert tiny.run().code == 0
    page = page_of(tiny)
    assert "so the linear policy was kept as it is" in page
    assert "the linear policy that training began with decides alone" in page
    assert "'usual' over 'new' is favoured by lower severity" in fedopl("explain", tiny.out).out
    assert "their difference is not what joining brings" not in page


def test_check_has_nothing_against_it(tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    tiny.study.write_text(tiny.study.read_text() + NEURAL)
    done = fedopl("check", tiny.study, "--clients", tiny.clients)
    assert "Ready: the study can run with these clients." in done.out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NEURAL.replace("[16, 16]", "[]"), "neural.hidden"),
        (NEURAL.replace('"neural"', '"linear"'), "the policy is linear, not a neural one"),
        (NEURAL.replace('"neural"\n', '"neural"\noracle = "wap"\n'), "a network is trained from"),
        (NEURAL + '[mixture]\nkind = "minimax"\n', "find them with a linear policy first"),
        (NEURAL + "[joining]\ndiagnose = true\n", "judge it with a linear policy"),
    ],
    ids=["no layers", "another kind", "an oracle", "minimax", "diagnose"],
)
def test_what_does_not_fit_is_refused_in_the_files_own_words(text, said, tmp_path):
    tiny = write_tiny(tmp_path / "tiny")
    tiny.study.write_text(tiny.study.read_text() + text)
    done = fedopl("check", tiny.study, "--clients", tiny.clients)
    assert done.code == 1
    assert said in done.err
    assert "study.toml" in done.err
