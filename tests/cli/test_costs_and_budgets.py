"""A study file with costs, through the command line."""

import json

from tiny_study import fedopl, rows, write_csv

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
    assert "action.costs.new: 'new' costs 'living', which is no feature with numbers" in done.err


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
