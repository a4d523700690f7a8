"""A study file with costs, through the command line."""

import json

import numpy as np
import pytest

from tiny_study import fedopl, rows, write_csv

pytestmark = pytest.mark.usefixtures("without_figures")

COSTS = '\n[action.costs]\nnew = "severity"\n'


def _with_costs(tiny, costs=COSTS):
    study = tiny.study.read_text(encoding="utf-8")
    tiny.study.write_text(study.replace("\n[features]", f"{costs}\n[features]"), encoding="utf-8")


def test_a_run_with_costs_says_that_values_are_net(tiny):
    _with_costs(tiny)
    done = fedopl("run", tiny.study, "--clients", tiny.clients, "--out", tiny.out)
    assert done.code == 0, done.text
    assert "net of costs per decision: 'new' costs what 'severity' says" in done.out
    kept = json.loads((tiny.out / "study.json").read_text(encoding="utf-8"))
    assert kept["costs"] == {"by_action": {"new": "severity"}, "unit": None}
    # What new brings, severity less two, is below what it costs: nobody should get it.
    assert "everybody gets usual" in done.out


def test_mistakes_in_costs_are_named_with_their_line(tiny):
    _with_costs(tiny, '\n[action.costs]\nnew = "living"\n')
    done = fedopl("run", tiny.study, "--clients", tiny.clients, "--out", tiny.out)
    assert done.code != 0
    assert "study.toml, line " in done.err
    assert "action.costs.new: 'new' costs 'living', which is not a feature with numbers" in done.err


def _with_budget(tiny):
    for seed, name in enumerate(("north", "south", "west")):
        write_csv(tiny.table(name), rows(n_rows=600, seed=seed))
    _with_costs(
        tiny, '\ncost_unit = "euros"\n\n[action.costs]\nnew = 1.0\n\n[budget]\nmost = 0.2\n'
    )


def test_a_run_keeps_to_its_budget_and_another_asks_nobody(tiny):
    _with_budget(tiny)
    done = fedopl("run", tiny.study, "--clients", tiny.clients, "--out", tiny.out, "--json")
    assert done.code == 0, done.text
    found = done.json()["budget"]
    assert found["spending"]["value"] <= 0.2001
    assert found["against"] == "usual"
    assert 0.2 < found["what_was_done_spends"] < 0.8
    assert found["dearer"] is None
    assert "Within the budget, at most 0.2 euros per decision" in done.json()["verdict"]
    other = tiny.folder / "other.json"
    asked = ("budget", tiny.out, "--most", "0.4", "--save", other)
    told = fedopl(*asked)
    assert told.code == 0, told.text
    assert "With a budget of 0.4 the policy gains" in told.out
    assert "drawing lots for 'new'" in told.out
    as_json = fedopl(*asked, "--json").json()
    assert as_json["gain"]["value"] > found["gain"]["value"]
    decided = fedopl("decide", other, tiny.table(), "--out", tiny.folder / "decided.csv")
    assert decided.code == 0, decided.text
    refused = fedopl("budget", tiny.out, "--most", "-1")
    assert "budget: expected a number above 0, came -1" in refused.err


def test_a_budget_is_spent_on_the_rows_of_a_table(tiny):
    _with_budget(tiny)
    done = fedopl("run", tiny.study, "--clients", tiny.clients, "--out", tiny.out)
    assert done.code == 0, done.text
    for most in ("0.1", "0.35"):
        asked = ("decide", tiny.out, tiny.table(), "--out", tiny.folder / "decided.csv")
        told = fedopl(*asked, "--budget", most, "--json").json()
        assert float(most) - 1 / 600 < told["spending"] <= float(most)
        assert told["counts"]["new"] == round(600 * told["spending"])
    header, *lines = (tiny.folder / "decided.csv").read_text(encoding="utf-8").splitlines()
    assert header.endswith("action,score: usual,score: new,cost,margin,rank")
    assert sum(line.split(",")[-3] == "1" for line in lines) == told["counts"]["new"]
    # Scores are not less a price: who gets the new drug are those who gain most by it.
    gains = np.array([_gain(line) for line in lines])
    treated = np.array(["new" in line.split(",")[-6:-5] for line in lines])
    assert gains[treated].min() >= gains[~treated].max()
    enough = fedopl(*asked, "--budget", "5", "--json").json()
    assert enough["counts"]["new"] == np.count_nonzero(gains > 0)


def _gain(line):
    usual, new = line.split(",")[-5:-3]
    return float(new) - float(usual)


def test_a_budget_for_a_table_needs_costs_and_a_run(tiny):
    _with_budget(tiny)
    done = fedopl("run", tiny.study, "--clients", tiny.clients, "--out", tiny.out)
    assert done.code == 0, done.text
    table = tiny.table()
    said = {
        (
            tiny.out / "policy.json",
            "0.2",
        ): "is a policy without its run; name the folder of the run",
        (tiny.out, "-1"): "budget: expected a number above 0, came -1",
        (tiny.out, "0"): "budget: expected a number above 0, came 0",
    }
    for (path, most), expected in said.items():
        refused = fedopl("decide", path, table, "--budget", most)
        assert refused.code != 0
        assert expected in refused.err
    both = fedopl("decide", tiny.out, table, "--budget", "0.2", "--places", "new=3")
    assert "say either what may be spent, or how many places there are" in both.err


def test_a_tree_keeps_to_a_budget_of_a_study_file(tiny):
    _with_budget(tiny)
    with tiny.study.open("a", encoding="utf-8") as study:
        study.write('\n[policy]\nkind = "tree"\n\n[tree]\nbins = 8\n')
    done = fedopl("run", tiny.study, "--clients", tiny.clients, "--out", tiny.out)
    assert done.code == 0, done.text
    assert "Within the budget, at most 0.2 euros per decision" in done.out
    told = fedopl("budget", tiny.out, "--most", "0.4", "--save", tiny.folder / "tree.json")
    assert told.code == 0, told.text
    decided = ("decide", tiny.folder / "tree.json", tiny.table(), "--out", tiny.folder / "d.csv")
    assert fedopl(*decided).code == 0
    filled = fedopl("decide", tiny.out, *decided[2:], "--budget", "0.3", "--json")
    assert filled.code == 0, filled.text
    assert filled.json()["spending"] <= 0.3
