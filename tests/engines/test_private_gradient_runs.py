"""Runs of csoaa-sgd with differential privacy: what they learn, say and refuse."""

import re

import numpy as np
import pytest
from typer.testing import CliRunner

import fedopl
from fedopl.cli.app import app
from fedopl.engines.privacy_price import prices
from fedopl.report.page import render
from fedopl.server.exchange_counts import expected_exchanges, expected_trips
from fedopl.study.study_file import read_study

pytestmark = pytest.mark.usefixtures("without_figures")

FEATURES = ("x0", "x1", "x2")
RANGES = dict.fromkeys(FEATURES, (-2.0, 2.0))
SLOPES = np.array([[1.0, 0.0, 0.3], [-1.0, 0.5, 0.0]])


def trial(n_rows, seed):
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(n_rows, 3))
    actions = rng.integers(2, size=n_rows)
    outcomes = (contexts @ SLOPES.T)[np.arange(n_rows), actions] + rng.normal(size=n_rows)
    return fedopl.LoggedData(
        contexts,
        actions,
        outcomes,
        np.full(n_rows, 0.5),
        action_names=("a", "b"),
        feature_names=FEATURES,
    )


def options(epsilon=4.0, training=None, oracle="csoaa-sgd", **plan):
    return {
        "policy": fedopl.Linear(oracle=oracle, training=training or fedopl.TrainingPlan(rounds=15)),
        "privacy": fedopl.PrivacyPlan(epsilon=epsilon, outcome=(-5, 5), ranges=RANGES, **plan),
        "declared": fedopl.Declared(overlap=0.5),
    }


def learned(n_rows=600, seed=0, **said):
    clients = {name: trial(n_rows, 10 * seed + place) for place, name in enumerate("xyz")}
    running = fedopl.Running(secret=f"secret {seed}")
    return fedopl.learn(clients, **options(**said), running=running)


def fresh():
    contexts = np.random.default_rng(99).normal(size=(20_000, 3))
    return contexts, contexts @ SLOPES.T


def best_value():
    return fresh()[1].max(axis=1).mean()


def regret(policy):
    contexts, means = fresh()
    return (means.max(axis=1) - means[np.arange(20_000), policy.decide(contexts)]).mean()


@pytest.mark.parametrize("sampled", [1.0, 0.3])
def test_it_learns_with_all_rows_and_with_sampled_ones_and_says_so(tmp_path, sampled):
    run = learned(sampled=sampled)
    assert regret(run.policy) < 0.06  # of 0.8 that the best constant arm loses
    assert regret(learned(sampled=sampled, epsilon=0.02).policy) > 0.1
    assert len(run.rounds) == expected_exchanges(run.study, 3) == 18
    assert expected_trips(run.study, 3) == 17
    low, high = run.values.of("learned").interval()
    assert low < best_value() - regret(run.policy) < high
    run.save(tmp_path / "run")
    page = re.sub(r"<[^>]+>", " ", render(fedopl.load_run(tmp_path / "run")))
    assert ("A step of learning, of 0.3 of rows" in page) == (sampled < 1)
    assert ("determines the noise and who takes part in a step" in page) == (sampled < 1)
    assert "15 times" in page.replace("\u00a0", " ")


def test_the_same_secret_gives_the_same_policy_whatever_the_order_of_clients():
    one = learned(300, sampled=0.5)
    clients = {name: trial(300, place) for place, name in reversed(list(enumerate("xyz")))}
    running = fedopl.Running(secret="secret 0")
    again = fedopl.learn(clients, **options(sampled=0.5), running=running)
    np.testing.assert_array_equal(one.policy.parameters, again.policy.parameters)


REFUSED = {
    "wap": ({"oracle": "wap"}, "csoaa-exact or csoaa-sgd"),
    "direct": ({"oracle": "direct"}, "csoaa-exact or csoaa-sgd"),
    "sampled sums": ({"oracle": "csoaa-exact", "sampled": 0.5}, "only csoaa-sgd can take steps"),
    "none": ({"sampled": 0.0}, "sampled"),
    "steps": ({"steps": 9}, "one for each of its rounds"),
    "batches": (
        {"training": fedopl.TrainingPlan(batch_size=7)},
        "batch_size: with differential privacy, a round",
    ),
    "some clients": ({"training": fedopl.TrainingPlan(clients_per_round=2)}, "of all clients"),
    "rounds": ({"training": fedopl.TrainingPlan(rounds=5000)}, "at most 1,000"),
    "delta": ({"sampled": 0.5, "delta": 1e-12}, "at least 1e-09"),
}


@pytest.mark.parametrize(("said", "complaint"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused_in_words(said, complaint):
    with pytest.raises(fedopl.OptionError, match=re.escape(complaint)):
        fedopl.learn({"x": trial(300, 0), "y": trial(300, 1)}, **options(**said))


def test_a_study_file_has_it_and_its_price_is_that_of_its_own_way_to_learn(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(
        'name = "s"\n[outcome]\ncolumn = "y"\ndirection = "higher"\n[action]\ncolumn = "a"\n'
        'levels = ["p", "q"]\n[features]\nx = "number"\n[declared]\noverlap = 0.5\n'
        '[policy]\noracle = "csoaa-sgd"\n[plan]\nrounds = 6\n'
        "[privacy]\nepsilon = 1\nsampled = 0.2\noutcome = [0, 1]\n[privacy.ranges]\nx = [0, 10]\n"
    )
    said = CliRunner().invoke(app, ["privacy", str(study), "--rows", "100"])
    assert said.exit_code == 0, said.output
    assert re.search(r"A step of learning, of 0\.2 of rows +6 ", said.output)
    study.write_text(study.read_text().replace("rounds = 6", "rounds = 6\nbatch_size = 7"))
    with pytest.raises(fedopl.OptionError, match=r"line 16: plan\.batch_size: with differential"):
        read_study(study)
    run = learned(200)
    first, _ = prices(run.study, [300], (1.0,))
    exact = run.study.model_copy(update={"policy": fedopl.Linear()})
    assert first.regret != prices(exact, [300], (1.0,))[0].regret
