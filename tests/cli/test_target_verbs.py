"""A site without outcomes, from study.toml to the report."""

import json

import pytest

import fedopl as library
from fedopl.report.page import render
from tiny_study import CLIENT, NAMES, fedopl, rows, write_csv, write_tiny

pytestmark = pytest.mark.usefixtures("without_figures")

TARGET = '\n[target]\nclient = "new"\n'


def write_all(folder):
    """Three clients and a fourth whose table has contexts only."""
    tiny = write_tiny(folder)
    for seed, name in enumerate(NAMES):
        write_csv(tiny.table(name), rows(240, seed=seed))
    folder = tiny.clients / "new"
    folder.mkdir()
    tiny.settings("new").write_text(CLIENT)
    table = rows(300, seed=9)
    table["age"] = [f"{float(age) + 3:.2f}" for age in table["age"]]
    write_csv(tiny.table("new"), without_outcomes(table))
    tiny.add(TARGET)
    return tiny


@pytest.fixture
def tiny(tmp_path):
    return write_all(tmp_path)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """The same after a run, and what that said."""
    tiny = write_all(tmp_path_factory.mktemp("target"))
    return tiny, tiny.run()


def without_outcomes(table):
    return {name: cells for name, cells in table.items() if name not in ("arm", "gain")}


def test_check_says_who_the_target_is_and_runs_as_it_will(tiny):
    done = tiny.check()
    assert done.code == 0, done.text
    assert "── new: the target, 300 rows of 3 features alone" in done.out
    assert "Ready" in done.out


def test_a_run_says_what_the_policy_is_worth_there(ran):
    tiny, done = ran
    assert done.code == 0, done.text
    assert "At 'new', which has contexts only, the policy is worth" in done.out
    run = library.load_run(tiny.out)
    assert run.target.values["learned"].standard_error > 0
    assert json.loads((tiny.out / "target.json").read_text())["client"] == "new"
    page = render(run)
    for words in (
        "What it is worth at new",
        "What each source says",
        "Whether sources have seen such people",
        "Its price is a skewness of",
    ):
        assert words in page
    assert set(run.mixture) == set(NAMES)


def test_a_run_as_json_has_it_too(tiny):
    told = tiny.run("--json").json()["target"]
    assert told["client"] == "new"
    low, high = told["values"]["learned"]["interval"]
    assert low < told["values"]["learned"]["value"] < high
    assert [one["client"] for one in told["sources"]] == list(NAMES)


def test_decide_works_on_the_targets_table(ran):
    tiny, _ = ran
    out = tiny.folder / "decided.csv"
    done = fedopl("decide", tiny.out, tiny.table("new"), "--out", out)
    assert done.code == 0, done.text
    assert len(out.read_text().splitlines()) == 301


@pytest.mark.parametrize("name", ["new", "north"])
def test_preview_shows_what_would_leave(tiny, name):
    done = fedopl("preview", tiny.study, tiny.clients / name, "--json")
    assert done.code == 0, done.text
    asked = [one["query"] for one in done.json()]
    if name == "new":
        assert asked == ["TellContexts", "ValueAtTarget"]
        means = done.json()[0]["means"]
        assert means["labels"] == [["age", "severity", "living=alone", "intercept"]]
    else:
        assert asked[-1] == "ValueAtTarget"
        assert "TellContexts" not in asked


def test_evaluate_values_other_policies_without_asking_the_target(ran):
    tiny, _ = ran
    policy, study = tiny.out / "policy.json", tiny.folder / "held-out.toml"
    study.write_text(f"{tiny.study.read_text()}\n[evaluation]\nshare = 0.25\n")
    done = fedopl("evaluate", policy, "--study", study, "--clients", tiny.clients)
    assert done.code == 0, done.text
    assert "TellContexts" not in done.text
    assert "Nothing is said of 'new', which has contexts only" in done.out


def test_compare_has_the_value_at_the_target(ran, tmp_path):
    tiny, _ = ran
    (tmp_path / "again").symlink_to(tiny.out)
    done = fedopl("compare", tiny.out, tmp_path / "again")
    assert done.code == 0, done.text
    assert "value at new" in done.out
    found = library.load_run(tiny.out).target.values["learned"].value
    assert f"{found:.4g} (" in done.out
    told = fedopl("compare", tiny.out, tmp_path / "again", "--json").json()["runs"]
    assert {one["at_target"]["value"] for one in told.values()} == {found}


