"""What is recommended demonstrably beats what was done; nothing else is."""

import csv
from collections import Counter

import numpy as np
import pandas as pd
import pytest

import fedopl
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.report.page import render
from fedopl.report.recommending import key_figures, recommend
from fedopl.results.files.run_folder import load_record, save_record
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study

pytestmark = pytest.mark.usefixtures("without_figures")

N_STUDIES, N_OF_SEARCHES = 25, 15  # a basis that is searched for takes longer


def logged(contexts, actions, rewards, names, sign=1.0):
    return fedopl.LoggedData(contexts, actions, sign * rewards, action_names=list(names))


def rare_arms(seed, n_rows=300):
    """Four arms that next to nobody got, each a little worse than the usual one."""
    rng = np.random.default_rng(seed)
    clients = {}
    for name in ("north", "south"):
        actions = rng.choice(5, n_rows, p=[0.92, 0.02, 0.02, 0.02, 0.02])
        rewards = np.where(actions == 0, 0.5, 0.45) + rng.standard_normal(n_rows)
        clients[name] = logged(rng.standard_normal((n_rows, 3)), actions, rewards, "abcde")
    return clients


def uncommon_arms(seed, n_rows=400):
    """The same arms with rows enough to speak for them."""
    rng = np.random.default_rng(seed)
    clients = {}
    for name in ("north", "south"):
        actions = rng.choice(5, n_rows, p=[0.72, 0.07, 0.07, 0.07, 0.07])
        rewards = (rng.random(n_rows) < np.where(actions == 0, 0.5, 0.45)).astype(float)
        clients[name] = logged(rng.standard_normal((n_rows, 3)), actions, rewards, "abcde")
    return clients


def well_personalised(seed, n_rows=400):
    """Nearly everybody got what is best for them: worth .41, where any arm is worth .11."""
    rng = np.random.default_rng(seed)
    clients = {}
    for name in ("north", "south"):
        contexts = rng.standard_normal((n_rows, 4))
        best = contexts.argmax(axis=1)
        actions = np.where(rng.random(n_rows) < 0.9, best, rng.integers(0, 4, n_rows))
        rewards = (rng.random(n_rows) < np.where(actions == best, 0.44, 0.0)).astype(float)
        clients[name] = logged(contexts, actions, rewards, "abcd")
    return clients


def drawn_evenly(seed, effect, n_rows=300):
    """Three arms drawn evenly; `effect` maps contexts to what 'b' adds."""
    rng = np.random.default_rng(seed)
    clients = {}
    for name in ("north", "south", "west"):
        contexts, actions = rng.standard_normal((n_rows, 4)), rng.integers(0, 3, n_rows)
        rewards = rng.standard_normal(n_rows) + effect(contexts) * (actions == 1)
        clients[name] = logged(contexts, actions, rewards, "abc")
    return clients


def said(studies, propensity="marginal", basis="linear"):
    """How often each policy is recommended, with models that are quick to fit."""
    options = {"basis": basis, "nuisances": fedopl.NuisancePlan(propensity=propensity)}
    found = (fedopl.learn(clients, seed=seed, **options) for seed, clients in enumerate(studies))
    return Counter(recommend(run).policy for run in found)


@pytest.mark.parametrize("world", [rare_arms, uncommon_arms])
def test_an_arm_that_is_worse_than_the_past_is_recommended_in_no_more_than_one_of_twenty(world):
    counts = said(world(seed) for seed in range(N_STUDIES))
    worse = sum(counts[f"everybody gets {arm}"] for arm in "bcde")
    assert worse <= 0.05 * N_STUDIES
    assert counts["learned"] <= 0.05 * N_STUDIES


def test_where_the_past_was_well_personalised_it_is_kept():
    counts = said((well_personalised(seed) for seed in range(6)), propensity="logistic")
    assert counts["logging policy"] == 6


@pytest.mark.parametrize("n_studies", [5, pytest.param(N_OF_SEARCHES, marks=pytest.mark.slow_law)])
def test_where_nothing_has_an_effect_the_past_is_kept(n_studies):
    studies = (drawn_evenly(seed, lambda x: 0.0) for seed in range(n_studies))
    counts = said(studies, basis="auto")
    assert counts["learned"] <= 1
    assert counts["logging policy"] >= n_studies - 1


def test_a_large_effect_is_found():
    by_person = said(drawn_evenly(seed, lambda x: 1.5 * x[:, 0]) for seed in range(5))
    assert by_person["learned"] >= 4
    for_all = said(drawn_evenly(seed, lambda x: 1.0) for seed in range(5))
    assert for_all["everybody gets b"] >= 4


def test_the_evidence_on_the_page_is_of_the_policy_that_is_recommended():
    run = fedopl.learn(drawn_evenly(0, lambda x: 1.0), seed=0)
    found, tiles = run.recommendation, key_figures(run)
    gain = run.improvements.by("everybody gets b")
    assert found.policy == "everybody gets b"
    assert tiles[1][:2] == (
        "Everybody gets 'b': gain over what was done so far",
        f"+{gain.value:.2f}",
    )
    assert f"expected to gain {gain.value:.2f} reward" in found.sentence
    assert found.sentence.replace("'", "&#39;").replace(" %", "\u00a0%") in render(run)


def test_every_arm_is_valued_and_compared_with_the_past_at_one_level_for_all():
    run = fedopl.learn(drawn_evenly(1, lambda x: 0.0), seed=1)
    arms = {f"everybody gets {arm}" for arm in "abc"}
    assert arms <= {row.policy for row in run.values.rows}
    assert {row.policy for row in run.improvements.rows} == arms | {"learned"}
    assert {row.level for row in run.improvements.rows} == {1 - 0.05 / 4}


def test_where_less_is_better_every_place_shows_the_outcome_as_it_was_logged(tmp_path):
    """The report, the terminal, the table of values and JSON: one number for one quantity."""
    schema = fedopl.Schema(
        numeric=("age",), action="arm", actions=("a", "b"), reward="days", direction="lower"
    )
    study = fedopl.Study(
        name="Days in bed", actions=("a", "b"), features=schema.feature_names, table=schema
    )
    doors = {}
    for seed, name in enumerate(("north", "south")):
        rng = np.random.default_rng(seed)
        arm = rng.integers(0, 2, 300)
        days = 9 - 2.0 * arm + rng.standard_normal(300)
        columns = {"age": rng.normal(50, 9, 300), "arm": np.array(["a", "b"])[arm], "days": days}
        rows = fedopl.read_logged(pd.DataFrame(columns), schema)
        doors[name] = Door(name, rows, study, limits=fedopl.Limits.open(), secret=SEED_ALONE)
    run = run_study(Conversation(study, InProcess(doors)))
    value = run.values.of("everybody gets b")
    assert value.value == pytest.approx(7, abs=0.3)
    low, high = value.interval()
    assert low < value.value < high
    assert run.improvements.by("everybody gets b").value == pytest.approx(1, abs=0.3)
    save_record(run, tmp_path)
    with (tmp_path / "values.csv").open() as file:
        written = {(r["policy"], r["client"]): r for r in csv.DictReader(file)}
    shown = written["everybody gets b", "global"]
    assert float(shown["value"]) == value.value
    assert (float(shown["low"]), float(shown["high"])) == (low, high)
    assert load_record(tmp_path).values == run.values
    assert recommend(run).policy == "everybody gets b"
    assert "expected to lower days by" in recommend(run).sentence
    tile = key_figures(run)[0]
    assert float(tile[1]) == pytest.approx(value.value, abs=0.01)
    assert f"{value.value:.4g}" in str(run)
