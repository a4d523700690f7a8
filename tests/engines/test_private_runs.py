"""Runs with differential privacy: what they learn, what they claim, and what they refuse."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedopl
from fedopl.cli.app import app
from fedopl.client.door import Door
from fedopl.engines.privacy_price import prices
from fedopl.messages.private.noised_scores import NoisedValues
from fedopl.messages.private.noised_sums import NoisedSums, ResidualSums
from fedopl.report.page import render
from fedopl.results.value_tables import LEARNED
from fedopl.study.private.private_setting import PrivateSetting

pytestmark = pytest.mark.usefixtures("without_figures")

FEATURES = ("x0", "x1", "x2")
RANGES = dict.fromkeys(FEATURES, (-2.0, 2.0))
SLOPES = np.array([[1.0, 0.0, 0.3], [-1.0, 0.5, 0.0]])


def trial(n_rows, seed, **more):
    """Two arms by the toss of a coin; outcomes are linear, or bent where nothing is learned of."""
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(n_rows, 3))
    actions = rng.integers(2, size=n_rows)
    means = contexts @ SLOPES.T + np.cos(2 * contexts[:, :1])
    outcomes = means[np.arange(n_rows), actions] + rng.normal(size=n_rows)
    return fedopl.LoggedData(
        contexts,
        actions,
        np.clip(outcomes, -5, 5),
        np.full(n_rows, 0.5),
        action_names=("a", "b"),
        feature_names=FEATURES,
        **more,
    )


def learned(n_rows=1500, seed=0, epsilon=4.0, evaluation=0.25, **plan):
    clients = {name: trial(n_rows, 10 * seed + place) for place, name in enumerate("xyz")}
    return fedopl.learn(
        clients,
        privacy=fedopl.PrivacyPlan(epsilon=epsilon, outcome=(-5, 5), ranges=RANGES, **plan),
        declared=fedopl.Declared(overlap=0.5),
        evaluation=evaluation,
        running=fedopl.Running(secret=f"secret {seed}"),
    )


def fresh(n_rows=200_000):
    contexts = np.random.default_rng(99).normal(size=(n_rows, 3))
    return contexts, contexts @ SLOPES.T + np.cos(2 * contexts[:, :1])


def value(policy, contexts, means):
    return means[np.arange(len(means)), policy.decide(contexts)].mean()


def test_with_much_noise_policies_are_worse_and_with_little_as_good_as_without():
    contexts, means = fresh(20_000)
    best = means.max(axis=1).mean()
    lost = {
        epsilon: np.mean(
            [
                best - value(learned(800, seed, epsilon, 0).policy, contexts, means)
                for seed in range(4)
            ]
        )
        for epsilon in (0.1, 8.0)
    }
    plain = fedopl.learn({name: trial(800, i) for i, name in enumerate("xyz")}, evaluation=0)
    assert lost[8.0] < best - value(plain.policy, contexts, means) + 0.01
    assert lost[0.1] > 10 * lost[8.0]


# Of intervals that hold in 95 %, fewer than 25 of 30, or 5 of 7, do in one of 250 tries.
@pytest.mark.parametrize(
    ("n_runs", "least"),
    [(7, 5), pytest.param(30, 25, marks=pytest.mark.slow_law)],
    ids=["few draws", "many draws"],
)
def test_intervals_cover_what_the_policy_is_worth_though_outcomes_bend(n_runs, least):
    contexts, means = fresh()
    held = []
    for seed in range(n_runs):
        run = learned(1500, seed, epsilon=1.0)
        low, high = run.values.of(LEARNED).interval()
        held.append(low <= value(run.policy, contexts, means) <= high)
    assert sum(held) >= least
    # And they know of the noise: without it they would be a fraction as wide.
    quiet = learned(1500, 1, epsilon=50.0).values.of(LEARNED).standard_error
    assert run.values.of(LEARNED).standard_error > 1.5 * quiet


def test_a_person_with_several_rows_needs_more_noise_and_the_others_are_left_out():
    rows = {
        name: trial(600, place, groups=np.repeat(np.arange(150), 4))
        for place, name in enumerate("xyz")
    }
    for most, unit in ((1, "person"), (3, "person")):
        run = fedopl.learn(
            rows,
            privacy=fedopl.PrivacyPlan(
                epsilon=4, outcome=(-5, 5), ranges=RANGES, unit=unit, most_rows_per_person=most
            ),
            declared=fedopl.Declared(overlap=0.5),
            running=fedopl.Running(secret="of the test"),
        )
        assert "any one person is in" in render(run)
    with pytest.raises(fedopl.FedoplError):
        fedopl.learn(
            {"x": trial(300, 0), "y": trial(300, 1)},
            privacy=fedopl.PrivacyPlan(epsilon=4, outcome=(-5, 5), ranges=RANGES, unit="person"),
            declared=fedopl.Declared(overlap=0.5),
        )


def test_values_are_of_the_rows_used_where_a_person_has_more():
    """All outcomes are 4 or nearly: left-out rows must not count as the middle of the range."""
    rows = {}
    for place, name in enumerate("xyz"):
        data = trial(8000, place)
        whose = np.repeat(np.arange(2000), 4)
        rows[name] = fedopl.LoggedData(
            data.contexts,
            data.actions,
            np.full(8000, 4.0),
            np.full(8000, 0.5),
            action_names=("a", "b"),
            feature_names=FEATURES,
            groups=whose,
        )
    for most in (1, 2):
        run = fedopl.learn(
            rows,
            privacy=fedopl.PrivacyPlan(
                epsilon=8,
                outcome=(-5, 5),
                ranges=RANGES,
                unit="person",
                most_rows_per_person=most,
            ),
            declared=fedopl.Declared(overlap=0.5),
            running=fedopl.Running(secret="of persons"),
        )
        assert run.values.of("logging policy").value == pytest.approx(4, abs=0.4)


def test_where_less_is_better_the_range_is_that_of_outcomes_as_they_are(tmp_path):
    table = fedopl.Schema(
        action="arm",
        actions=("a", "b"),
        reward="days",
        direction="lower",
        numeric=FEATURES,
        propensity=0.5,
    )
    rows = {}
    for place, name in enumerate("xyz"):
        data = trial(4000, place)
        columns = dict(zip(FEATURES, data.contexts.T, strict=True))
        arms = np.array(["a", "b"])[data.actions]
        rows[name] = fedopl.read_logged(
            pd.DataFrame({**columns, "arm": arms, "days": 10 - data.rewards}), table
        )
    plan = fedopl.PrivacyPlan(epsilon=8, outcome=(5, 15), ranges=RANGES)
    run = fedopl.learn(
        rows,
        privacy=plan,
        declared=fedopl.Declared(overlap=0.5),
        running=fedopl.Running(secret="less is better"),
    )
    contexts, means = fresh(20_000)
    assert means.max(axis=1).mean() - value(run.policy, contexts, means) < 0.05
    assert run.values.of("logging policy").value == pytest.approx(10, abs=0.5)


def bending(n_rows, seed, bend):
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(n_rows, 3))
    actions = rng.integers(2, size=n_rows)
    means = effects(contexts, bend)
    outcomes = means[np.arange(n_rows), actions] + rng.normal(size=n_rows)
    return fedopl.LoggedData(
        contexts, actions, outcomes, np.full(n_rows, 0.5), action_names=("a", "b")
    )


def effects(contexts, bend):
    plain = contexts @ SLOPES.T
    bent = contexts[:, 0] * contexts[:, 1]
    return (1 - bend) * plain + bend * np.column_stack([bent, -bent])


@pytest.mark.parametrize("bend", [0.0, 1.0], ids=["linear", "bent"])
def test_a_policy_bends_only_where_sums_with_noise_say_so(bend):
    clients = {name: bending(3000, place, bend) for place, name in enumerate("xyz")}
    run = fedopl.learn(
        clients,
        privacy=fedopl.PrivacyPlan(epsilon=4.0, outcome=(-6, 6), ranges=RANGES),
        declared=fedopl.Declared(overlap=0.5),
        evaluation=0,
        running=fedopl.Running(secret="bends"),
    )
    contexts = np.random.default_rng(9).normal(size=(20_000, 3))
    means = effects(contexts, bend)
    lost = means.max(axis=1).mean() - value(run.policy, contexts, means)
    assert run.policy.bends == bool(bend)
    assert lost < 0.05  # of 0.64 that a linear policy loses where effects bend
    page = " ".join(re.sub(r"<[^>]+>", " ", render(run)).split())
    used = "those of linear; sums with noise gave no clear sign of more"
    assert (used in page) == (not bend)
    n_terms = 3 if not bend else run.policy.n_used
    deviation = PrivateSetting(run.study).step_deviation(n_terms)
    assert f"A step of learning 4 times {deviation:.3g}" in page


def test_knots_beyond_the_ranges_cost_little_and_break_nothing():
    far = {"x0": (50.0, 60.0, 70.0), "x1": (-1.0, 0.0, 1.0)}
    clients = {name: bending(2000, place, 0.0) for place, name in enumerate("xyz")}
    run = fedopl.learn(
        clients,
        basis=fedopl.Basis(kind="splines", knots=far, products=("x0", "x1")),
        privacy=fedopl.PrivacyPlan(epsilon=8.0, outcome=(-6, 6), ranges=RANGES),
        declared=fedopl.Declared(overlap=0.5),
        evaluation=0,
        running=fedopl.Running(secret="far"),
    )
    contexts = np.random.default_rng(9).normal(size=(20_000, 3))
    means = effects(contexts, 0.0)
    assert means.max(axis=1).mean() - value(run.policy, contexts, means) < 0.05


def test_one_secret_gives_one_result_whatever_the_order_of_clients_and_another_other_noise():
    one = learned(400, 3)
    clients = {name: trial(400, 30 + place) for place, name in enumerate("xyz")}
    options = {
        "privacy": one.study.privacy,
        "declared": fedopl.Declared(overlap=0.5),
        "running": fedopl.Running(secret="secret 3"),
    }
    again = fedopl.learn(dict(reversed(clients.items())), **options)
    np.testing.assert_array_equal(one.policy.parameters, again.policy.parameters)
    other = fedopl.learn(clients, **(options | {"running": None}))
    used = [*range(len(FEATURES)), -1]
    assert (other.policy.parameters[:, used] != one.policy.parameters[:, used]).all()


@pytest.mark.parametrize("kind", [NoisedSums, ResidualSums, NoisedValues])
def test_numbers_that_no_rows_can_have_are_rejected_and_the_others_go_on(monkeypatch, kind):
    clients = {name: trial(400, place) for place, name in enumerate("wxyz")}
    honest = Door._computed

    def lying(door, query):
        found = honest(door, query)
        if door.name != "w" or not isinstance(found, kind):
            return found
        arrays = {
            name: 1e9 * array for name, array in vars(found).items() if hasattr(array, "shape")
        }
        return replace(found, **arrays)

    monkeypatch.setattr(Door, "_computed", lying)
    run = fedopl.learn(
        clients,
        privacy=fedopl.PrivacyPlan(epsilon=8, outcome=(-5, 5), ranges=RANGES),
        declared=fedopl.Declared(overlap=0.5),
        running=fedopl.Running(secret="of liars"),
    )
    rejected = {name: why for one in run.rounds for name, why in one.rejected.items()}
    assert "more than its rows can have" in rejected["w"]
    contexts, means = fresh(20_000)
    assert means.max(axis=1).mean() - value(run.policy, contexts, means) < 0.1


def test_a_run_that_goes_on_has_the_noise_it_began_with(tmp_path):
    clients = {name: trial(300, place) for place, name in enumerate("xyz")}
    options = {
        "privacy": fedopl.PrivacyPlan(epsilon=2, outcome=(-5, 5), ranges=RANGES),
        "declared": fedopl.Declared(overlap=0.5),
        "running": fedopl.Running(journal=tmp_path / "journal"),
    }
    first = fedopl.learn(clients, **options)
    kept = sorted((tmp_path / "journal").glob("trip-*.bin"))
    for path in kept[len(kept) // 2 :]:
        path.unlink()
    again = fedopl.learn(clients, **options)
    np.testing.assert_array_equal(first.policy.parameters, again.policy.parameters)
    assert str(first.values) == str(again.values)


def test_a_policy_with_noise_is_for_its_own_mixture():
    run = learned(300)
    with pytest.raises(fedopl.OptionError, match="learned in steps for one mixture"):
        run.resolve("uniform")


def test_a_saved_run_says_the_same_and_its_report_claims_nothing_that_is_not_so(tmp_path):
    run = learned(400)
    run.save(tmp_path / "run")
    again = fedopl.load_run(tmp_path / "run")
    assert str(again) == str(run)
    page = re.sub(r"<[^>]+>", " ", render(again)).replace("\u00a0", " ")
    assert "by at most a factor of 54.6, except for a probability of 1e-06" in page
    assert "of the learned policy's value" in page.replace("&#39;", "'")
    assert "nothing is claimed about joining" in page.replace("\n", " ")
    for false in ("splits = 5", "diagnose = true", "exactly from the", "regret bounds", "noisier"):
        assert false not in page


WRONG = {
    "epsilon": ({"epsilon": 0}, "epsilon"),
    "delta": ({"epsilon": 1, "delta": 0.01}, "privacy.delta: 0.01 is no promise for x, which has"),
    "a range": ({"epsilon": 1, "ranges": {"x0": (-1, 1)}}, "no range of 'x1', 'x2'"),
    "upside down": ({"epsilon": 1, "outcome": (3, -3)}, "expected [low, high], came [3, -3]"),
    "without end": ({"epsilon": 1, "outcome": (0, 1e300)}, "numbers of at most 1e+15"),
    "no feature": ({"epsilon": 1, "ranges": {**RANGES, "z": (0, 1)}}, "'z' is no feature"),
    "noise": ({"epsilon": 1, "noise": "total"}, "noise"),
    "rows": ({"epsilon": 1, "most_rows_per_person": 3}, 'unit = "person"'),
}


@pytest.mark.parametrize(("said", "complaint"), WRONG.values(), ids=WRONG)
def test_a_wrong_setting_is_named_before_anything_is_released(said, complaint):
    with pytest.raises(fedopl.OptionError, match=re.escape(complaint)):
        fedopl.learn(
            {"x": trial(300, 0), "y": trial(300, 1)},
            privacy=fedopl.PrivacyPlan(**({"outcome": (-5, 5), "ranges": RANGES} | said)),
            declared=fedopl.Declared(overlap=0.5),
        )


OTHERS = {
    "overlap": ({"declared": None}, "declared.overlap"),
    "a network": ({"policy": "neural"}, "policies are linear, .* trees, or the best"),
    "screening": (
        {"basis": fedopl.Basis(knots={"x0": (-1, 0, 1)}, screened_pairs=2)},
        "named, not screened",
    ),
    "minimax": ({"mixture": "minimax"}, "agreed, not found"),
    "diagnosis": ({"diagnose": True}, "many more answers"),
    "cross-fitting": ({"evaluation": "cross-fitted"}, "noise would be added"),
    "logistic": ({"nuisances": fedopl.NuisancePlan(propensity="logistic")}, "auto or known"),
}


@pytest.mark.parametrize(("said", "complaint"), OTHERS.values(), ids=OTHERS)
def test_what_cannot_be_had_privately_is_refused_in_words(said, complaint):
    plan = fedopl.PrivacyPlan(epsilon=1, outcome=(-5, 5), ranges=RANGES)
    options = {"privacy": plan, "declared": fedopl.Declared(overlap=0.5)} | said
    with pytest.raises(fedopl.OptionError, match=complaint):
        fedopl.learn({"x": trial(300, 0), "y": trial(300, 1)}, **options)


def test_the_price_is_known_beforehand(tmp_path):
    run = learned(200)
    low, nearly_none = prices(run.study, [300, 300], (0.2,))
    assert low.half_width > nearly_none.half_width
    study = tmp_path / "study.toml"
    study.write_text(
        'name = "s"\n[outcome]\ncolumn = "y"\ndirection = "higher"\n[action]\ncolumn = "a"\n'
        'levels = ["p", "q"]\n[features]\nx = "number"\n[declared]\noverlap = 0.5\n'
        "[privacy]\nepsilon = 1\noutcome = [0, 1]\n[privacy.ranges]\nx = [0, 10]\n"
    )
    said = CliRunner().invoke(app, ["privacy", str(study), "--rows", "200", "--rows", "100"])
    assert said.exit_code == 0
    assert "by at most a factor of 2.72" in said.output
    assert "With clients of 200, 100 made-up rows" in said.output
    for few in ("-5", "0"):
        refused = CliRunner().invoke(app, ["privacy", str(study), "--rows", few])
        assert refused.exit_code == 2
        assert "--rows" in refused.output
    (tmp_path / "clients" / "north").mkdir(parents=True)
    (tmp_path / "clients" / "north" / "client.toml").write_text(
        '[data]\nfile = "rows.csv"\n[limits]\nepsilon = 0.9\n'
    )
    where = ["--clients", str(tmp_path / "clients"), "--rows", "100"]
    said = CliRunner().invoke(app, ["privacy", str(study), *where])
    assert "north: epsilon 0 of 0.9 spent by other studies, 1 with this one" in said.output
    assert "so it would be refused" in said.output
    found = json.loads(CliRunner().invoke(app, ["privacy", str(study), "--json"]).output)
    assert [one["epsilon"] for one in found["prices"]] == [0.5, 1, 2, 4, 8, 50]
    assert found["trips"] == 6
    assert "A run takes 6 trips" in said.output
    step = next(one for one in found["releases"] if one["what"] == "A step of learning")
    assert (step["times"], step["share"]) == (4, 0.15)


def test_no_client_counts_for_more_than_its_largest_share():
    run = fedopl.learn(
        {"x": trial(2_000, 1), "y": trial(300, 2), "z": trial(300, 3)},
        privacy=fedopl.PrivacyPlan(epsilon=8, outcome=(-5, 5), ranges=RANGES),
        declared=fedopl.Declared(overlap=0.5),
        mixture=fedopl.mixture.empirical(largest_share=0.5),
        running=fedopl.Running(secret="one"),
    )
    assert run.mixture["x"] == pytest.approx(0.5)
    assert run.mixture["y"] == pytest.approx(run.mixture["z"], abs=0.02)


def test_ranges_that_are_too_wide_cost_little_where_they_are_measured_first(tmp_path):
    clients = {name: trial(1500, place) for place, name in enumerate("xyz")}
    contexts, means = fresh(20_000)
    lost = {}
    for scales in ("declared", "measured"):
        run = fedopl.learn(
            clients,
            basis="linear",
            privacy=fedopl.PrivacyPlan(
                epsilon=1,
                outcome=(-5, 5),
                ranges=dict.fromkeys(FEATURES, (-2.0, 78.0)),
                scales=scales,
            ),
            declared=fedopl.Declared(overlap=0.5),
            running=fedopl.Running(secret="of this test", journal=tmp_path / scales),
        )
        lost[scales] = means.max(axis=1).mean() - value(run.policy, contexts, means)
    assert lost["measured"] < 0.05 < 0.1 < lost["declared"]
    run.save(tmp_path / "run")
    again = fedopl.load_run(tmp_path / "run")
    assert again.study == run.study
    assert again.study.before_screening.privacy.ranges["x0"] == (-2.0, 78.0)
    page = " ".join(re.sub(r"<[^>]+>", " ", render(again)).replace("\u00a0", " ").split())
    assert "A share of 10 % of the budget of learning" in page
    low, high = run.study.privacy.ranges["x2"]
    assert f"x2 -2 to 78 {low:g} to {high:g}" in page
    assert "With the ranges that were found" in page
    # What was asked before the run was killed is not asked again, and ranges stay what they were.
    kept = sorted((tmp_path / "measured").glob("trip-*.bin"))
    for path in kept[1:]:
        path.unlink()
    options = {"declared": fedopl.Declared(overlap=0.5), "basis": "linear"}
    resumed = fedopl.learn(
        clients,
        privacy=run.study.before_screening.privacy,
        running=fedopl.Running(secret="of this test", journal=tmp_path / "measured"),
        **options,
    )
    np.testing.assert_array_equal(run.policy.parameters, resumed.policy.parameters)