def test_where_nobody_is_the_report_says_so_first(tiny):
    table = rows(300, seed=9)
    table["age"] = [f"{float(age) + 60:.2f}" for age in table["age"]]
    write_csv(tiny.table("new"), without_outcomes(table))
    done = tiny.run()
    assert done.code == 0, done.text
    assert "nothing is claimed about the policy's value" in done.out
    assert "has people whom hardly any source has seen" in done.out
    assert "has people whom hardly any source has seen" in render(library.load_run(tiny.out))


# --- all sources together -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def joint(tmp_path_factory):
    """A run in which weights are found for all sources together, and what it said."""
    tiny = write_all(tmp_path_factory.mktemp("joint"))
    for seed, name in enumerate(NAMES):
        write_csv(tiny.table(name), rows(900, seed=seed))
    tiny.edit(TARGET, f'{TARGET}balance = "joint"\n')
    return tiny, tiny.run("--json")


def test_a_run_finds_weights_for_all_sources_together(joint):
    tiny, done = joint
    told = done.json()["target"]
    assert told["balance"] == "joint"
    assert 1 <= told["n_steps"] <= 8
    assert sum(one["share"] for one in told["sources"] if one["used"]) == pytest.approx(1.0)
    run = library.load_run(tiny.out)
    assert run.target.values["learned"].standard_error > 0
    assert "of all sources together" in render(run)


def test_preview_shows_what_would_leave_at_each_step(joint):
    tiny, _ = joint
    there = fedopl("preview", tiny.study, tiny.clients / "new", "--json")
    assert [one["query"] for one in there.json()] == ["TellContexts", "ValueAtTarget"]
    done = fedopl("preview", tiny.study, tiny.clients / "north", "--json")
    assert done.code == 0, done.text
    asked = [one["query"] for one in done.json()]
    assert asked[-1] == "ValueAtTarget"
    first = next(one for one in done.json() if one["query"] == "BalanceContexts")
    features = ["age", "severity", "living=alone"]
    assert first["means"]["labels"] == [[*features, *(f"{name}²" for name in features)]]


# --- mistakes -----------------------------------------------------------------------------------


def test_a_table_without_outcomes_is_for_the_target_alone(tiny):
    write_csv(tiny.table("north"), without_outcomes(rows(200)))
    done = tiny.run()
    assert done.code == 1
    assert "north" in done.err
    assert "arm" in done.err


def test_columns_of_outcomes_at_the_target_are_left_alone(tiny):
    table = rows(300, seed=9)
    table["gain"] = ["not a number"] * 300
    write_csv(tiny.table("new"), table)
    assert tiny.run().code == 0


MISTAKES = {
    "nobody": ('client = "nobody"', "line 20: target.client: 'nobody' is not among the clients"),
    "unknown key": ('client = "new"\nrows = 3', "rows"),
    "unknown balance": ('client = "new"\nbalance = "both"', "balance"),
    "too low": ('client = "new"\nleast_rows = 3', "least_rows"),
    "empty": ('client = ""', "client"),
}


@pytest.mark.parametrize(("section", "said"), MISTAKES.values(), ids=MISTAKES)
def test_a_section_that_cannot_be_is_refused_with_its_line(tiny, section, said):
    tiny.edit(TARGET, f"\n[target]\n{section}\n")
    done = tiny.check()
    assert done.code == 1
    assert done.err.count("study.toml") == 1
    assert said in done.err


def test_a_target_lacks_no_feature(tiny):
    table = without_outcomes(rows(300, seed=9))
    del table["severity"]
    write_csv(tiny.table("new"), table)
    done = tiny.run()
    assert done.code == 1
    assert "severity" in done.err
    assert "new/data.csv" in done.err


def test_missing_values_of_a_target_are_refused_unless_the_study_drops_them(tiny):
    table = without_outcomes(rows(300, seed=9))
    table["severity"][4] = ""
    write_csv(tiny.table("new"), table)
    done = tiny.run()
    assert done.code == 1
    assert "missing values in 1 of 300 rows (by column: 'severity' 1)" in done.err
    tiny.add('\n[rows]\nmissing = "drop"\n')
    assert tiny.run().code == 0
    assert library.load_run(tiny.out).target.n_rows == 299


def test_a_target_of_few_rows_is_a_problem_that_check_finds(tiny):
    write_csv(tiny.table("new"), without_outcomes(rows(12, seed=9)))
    done = tiny.check()
    assert done.code == 1
    assert "has 12 rows; means and squares of 3 features need 14 of a target" in done.out


def test_a_private_study_has_no_target(tiny):
    tiny.add("\n[privacy]\nepsilon = 4\noutcome = [0, 20]\n")
    done = tiny.check()
    assert done.code == 1
    assert "leave [target]" in done.err
