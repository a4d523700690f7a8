"""What a run would cost: bytes as they are, seconds as estimates, before anybody is asked."""

import re
from pathlib import Path

import pytest

from fedopl.base.errors import OptionError
from fedopl.engines.plan_cost import in_bytes, plan_cost
from fedopl.engines.rehearse_cost import rehearse_cost
from fedopl.study.plans import NuisancePlan
from fedopl.study.policy_plans import Tree
from fedopl.study.private.privacy_plan import PrivacyPlan
from fedopl.study.study import Study
from fedopl.study.study_file import read_study
from tiny_study import STUDY, fedopl

SMALL = {"actions": ("a", "b"), "features": ("x", "z")}
# Agreed, so that how often rows are counted does not depend on them.
CUTS = {"x": (-0.5, 0, 0.5), "z": (-0.5, 0, 0.5)}
KNOWN = NuisancePlan(propensity="known")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for name, value in {"REHEARSAL_SECONDS": 0.01, "FEW": 4, "FEWEST_MORE": 6}.items():
        monkeypatch.setattr(f"fedopl.engines.plan_cost.{name}", value)


@pytest.mark.parametrize(
    "study",
    [
        Study(**{"evaluation": 0.25, **SMALL}, nuisances=KNOWN),
        Study(**{"evaluation": 0.25, **SMALL}, nuisances=KNOWN, policy=Tree(depth=1, cuts=CUTS)),
        Study(
            **{"evaluation": 0.25, **SMALL},
            nuisances=KNOWN,
            privacy=PrivacyPlan(epsilon=4, outcome=(0, 1), ranges={"x": (0, 9), "z": (0, 9)}),
            declared={"overlap": 0.5},
        ),
    ],
    ids=["linear", "tree", "private"],
)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_planned_bytes_are_those_of_a_run_with_as_many_clients(study, dropout):
    if study.privacy:
        study = study.model_copy(update={"quorum": 0.1})
    plan = plan_cost(study, clients=10, rows=60, dropout=dropout)
    run = rehearse_cost(study, 10, rows=60, dropout=dropout)
    assert (plan.server.sends, plan.server.receives) == (run.sent, run.received)
    assert len(plan.trips) == len(run.trips)
    assert plan.client.seconds > 0
    assert plan.server.seconds > 0


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_under_masks_bytes_grow_with_the_group_as_in_a_run(dropout):
    plan = PrivacyPlan(
        epsilon=4,
        outcome=(0, 1),
        ranges={"x": (0, 9), "z": (0, 9)},
        aggregation="secure",
        keys={name: name * 64 for name in "abc"},
    )
    study = Study(**SMALL, nuisances=KNOWN, privacy=plan, declared={"overlap": 0.5})
    planned = plan_cost(study, clients=27, rows=60, group=9, dropout=dropout)
    run = rehearse_cost(study, 9, rows=60, lacks=dropout > 0)
    assert (planned.server.sends, planned.server.receives) == (run.sent, run.received)
    assert (planned.groups, planned.masked, planned.aggregator) == (3, True, None)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_planned_bytes_of_groups_are_those_of_a_run_with_aggregators(dropout):
    study = Study(**{"evaluation": 0.25, **SMALL}, nuisances=KNOWN)
    plan = plan_cost(study, clients=12, rows=60, group=4, dropout=dropout)
    run = rehearse_cost(study, 12, rows=60, group=4, dropout=dropout)
    assert (plan.server.sends, plan.server.receives) == (run.sent, run.received)
    below = plan.aggregator.sends - plan.client.sends
    assert 3 * below == run.sent_below
    assert 3 * (plan.aggregator.receives - plan.client.receives) == run.received_below
    assert not any("TellFit" in trip.queries for trip in plan.trips)


def test_a_million_clients_in_groups_and_those_that_never_answer():
    study = Study(**SMALL, nuisances=KNOWN)
    grouped = plan_cost(study, clients=1_000_000, rows=40, group=1_000)
    assert grouped.groups == 1_000
    assert grouped.server.receives == 1_000 * grouped.client.sends
    assert grouped.aggregator.receives == grouped.server.receives + grouped.client.receives
    fewer = plan_cost(study, clients=1_000, rows=40, dropout=0.6)
    assert fewer.stops
    assert fewer.server.receives == 400 * fewer.client.sends


