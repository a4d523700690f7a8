"""Trees with differential privacy: what they learn, what is said of them, what is refused."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fedopl
from fedopl.cli.app import app
from fedopl.client.door import Door
from fedopl.engines.privacy_price import noise_table, prices
from fedopl.messages.private.noised_scores import NoisedCells, NoisedGains
from fedopl.policies.trees.nodes import branches_of
from fedopl.report.explain.explain_tree import tree_as_json, tree_as_text
from fedopl.report.page import render
from fedopl.results.value_tables import LEARNED
from fedopl.study.study_file import read_study

pytestmark = pytest.mark.usefixtures("without_figures")

FEATURES = ("x0", "x1", "x2", "x3")
RANGES = dict.fromkeys(FEATURES, (-2.0, 2.0))
ACTIONS = ("a", "b", "c")


def best(contexts):
    """The code of the best action, by a tree that no linear policy is like."""
    low = np.where(contexts[:, 1] <= 0.3, 0, 1)
    high = np.where(contexts[:, 2] <= -0.4, 2, 0)
    return np.where(contexts[:, 0] <= 0.2, low, high)


def trial(n_rows, seed):
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(n_rows, 4))
    actions = rng.integers(3, size=n_rows)
    outcomes = (actions == best(contexts)) + rng.normal(size=n_rows)
    return fedopl.LoggedData(
        contexts,
        actions,
        outcomes,
        np.full(n_rows, 1 / 3),
        action_names=ACTIONS,
        feature_names=FEATURES,
    )


def learned(n_rows=2000, epsilon=8.0, policy="tree", names="xyz", **more):
    clients = {name: trial(n_rows, place) for place, name in enumerate(names)}
    return fedopl.learn(
        clients,
        policy=policy,
        privacy=fedopl.PrivacyPlan(epsilon=epsilon, outcome=(-3, 4), ranges=RANGES),
        declared=fedopl.Declared(overlap=1 / 3),
        running=fedopl.Running(secret="of trees"),
        **more,
    )


def regret(policy):
    contexts = np.random.default_rng(99).normal(size=(20_000, 4))
    return float((policy.decide(contexts) != best(contexts)).mean())


def test_a_tree_is_found_through_the_noise_and_its_thresholds_between_those_of_the_grid():
    run = learned(evaluation=0)
    assert regret(run.policy) < 0.03
    assert regret(learned(evaluation=0, policy="linear", basis="linear").policy) > 0.1
    coarse = learned(evaluation=0, policy=fedopl.Tree(refine=False))
    assert regret(coarse.policy) > 3 * regret(run.policy)
    assert [one.query for one in run.rounds][2:] == ["SumCellsPrivately", "LookPrivately"]


def test_one_question_and_no_noise_to_speak_of_give_the_best_stump():
    run = learned(1000, 50.0, policy=fedopl.Tree(depth=1), evaluation=0)
    exact = fedopl.learn(
        {name: trial(1000, place) for place, name in enumerate("xyz")},
        policy=fedopl.Tree(depth=1),
        evaluation=0,
    )
    assert run.policy.root.column == exact.policy.root.column
    assert regret(run.policy) == pytest.approx(regret(exact.policy), abs=0.05)


def test_values_of_the_tree_hold_and_nothing_is_said_of_its_leaves(tmp_path):
    run = learned(1500)
    low, high = run.values.of(LEARNED).interval()
    assert low <= 1 - regret(run.policy) <= high
    run.save(tmp_path / "run")
    again = fedopl.load_run(tmp_path / "run")
    assert str(again) == str(run)
    assert again.policy.root == run.policy.root
    assert not again.leaves
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", render(again)))
    for said in (
        "By sums with noise it was the best of all trees of depth ≤ 2 on a coarse grid",
        "reported sums, with noise, over the cells of a coarse grid",
        "Sums close to thresholds",
        "No client reported how people divide",
    ):
        assert said in page
    for false in ("only one client", "improved in steps", "exactly.", "added noise to counts"):
        assert false not in page
    assert "By sums with noise" in tree_as_text(again.policy, again)
    assert "tree" in tree_as_json(again.policy, again)
    exported = again.policy.export(tmp_path / "policy.sql")
    assert "CASE" in exported.read_text(encoding="utf-8").upper()


def test_the_order_of_clients_changes_nothing():
    clients = {name: trial(400, place) for place, name in enumerate("xyz")}
    one = learned(400)
    other = fedopl.learn(
        dict(reversed(clients.items())),
        policy="tree",
        privacy=one.study.privacy,
        declared=one.study.declared,
        running=fedopl.Running(secret="of trees"),
    )
    assert one.policy.root == other.policy.root
    assert str(one.values) == str(other.values)


@pytest.mark.parametrize("kind", [NoisedCells, NoisedGains])
def test_numbers_that_no_rows_can_have_are_rejected_and_the_others_go_on(monkeypatch, kind):
    honest = Door._computed

    def lying(door, query):
        found = honest(door, query)
        if door.name != "w" or not isinstance(found, kind):
            return found
        arrays = {name: 1e9 * own for name, own in vars(found).items() if hasattr(own, "shape")}
        return replace(found, **arrays)

    monkeypatch.setattr(Door, "_computed", lying)
    run = learned(1500, names="wxyz", evaluation=0)
    rejected = {name: why for one in run.rounds for name, why in one.rejected.items()}
    assert "more than its rows can have" in rejected["w"]
    assert regret(run.policy) < 0.05


REFUSED = {
    "deeper": (fedopl.Tree(depth=3), r"tree\.depth: .*one question or two"),
    "observed": (fedopl.Tree(thresholds="observed"), "values of rows"),
    "leaves": (fedopl.Tree(minimum_leaf=50), "the rows of a leaf are not counted"),
}


@pytest.mark.parametrize(("policy", "complaint"), REFUSED.values(), ids=REFUSED)
def test_what_a_private_tree_cannot_have_is_refused_in_words(policy, complaint):
    with pytest.raises(fedopl.OptionError, match=complaint):
        learned(300, policy=policy)


# --- a study file, labels, and rules that a tree has to keep to -----------------------------------

STUDY = """
name = "s"
[outcome]
column = "y"
direction = "lower"
[action]
column = "arm"
levels = ["p", "q"]
propensity = 0.5
[features]
age = "number"
sex = ["f", "m"]
[policy]
kind = "tree"
[tree]
allowed = [{ column = "sex", level = "f", actions = ["p"] }]
[declared]
overlap = 0.5
[privacy]
epsilon = 8
outcome = [0, 10]
[privacy.ranges]
age = [20, 80]
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    for place, name in enumerate(("north", "south")):
        rng = np.random.default_rng(place)
        age, arm = rng.normal(50, 15, 1500), rng.integers(2, size=1500)
        sex = np.array(["f", "m"])[rng.integers(2, size=1500)]
        days = 6 - 3 * ((arm == 1) == (age > 58)) + rng.normal(size=1500)
        rows = pd.DataFrame({"age": age, "sex": sex, "arm": np.array(["p", "q"])[arm], "y": days})
        own = tmp_path / "clients" / name
        own.mkdir(parents=True)
        rows.to_csv(own / "rows.csv", index=False)
        (own / "client.toml").write_text(
            f'name = "{name}"\n[data]\nfile = "rows.csv"\n', encoding="utf-8"
        )
    return tmp_path


