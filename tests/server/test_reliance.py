"""What rests on whom: influence is found from sums, and valued with everything else."""

from dataclasses import replace
from time import perf_counter

import numpy as np
import pytest
from lies import flipped
from small_worlds import alike_world

import fedopl
from fedopl.messages.evaluation.policy_fields import most_in_query
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.report.parts import as_text
from fedopl.report.sections.resting_on_clients import reliance_cautions, resting_on_clients
from fedopl.results.files.run_folder import load_record, save_record
from fedopl.results.sums.score_statistics import ScoreStatistics
from fedopl.server.aggregate.setting import Setting
from fedopl.server.rest_on import (
    MOST_LEFT_OUT,
    best_arm_without,
    gaps_to_solution,
    influential,
)
from report_runs import with_gains

WORLD = alike_world(5, seed=3)
QUICK = {
    "nuisances": fedopl.NuisancePlan(propensity="marginal", folds=2),
    "personal": "none",
}


def rows_of(n_rows=400, odd=None):
    """Everybody's rows; the odd client has its rewards the wrong way round."""
    data = {name: WORLD.logged(name, n_rows) for name in WORLD.clients}
    return {name: flipped(rows) if name == odd else rows for name, rows in data.items()}


@pytest.fixture(scope="module")
def odd():
    """Five clients, of which one has its rewards the wrong way round."""
    return fedopl.learn(rows_of(odd="client 2"), basis="linear", **{"evaluation": 0.25, **QUICK})


def test_the_client_that_moves_the_solution_most_is_left_out_first(odd):
    first, *others = odd.reliance.left_out
    assert first.client == "client 2"
    assert len(others) == MOST_LEFT_OUT - 1
    assert first.weight == odd.mixture["client 2"]


def test_what_is_left_out_is_what_a_run_without_it_learns(odd):
    first = odd.reliance.left_out[0]
    others = {name: rows for name, rows in rows_of(odd="client 2").items() if name != "client 2"}
    # The outcome models differ, as the odd client's sums are not in them; with local ones they do
    # not, and the run without it is the same.
    local = {"nuisances": fedopl.NuisancePlan(kind="local", propensity="marginal", folds=2)}
    run = fedopl.learn(rows_of(odd="client 2"), basis="linear", **{"evaluation": 0.25, **local})
    alone = fedopl.learn(others, basis="linear", **{"evaluation": 0.25, **local})
    without = next(one for one in run.reliance.left_out if one.client == "client 2")
    gain = alone.gains.over(f"everybody gets {alone.best_arm}")
    assert without.best_arm == alone.best_arm
    assert without.gain_without.value == pytest.approx(gain.value)
    assert without.gain_without.standard_error == pytest.approx(gain.standard_error)
    assert first.others == without.others == 4


def test_values_and_gains_are_the_same_to_the_bit_with_policies_valued_beside_them(odd):
    asked = [latest for latest in odd.rounds if latest.query == "Value"]
    assert len(asked) == 2
    names = {row.policy for row in odd.values.rows}
    arms = {f"everybody gets {action}" for action in odd.study.actions}
    assert names == {"learned", "logging policy", "local policy"} | arms


def section_text(run):
    """What the report says of it, in one line."""
    return " ".join(as_text(resting_on_clients(run).parts).split())


@pytest.mark.parametrize("policy", [fedopl.Tree(depth=1, bins=4), fedopl.Finite()])
def test_trees_and_candidates_are_left_out_too(policy):
    run = fedopl.learn(
        rows_of(odd="client 2"), basis="linear", policy=policy, **{"evaluation": 0.25, **QUICK}
    )
    first = run.reliance.left_out[0]
    assert first.client == "client 2"
    assert first.gain_without is not None or policy.compares_candidates
    said = section_text(run)
    assert "valued together with the learned policy" in said
    assert "holds only a few policies" not in said  # all were valued
    same = any(one.difference is None for one in run.reliance.left_out)
    assert ("both are the same candidate" in said) == same


def test_an_oracle_that_cannot_be_solved_again_is_judged_at_the_others_alone():
    plan = fedopl.Linear(oracle="csoaa-sgd", training=fedopl.TrainingPlan(rounds=2))
    run = fedopl.learn(rows_of(odd="client 2"), basis="linear", policy=plan, **QUICK)
    first, *_ = run.reliance.left_out
    assert first.gain is not None
    assert first.gain_without is first.difference is None
    said = section_text(run)
    assert "whose sums move the exact linear policy most" in said
    assert "(a dash): it cannot be computed from their sums" in said
    assert "holds only a few policies" not in said
    assert "valued together with the learned policy" not in said


def test_one_client_rests_on_nobody():
    run = fedopl.learn({"north": WORLD.logged("client 1", 300)}, basis="linear", **QUICK)
    assert run.reliance is None


def test_small_clients_are_not_asked_about_so_many_policies_that_they_refuse():
    few = {**rows_of(), "client 1": WORLD.logged("client 1", 72)}
    run = fedopl.learn(few, basis="linear", limits="guarded", **QUICK)
    assert "client 1" in {row.client for row in run.values.rows}


def test_no_more_policies_are_asked_about_than_a_query_carries(odd):
    values = next(latest for latest in odd.rounds if latest.query == "Value")
    assert values.answered == tuple(sorted(odd.rows))
    assert most_in_query(odd.study) == 7


def test_what_rests_on_whom_is_kept_in_the_run_folder(odd, tmp_path):
    save_record(odd, tmp_path)
    assert load_record(tmp_path).reliance == odd.reliance


def many(n_clients):
    """A setting of so many clients, one of which praises an action."""
    study = fedopl.Study(actions=("a", "b"), features=("x", "y"))
    rng, sums = np.random.default_rng(0), {}
    for place in range(n_clients):
        products = np.column_stack([rng.normal(size=(2, 2)) / 10, np.array([1.0, 0.0])])
        sums[f"c{place:06}"] = ScoreSums(
            grams=np.eye(3)[None], products=products, squares=np.full(2, 4.0), shares=np.ones(2)
        )
    odd = sums["c000007"]
    sums["c000007"] = replace(odd, products=10 * odd.products, squares=100 * odd.squares)
    rows = dict.fromkeys(sums, 100)
    weights = dict.fromkeys(sums, 1 / n_clients)
    statistics = ScoreStatistics(study=study, sums=sums, rows=rows)
    return Setting(study=study, rows=rows, weights=weights, statistics=statistics)


def test_influence_is_found_quickly_among_very_many_clients():
    setting = many(20_000)
    setting.statistics.solve(setting.weights)
    start = perf_counter()
    found = influential(gaps_to_solution(setting), setting.weights)
    assert perf_counter() - start < 5
    assert found[0] == "c000007"
    assert best_arm_without(setting, "c000007") == "a"


def test_arms_without_one_client_are_those_of_all_others(odd):
    others = {name: weight for name, weight in odd.mixture.items() if name != "client 2"}
    again = odd.statistics.restricted(others).arm_values(others)
    np.testing.assert_allclose(odd.statistics.arm_values_without(odd.mixture, "client 2"), again)
    alone = odd.statistics.restricted(["client 1"])
    assert np.isnan(alone.arm_values_without({"client 1": 1.0}, "client 1")).all()


def test_a_gain_that_one_client_decides_is_cautioned_of(odd):
    assert {"Answers that do not fit", "Others lose by one client"} & {
        caution.title for caution in reliance_cautions(odd)
    }
    unclear = with_gains(odd, arm=(0.1, 0.2), past=(0.1, 0.2))
    assert "One client decides" in {caution.title for caution in reliance_cautions(unclear)}