@pytest.mark.parametrize(
    ("clients", "group", "dropout", "answering", "refused"),
    [
        (10, 2, 0.0, (2, 2), "all"),
        (10, 4, 0.0, (2, 4), "the last"),
        (12, 4, 0.5, (2, 2), "all"),
        (12, 4, 0.25, (3, 3), "none"),
        (10, None, 0.5, None, "none"),
    ],
)
def test_a_plan_knows_which_groups_aggregators_would_refuse(
    clients, group, dropout, answering, refused
):
    study = Study(**SMALL, nuisances=KNOWN)
    plan = plan_cost(study, clients=clients, rows=40, group=group, dropout=dropout)
    assert (plan.answering, plan.refused) == (answering, refused)


def test_the_verb_says_which_groups_would_take_no_part(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    asked = ("cost", path, "--rows", "60")
    done = fedopl(*asked, "--clients", "10", "--group", "2")
    assert done.code == 0, done.err
    assert "Only 2 members in each group would answer" in done.out
    assert "TOO_FEW_MEMBERS" in done.out
    last = fedopl(*asked, "--clients", "9", "--group", "4")
    assert "Only 1 member in the last group would answer" in last.out
    told = fedopl(*asked, "--clients", "10", "--group", "5", "--json").json()
    assert (told["answering"], told["refused"]) == ([5, 5], "none")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"joining": True}, "diagnose"),
        ({"mixture": {"kind": "minimax"}}, "minimax"),
        ({"target": {"client": "there"}}, "target"),
    ],
)
def test_what_depends_on_single_clients_is_not_planned(changed, said):
    study = Study(**SMALL, nuisances=KNOWN, **changed)
    with pytest.raises(OptionError, match=said):
        plan_cost(study, clients=10)


def test_the_verb_says_what_is_exact_and_what_is_an_estimate(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(STUDY)
    assert read_study(path)[0].n_features == 3
    done = fedopl("cost", path, "--clients", "1000000", "--rows", "60", "--dropout", "0.6")
    assert done.code == 0, done.err
    for said in (
        "1,000,000 clients",
        "A run takes 3 trips",
        "Bytes are exact",
        "estimates",
        "quorum",
    ):
        assert said in done.out
    told = fedopl("cost", path, "--clients", "100", "--rows", "60", "--json").json()
    assert told["server"]["receives"] == 100 * told["client"]["sends"]
    assert [trip["queries"][0] for trip in told["trips"]][:2] == ["Enrol", "SumScores"]
    for bad, key in ((("--dropout", "1"), "dropout"), (("--group", "1"), "group")):
        failed = fedopl("cost", path, *bad)
        assert failed.code
        assert f"--{key}" in failed.err


def test_a_page_shows_what_masks_cost(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "many-clients.md").read_text("utf-8")
    _, below = page.split("<!-- planned under masks -->\n```toml\n")
    study, said = below.split("```", 1)
    path = tmp_path / "masks.toml"
    path.write_text(study)
    (asked,) = re.findall(r"\$ fedopl cost masks.toml (.+)", said)
    done = fedopl("cost", path, *asked.split(), "--json")
    assert done.code == 0, done.err
    lacking = done.json()
    shares = next(one["answered"] for one in lacking["trips"] if "ShareSecrets" in one["queries"])
    said = " ".join(said.split())
    assert f"it takes {len(lacking['trips'])} trips" in said
    sent = in_bytes(lacking["client"]["sends"])
    assert f"a client sends {sent}, {in_bytes(shares)} of them shares of secrets" in said
    all_there = fedopl("cost", path, *asked.split("--dropout")[0].split(), "--json").json()
    sent = in_bytes(all_there["client"]["sends"])
    assert f"it takes {len(all_there['trips'])} trips, and a client sends {sent}" in said


def test_sizes_are_read_at_a_glance():
    assert [in_bytes(n) for n in (999, 1_000, 1_234_567, 1_230_000_000, 5_000 * 10**12)] == [
        "999 B",
        "1 KB",
        "1.23 MB",
        "1.23 GB",
        "5,000 TB",
    ]