def said(*words):
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == 0, found.output
    return found.output


def test_a_study_file_is_previewed_run_explained_and_decided_by(folder):
    study = folder / "study.toml"
    preview = said("preview", study, folder / "clients" / "north")
    assert "SumCellsPrivately → NoisedCells" in preview
    assert "sex is f" in preview
    said("run", study, "--clients", folder / "clients", "--out", folder / "run")
    run = fedopl.load_run(folder / "run")
    # Less is better, and women may get 'p' alone: so whoever gets 'q' is a man above about 58.
    contexts = np.array([[70.0, 0.0], [70.0, 1.0], [30.0, 1.0]])
    assert run.policy.decide(contexts).tolist() == [0, 1, 0]
    (cut,) = [one.cut for one in branches_of(run.policy.root) if one.column == 0]
    assert cut == pytest.approx(58, abs=3)
    assert "By sums with noise" in said("explain", folder / "run")
    decided = folder / "decided.csv"
    table = folder / "clients" / "north" / "rows.csv"
    said("decide", folder / "run", table, "--out", decided)
    assert len(pd.read_csv(decided)) == 1500


def test_the_price_of_a_tree_is_that_of_a_tree(folder):
    study, _ = read_study(folder / "study.toml")
    assert "Sums over the cells of a grid" in noise_table(study)
    much, hardly_any = prices(study, [300], (0.2,))
    assert much.regret > 3 * hardly_any.regret


def test_a_deeper_tree_is_refused_with_the_line_of_the_file(folder):
    study = folder / "study.toml"
    study.write_text(STUDY.replace("[tree]", "[tree]\ndepth = 3"), encoding="utf-8")
    with pytest.raises(fedopl.OptionError, match=r"line 1\d: tree\.depth: .*one question or two"):
        CliRunner().invoke(app, ["privacy", str(study)], catch_exceptions=False)
