"""Benchmarks run, keep what a reader needs, and the page is made from what they kept."""

import contextlib
import importlib
import io
import json
import math
import re
import runpy
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import fedopl

ROOT = Path(__file__).parents[1]
HERE = ROOT / "benchmarks"
RESULTS = sorted((HERE / "results").glob("*.json"))


@pytest.fixture
def module(monkeypatch):
    """A function that imports a module of the benchmarks."""
    monkeypatch.syspath_prepend(HERE)
    return importlib.import_module


TRIED = ["kernels", "scores", "wide", "grids", "clients", "federation", "memory"]
TRIED += ["crowds", "plans", "grouped_plans", "policies", "budgets", "intervals"]
TRIED += ["privacy", "secure", "busy"]


@pytest.fixture
def script(module, monkeypatch, tmp_path):
    """A function that runs a script here, and what it would measure in processes of their own.

    What a script prints comes back. Its numbers mean nothing, as other tests left their memory.
    Peers are absent, even if they are installed.
    """
    monkeypatch.setattr(module("harness"), "PEERS", tmp_path / "no peers")

    def run(path, *arguments):
        monkeypatch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            runpy.run_path(str(path), run_name="__main__")
        return printed.getvalue()

    def in_child(path, *arguments, python="", **_environment):
        assert not python
        return json.loads(run(path, "--measure", *arguments).splitlines()[-1])

    monkeypatch.setattr(module("harness"), "in_child", in_child)
    return run


