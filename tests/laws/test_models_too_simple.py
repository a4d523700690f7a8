"""Where linear models and logistic propensities are both wrong, nothing is said with certainty."""

import json
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import fedopl
from fedopl.cli.run_summary import say_run
from fedopl.engines.runs import compare_runs
from fedopl.messages.evaluation.model_fit import FIT_NUMBERS
from fedopl.report.cautions import cautions
from fedopl.report.joining.advising import joining_facts
from fedopl.report.joining.joining_json import joining_json
from fedopl.report.page import render
from fedopl.report.parts import Folded, Table, as_text
from fedopl.report.recommending import key_figures, recommend
from fedopl.report.sections.held_out_values import held_out_values
from fedopl.report.sections.joining import joining_parts
from fedopl.report.sections.resting_on_clients import resting_on_clients
from fedopl.results.model_doubts import action_fits, doubted
from fedopl.results.value_tables import ValueTable

N_CLIENTS = 5


def world(kind, seed, n_rows=400):
    """A client whose outcomes bend, unless `kind` is linear, and how its actions were decided."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, 6)) + 0.2 * rng.standard_normal(6)
    x[:, 5] = rng.random(n_rows) < 0.4
    base = np.sin(2 * x[:, 0]) + 0.6 * x[:, 1] ** 2 - 0.5 * x[:, 0] * x[:, 2]
    effect = np.sin(1.5 * x[:, 3]) + 0.8 * x[:, 4] ** 2 - 0.8 + 0.4 * x[:, 0] * x[:, 1]
    # What was done followed what was good for people, as it does where somebody decides.
    odds = np.sin(2 * x[:, 0]) + 0.7 * x[:, 1] ** 2 - 0.7 - 0.5 * x[:, 0] * x[:, 2]
    odds += 0.5 * (x[:, 4] ** 2 - 1)
    if kind == "linear":
        base, effect, odds = x[:, 0] - 0.5 * x[:, 1], 0.6 * x[:, 2] - 0.1, x[:, 0]
    elif kind == "randomised":
        odds = np.zeros(n_rows)
    elif kind == "logistic":
        odds = 0.6 * x[:, 0] - 0.4 * x[:, 1]
    chances = np.clip(1 / (1 + np.exp(-1.2 * odds)), 0.05, 0.95)
    actions = (rng.random(n_rows) < chances).astype(int)
    rewards = base + effect * actions + rng.standard_normal(n_rows)
    return fedopl.LoggedData(x, actions, rewards, action_names=["usual", "new"])


def clients(kind, seed):
    return {f"site {c}": world(kind, 100 * seed + c) for c in range(N_CLIENTS)}


@pytest.mark.parametrize(("seed", "limits"), [(0, "open"), (1, "guarded")])
def test_models_that_are_too_simple_are_noticed_and_nothing_is_recommended(seed, limits):
    run = fedopl.learn(clients("both bend", seed), basis="linear", limits=limits)
    titles = [one.title for one in cautions(run)]
    assert titles[0] == "The models are too simple"
    assert recommend(run).tone == "nothing"
    page = render(run)
    assert "Use the learned policy" not in page
    assert "Do the models fit?" in page
    figures = [what for what, _, _ in key_figures(run)]
    assert figures == ["Clients", "Rows learned from", "Rows valued, fold by fold"]


@pytest.mark.parametrize("kind", ["linear", "randomised", "logistic"])
@pytest.mark.parametrize("seed", range(3))
def test_one_right_model_is_enough_for_there_to_be_no_doubt(kind, seed):
    plan = fedopl.NuisancePlan(propensity="logistic")
    run = fedopl.learn(clients(kind, seed), basis="linear", nuisances=plan)
    assert not doubted(run)
    assert "The models are too simple" not in [one.title for one in cautions(run)]


def test_what_richer_models_change_is_what_the_value_is_wrong_by():
    """Over many rows, so that chance is small beside what models miss."""
    run, wrong_by = many_rows("logistic")
    (usual, _new) = action_fits(run)
    assert abs(wrong_by) > 0.2
    assert abs(wrong_by - usual.moved.value) < 0.5 * abs(wrong_by)


def test_boosted_propensities_put_right_what_logistic_ones_get_wrong():
    (_, by_logistic), (_, by_default) = many_rows("logistic"), many_rows("auto")
    assert abs(by_default) < 0.5 * abs(by_logistic)


@cache
def many_rows(propensity):
    """A run on many rows, and what it gets wrong about giving everybody what is usual."""
    clients = {f"site {c}": world("both bend", c, n_rows=4_000) for c in range(2)}
    run = fedopl.learn(
        clients, basis="linear", nuisances=fedopl.NuisancePlan(propensity=propensity)
    )
    x = np.concatenate([data.contexts for data in clients.values()])
    truth = np.mean(np.sin(2 * x[:, 0]) + 0.6 * x[:, 1] ** 2 - 0.5 * x[:, 0] * x[:, 2])
    return run, truth - run.statistics.arm_values(run.mixture)[0]


@pytest.fixture(scope="module")
def bent():
    return fedopl.learn(clients("both bend", 0), basis="linear", diagnose=True)


@pytest.fixture(scope="module")
def sound():
    return fedopl.learn(clients("linear", 0), basis="linear")


def test_a_saved_run_tells_the_same(bent, tmp_path):
    bent.save(tmp_path / "run")
    assert render(fedopl.load_run(tmp_path / "run")) == render(bent)


def claims(text):
    """Words that claim something; the first caution and tables of settings have none of them."""
    found = r"\bbeats\b|\bis better\b|\bgains \d|Joining pays|stay alone|\| better \||is worse than"
    return re.findall(found, text)


def test_no_word_of_terminal_or_programs_claims_what_models_belie(bent, capsys):
    assert bent.verdict.startswith("The models are too simple for these data, so nothing is")
    say_run(bent, None, as_json=False)
    said = capsys.readouterr().out
    assert claims(said) == []
    first, _, tables = said.partition("standard error")
    assert "more than their intervals say" in " ".join(first.split())
    assert tables
    say_run(bent, None, as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["in_doubt"] == "the models are too simple for these data"
    assert told["verdict"] == bent.verdict


def test_runs_are_compared_without_numbers_that_models_belie(bent, sound):
    found = compare_runs({"bent": bent, "sound": sound})
    bent_line, sound_line = str(found).splitlines()[2:4]
    assert bent_line.split()[:5] == ["bent", *["in", "doubt"] * 2]
    assert " to " not in bent_line
    assert " to " in sound_line
    runs = found.as_json()["runs"]
    assert (bool(runs["bent"]["in_doubt"]), runs["bent"]["value"]) == (True, None)
    assert (runs["sound"]["in_doubt"], bool(runs["sound"]["value"])) == (None, True)


def test_nothing_is_claimed_about_clients_or_joining_either(bent):
    said = as_text(joining_parts(bent))
    assert said == (
        "The models are too simple for these data, so nothing is claimed about joining."
    )
    told = joining_json(joining_facts(bent))
    assert told["why_nothing"] == said
    assert {one["decision"] for one in told["advice"].values()} == {"undecided"}
    words = {
        row[3]
        for part in held_out_values(bent).parts[1].parts
        if isinstance(part, Table) and part.headers[-1] == "In words"
        for row in part.rows
    }
    assert words == {"in doubt"}
    assert isinstance(resting_on_clients(bent).parts[1], Folded)
    assert "One client decides" not in [one.title for one in cautions(bent)]


def test_who_alone_is_in_doubt_gets_no_advice(bent, sound):
    """Where all together are in no doubt, one client may be."""
    fitted = {**sound.fitted, "site 1": bent.fitted["site 1"]}
    stretched = fitted["site 1"].numbers.copy()
    stretched[:, FIT_NUMBERS.index("moved")] = 0.5
    stretched[:, FIT_NUMBERS.index("moved_variances")] = 1e-6
    fitted["site 1"] = replace(fitted["site 1"], numbers=stretched)
    errors = [
        replace(row, estimate=replace(row.estimate, standard_error=9.0))
        if (row.policy, row.client) == (sound.chosen, "global")
        else row
        for row in sound.values.rows
    ]
    mixed = replace(sound, fitted=fitted, values=ValueTable(tuple(errors)))
    assert not doubted(mixed)
    advice = joining_facts(mixed).advice
    assert advice["site 1"].decision == "undecided"
    assert "Models do not fit its rows" in advice["site 1"].reason
    assert "too simple" not in advice["site 2"].reason