SLOWEST = ("budgets", "grids", "grouped_plans", "policies")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow_law if name in SLOWEST else ()) for name in TRIED],
)
def test_a_script_can_be_tried_in_seconds(script, name, tmp_path):
    printed = script(HERE / f"{name}.py", "--quick", "--out", tmp_path)
    check(json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8")))
    assert printed.startswith("| ")


def test_a_script_measures_in_a_process_of_its_own(tmp_path):
    command = [sys.executable, HERE / "stages.py", "--quick", "--out", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    check(json.loads((tmp_path / "stages.json").read_text(encoding="utf-8")))
    assert done.stdout.startswith("| ")


def test_peers_that_are_absent_are_reported(module, tmp_path, monkeypatch):
    peers, harness = module("peers"), module("harness")
    monkeypatch.setattr(harness, "PEERS", tmp_path)
    (tmp_path / "obp.absent").write_text("absent: it does not compile\n")
    asked = ("fedopl", "X.T @ X", "obp, IPW", "econml, linear DR")
    monkeypatch.setattr(peers, "METHODS", {name: peers.METHODS[name] for name in asked})
    rows = {row["method"]: row for row in peers.measure(2_000, turns=1)}
    assert rows["obp, IPW"]["note"] == "absent: it does not compile"
    assert rows["econml, linear DR"]["note"].startswith("absent: ")
    assert rows["fedopl"]["regret"] < 0.1
    assert rows["fedopl"]["median"] > 0
    assert harness.peer_versions()["econml"].startswith("absent: ")


def test_methods_are_compared_on_the_same_draws(module):
    policies = module("policies")
    rows = [
        {"method": "fedopl", "world": "linear", "rows": 500, "regrets": [0.2, 0.4]},
        {"method": "fedopl, linear", "world": "linear", "rows": 500, "regrets": [0.1, 0.3]},
        {"method": "obp", "world": "linear", "rows": 500, "note": "absent: not installed"},
    ]
    default, linear, absent = policies.compared(rows)
    assert (default["regret"], default["error"]) == pytest.approx((0.3, 0.1))
    assert (default["times"], linear["times"]) == pytest.approx((1.5, 1.0))
    assert (linear["beyond"], linear["beyond_error"]) == pytest.approx((-0.1, 0.0))
    assert "regret" not in absent
    first, second, nothing = policies.summed_up(rows)
    assert first["linear"] == first["best_worst"] == pytest.approx(1.5)
    assert (second["best"], second["linear_where"]) == (1.0, "linear")
    assert "best" not in nothing


def test_what_is_measured_again_stands_beside_what_was_kept(module):
    policies = module("policies")
    kept = [
        {"method": "fedopl", "world": "linear", "rows": 500, "regrets": [0.2, 0.4]},
        {"method": "fedopl, linear", "world": "linear", "rows": 500, "regrets": [0.1, 0.3]},
    ]
    anew = [
        {"method": "new", "world": "linear", "rows": 500, "regrets": [0.3, 0.3]},
        {"method": "fedopl", "world": "linear", "rows": 500, "regrets": [0.1, 0.1]},
    ]
    default, linear, new = policies.beside_kept(anew, kept)
    assert (default["regret"], linear["regret"]) == pytest.approx((0.1, 0.2))
    assert (default["times"], linear["times"]) == pytest.approx((1.0, 2.0))
    assert linear["beyond"] == pytest.approx(0.1)
    assert (new["method"], new["times"]) == ("new", pytest.approx(3.0))


def test_cells_that_a_command_does_not_measure_stay_with_their_command(script, tmp_path):
    def measured(world):
        script(
            HERE / "intervals.py", "--quick", "--worlds", world, "--draws", "1", "--out", tmp_path
        )
        return json.loads((tmp_path / "intervals.json").read_text(encoding="utf-8"))

    of_one = measured("steps")
    assert of_one["command"].endswith("--worlds steps --draws 1")
    of_both = measured("linear")
    rows = of_both["tables"][0]["rows"]
    assert [row["world"] for row in rows[::3]] == ["linear", "steps"]
    assert rows[3:] == [row | {"command": of_one["command"]} for row in of_one["tables"][0]["rows"]]
    assert of_both["command"].split("\n    ") == [of_one["command"], rows[0]["command"]]
    again = measured("steps")
    assert [row["world"] for row in again["tables"][0]["rows"][::3]] == ["linear", "steps"]
    assert again["command"].split("\n    ") == [rows[0]["command"], of_one["command"]]


def test_a_script_is_told_which_worlds_and_methods_and_keeps_it(script, tmp_path):
    chosen = ["--worlds", "poor-overlap", "--sizes", "90", "--draws", "1"]
    told = [*chosen, "--methods", "boosted T-learner", "--out", tmp_path]
    script(HERE / "policies.py", *told)
    kept = json.loads((tmp_path / "policies.json").read_text(encoding="utf-8"))
    assert kept["command"].endswith(
        "--worlds poor-overlap --sizes 90 --methods 'boosted T-learner' --draws 1"
    )
    (row,) = kept["tables"][1]["rows"]
    assert (row["world"], row["rows"], row["method"]) == ("poor-overlap", 90, "boosted T-learner")
    assert 0 <= row["regret"] < 2


def test_boosted_scores_come_from_models_of_other_rows(module):
    methods = module("policy_methods")
    rng = np.random.default_rng(0)
    contexts, actions = rng.standard_normal((300, 2)), rng.integers(0, 2, 300)
    logs = methods.Logs(contexts, actions, rng.standard_normal(300), actions, 2, contexts)
    before = methods.boosted_nuisances(logs).means
    changed = logs.rewards.copy()
    changed[7] += 100
    after = methods.boosted_nuisances(logs._replace(rewards=changed)).means
    assert (after[7] == before[7]).all()
    assert (after != before).any()


def test_an_interval_holds_what_lies_in_it_and_says_how_far_it_is_off(module):
    intervals = module("intervals")
    estimate = fedopl.Estimate(value=1.0, standard_error=0.1, n_rows=999, degrees_of_freedom=998)
    inside, beside = (intervals.Said("value", estimate, truth) for truth in (0.9, 0.7))
    assert (inside.held, beside.held) == (True, False)
    assert (inside.off, beside.off) == pytest.approx((1, 3))
    found = intervals.summed_up([inside, beside])
    assert (found["held"], found["off"]) == pytest.approx((50, 2))
    assert found["half"] == pytest.approx(0.196, abs=1e-3)


def test_sampled_steps_are_accounted_as_those_of_all_rows_and_as_by_others(module, monkeypatch):
    from fedopl.privacy.accountant import delta_at

    peers = module("privacy_peers")
    # By dp-accounting 0.6.0, from_gaussian_mechanism(5.379, sampling_prob=0.1), 150 times.
    assert 1 <= peers.delta_of_sampled(5.379, 150, 1.0) / 9.3384e-07 < 1.1
    monkeypatch.setattr(peers, "SAMPLED", 1.0)
    assert 1 <= peers.delta_of_sampled(50.0, 150, 1.0) / delta_at(1.0, math.sqrt(150) / 50) < 1.1


def check(result):
    """What every file of results has."""
    assert result["command"].startswith("python benchmarks/")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", result["date"])
    assert result["machine"]["processor"]
    assert all(table["rows"] for table in result["tables"])


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_kept_results_say_how_they_were_made(path):
    text = path.read_text(encoding="utf-8")
    check(json.loads(text))
    assert "--quick" not in text


def test_the_page_is_made_from_what_was_kept(module):
    readme = module("readme")
    # If not: python benchmarks/readme.py
    assert (HERE / "README.md").read_text(encoding="utf-8") == readme.page()
    assert {path.stem for path in RESULTS} <= set(readme.SECTIONS)


def test_the_makefile_runs_every_script(module):
    said = re.search(r"^SCRIPTS := (.+)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    assert set(said) == set(module("readme").SECTIONS)


def test_the_same_results_give_the_same_charts(module, tmp_path):
    charts = module("charts")
    drawn = []
    for turn in range(2):
        folder = tmp_path / str(turn)
        folder.mkdir()
        for path in RESULTS:
            (folder / path.name).write_bytes(path.read_bytes())
        charts.draw_all(folder)
        drawn.append({path.name: path.read_bytes() for path in folder.glob("*.svg")})
    assert drawn[0] == drawn[1]
    assert set(drawn[0]) == {path.name for path in (HERE / "results").glob("*.svg")}


def test_spread_tells_the_median_and_both_ends(module):
    found = module("harness").spread([3.0, 1.0, 2.0, 9.0, 4.0])
    assert found == {"median": 3.0, "least": 1.0, "most": 9.0, "repeats": 5}


def test_methods_take_turns_and_the_first_turn_does_not_count(module):
    told = []

    def note(name):
        told.append(name)
        return name

    ways = {name: partial(note, name) for name in "ab"}
    found = module("harness").in_turns(ways, 5)
    assert told == ["a", "b"] * 6
    assert len(found["a"].seconds) == len(found["b"].cpu) == 5
    assert found["b"].result == "b"


def test_cells_have_so_many_digits_and_notes_stand_where_numbers_miss(module):
    readme = module("readme")
    columns = [{"cell": "{name}"}, {"cell": "{x:~3}"}, {"cell": "{y:~2} s"}]
    assert readme.cells_of({"name": "a", "x": 1234.5, "y": 0.00123}, columns) == [
        "a",
        "1,234",
        "0.0012 s",
    ]
    assert readme.cells_of({"name": "a", "note": "absent"}, columns) == ["a", "absent", ""]
