"""Runs whose answers are added up under masks: from study files, of every kind of policy."""

import re

import numpy as np
import pytest

import fedopl
from fedopl.base.labels import GLOBAL
from fedopl.report.joining.advising import joining_facts
from fedopl.report.joining.joining_json import joining_json
from fedopl.report.page import render
from fedopl.results.value_tables import LEARNED
from fedopl.server.exchange_counts import expected_trips
from tiny_study import fedopl as said
from tiny_study import write_tiny

pytestmark = pytest.mark.usefixtures("without_figures")

FEATURES = ("x0", "x1", "x2")
RANGES = dict.fromkeys(FEATURES, (-2.0, 2.0))
SLOPES = np.array([[1.0, 0.0, 0.3], [0.0, 1.0, -0.3]])
LEVELS = {"x": 0.0, "y": 1.5, "z": -1.5}  # what outcomes of a client are about


def trial(n_rows, seed, level=0.0, *, known=True):
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(n_rows, 3))
    actions = rng.integers(2, size=n_rows)
    means = level + contexts @ SLOPES.T
    outcomes = np.clip(means[np.arange(n_rows), actions] + rng.normal(size=n_rows), -5, 5)
    chances = np.full(n_rows, 0.5) if known else None
    names = {"action_names": ("a", "b"), "feature_names": FEATURES}
    return fedopl.LoggedData(contexts, actions, outcomes, chances, **names)


def learned(n_rows=600, seed=0, *, known=True, turned=False, policy="linear", **plan):
    mixture = plan.pop("mixture", "empirical")
    sizes = {"x": n_rows, "y": 2 * n_rows, "z": n_rows // 2}
    said = {"epsilon": 2.0, "aggregation": "secure"} | plan
    rows = {
        name: trial(n_own, [seed, place], LEVELS[name], known=known)
        for place, (name, n_own) in enumerate(sizes.items())
    }
    return fedopl.learn(
        dict(reversed(rows.items())) if turned else rows,
        policy=policy,
        basis="linear",
        mixture=mixture,
        privacy=fedopl.PrivacyPlan(outcome=(-5, 5), ranges=RANGES, **said),
        declared=fedopl.Declared(overlap=0.4),
        running=fedopl.Running(secret=f"secret {seed}"),
    )


def regret(run):
    contexts = np.random.default_rng(99).normal(size=(20_000, 3))
    means = contexts @ SLOPES.T
    return means.max(axis=1).mean() - means[np.arange(20_000), run.policy.decide(contexts)].mean()


def test_clients_of_twenty_rows_take_part_with_the_limits_they_have():
    rows = {f"c{place:02}": trial(20, [7, place]) for place in range(25)}
    options = {
        "basis": "linear",
        "privacy": fedopl.PrivacyPlan(
            epsilon=8.0, outcome=(-5, 5), ranges=RANGES, aggregation="secure"
        ),
        "declared": fedopl.Declared(overlap=0.4),
        "running": fedopl.Running(secret="secret"),
    }
    run = fedopl.learn(rows, evaluation=0, limits=fedopl.Limits(), **options)
    assert not run.refusals
    assert regret(run) < 0.15  # of 0.6 that the best action for everybody loses
    plain = fedopl.PrivacyPlan(epsilon=8.0, outcome=(-5, 5), ranges=RANGES)
    with pytest.raises(fedopl.FederationError, match="TOO_FEW_ROWS"):
        fedopl.learn(rows, evaluation=0, limits=fedopl.Limits(), **options | {"privacy": plain})


@pytest.mark.parametrize("policy", ["linear", "tree", fedopl.Finite()], ids=str)
@pytest.mark.parametrize("known", [True, False], ids=["known", "modelled"])
def test_every_kind_of_policy_is_learned_and_valued_from_totals_alone(policy, known):
    run = learned(policy=policy, known=known)
    assert {row.client for row in run.values.rows} == {GLOBAL}
    assert "local policy" not in str(run)
    if policy == "linear":
        assert regret(run) < 0.02  # the better arm loses 0.6
    asked = [one.query for one in run.rounds]
    assert asked[:4] == ["Enrol", "TellKeys", "TakeRoster", "SumPrivately"]
    # m masked exchanges take m + 1 trips.
    assert run.rounds[-1].trip + 1 == len(asked) - 3 + 1
    page = " ".join(re.sub(r"<[^>]+>", " ", render(run)).split())
    assert "nothing is claimed about any client" in page
    assert "if at most 1 client tells it all they know" in page
    assert "s answer was wrong if one was" in page
    told = joining_json(joining_facts(run))
    assert told["contexts"] is None  # sums are of all clients alone
    assert told["why_nothing"].startswith("Answers of clients were added up under masks")


def test_a_total_has_less_noise_than_answers_of_each_and_the_order_of_clients_changes_nothing():
    def mean_error(runs):
        return np.mean([run.values.of(LEARNED).standard_error for run in runs])

    under_masks = [learned(seed=seed) for seed in range(4)]
    each = [learned(seed=seed, aggregation="plain") for seed in range(4)]
    assert mean_error(under_masks) < 0.9 * mean_error(each)
    again = learned(seed=3, turned=True)
    np.testing.assert_array_equal(under_masks[3].policy.parameters, again.policy.parameters)


@pytest.mark.parametrize("mixture", ["empirical", "uniform"])
def test_intervals_cover_what_the_policy_is_worth_though_clients_differ(mixture):
    contexts = np.random.default_rng(5).normal(size=(50_000, 3))
    means = contexts @ SLOPES.T
    held = 0
    for seed in range(20):
        run = learned(400, seed, mixture=mixture, epsilon=4.0)
        truth = means[np.arange(50_000), run.policy.decide(contexts)].mean()
        truth += sum(run.mixture[name] * LEVELS[name] for name in LEVELS)
        low, high = run.values.of(LEARNED).interval()
        held += low <= truth <= high
    # Of intervals that hold in 95 %, fewer than 16 of 20 do in one of 390 tries.
    assert held >= 16


def test_a_study_file_with_keys_is_checked_previewed_run_and_read_again(tmp_path):
    tiny = write_tiny(tmp_path)
    tiny.edit('propensity = "marginal"', 'propensity = "auto"')
    tiny.add(
        "[declared]\noverlap = 0.2\n[privacy]\nepsilon = 8\noutcome = [0, 15]\n"
        'aggregation = "secure"\n[privacy.ranges]\nage = [40, 80]\nseverity = [0, 6]\n'
    )
    lacking = tiny.check()
    assert lacking.code == 1
    assert "fedopl keys" in lacking.text
    printed = said("keys", tiny.clients)
    assert printed.out.startswith("[privacy.keys]\nnorth = ")
    assert said("keys", tiny.clients / "north", "--json").json().keys() == {"north"}
    # A key that is another's is noticed before anything leaves.
    right = printed.out.splitlines()[-1]
    tiny.add(printed.out.replace(right, f'west = "{64 * "0"}"'))
    wrong = tiny.check()
    assert wrong.code == 1
    assert "its key is not the one that the study registers" in wrong.text
    tiny.edit(f'west = "{64 * "0"}"', right)
    ready = tiny.check()
    assert ready.code == 0, ready.text
    preview = said("preview", tiny.study, tiny.clients / "north", "--brief").out
    assert "SumPrivately → MaskedSums" in preview
    assert "rows_per_action" not in preview  # left out, so it is no part of what leaves
    assert "are lacking, they look random" in preview
    price = said("privacy", tiny.study, "--rows", 60, "--rows", 60, "--rows", 60).out
    assert "Noise in the total of every number" in price
    done = tiny.run()
    assert done.code == 0, done.text
    again = fedopl.load_run(tiny.out)
    assert again.verdict in done.text
    page = render(again)
    assert "Kept at the client, for propensities" in page
    assert "How many rows took each action was left out of enrolment" in page
    assert "how many took each action" not in page
    ledger = said("ledger", tiny.clients / "north").out
    assert "MaskedSums" in ledger


POLICIES = {"linear": ("linear", 6), "tree": ("tree", 4), "candidates": (fedopl.Finite(), 3)}


@pytest.mark.parametrize(("policy", "n_sums"), POLICIES.values(), ids=POLICIES)
def test_where_clients_may_be_lacking_every_kind_of_policy_takes_two_trips_a_sum(policy, n_sums):
    run = learned(policy=policy, dropouts=1, colluders=0)
    asked = [one.query for one in run.rounds]
    assert asked[:4] == ["Enrol", "TellKeys", "TakeRoster", "ShareSecrets"]
    assert asked[5::2] == ["Unmask"] * n_sums
    assert run.rounds[-1].trip + 1 == 2 * n_sums + 2 == expected_trips(run.study, 3)
    for dropouts, aggregation, n_trips in ((0, "secure", n_sums + 1), (0, "plain", n_sums)):
        plan = {"dropouts": dropouts, "aggregation": aggregation, "keys": {}, "noise": "local"}
        said = run.study.privacy.model_dump() | plan | {"colluders": 1}
        said |= {"keys": run.study.privacy.keys} if aggregation == "secure" else {}
        other = run.study.model_copy(update={"privacy": fedopl.PrivacyPlan(**said)})
        assert expected_trips(other, 3) == n_trips
    if policy == "linear":
        assert regret(run) < 0.02
    assert "could have been lacking in a sum; none was" in render(run)


def test_a_study_file_in_which_a_client_may_be_lacking_is_checked_previewed_and_run(tmp_path):
    tiny = write_tiny(tmp_path)
    tiny.edit('propensity = "marginal"', 'propensity = "auto"')
    plan = "[declared]\noverlap = 0.2\n[privacy]\nepsilon = 8\nsteps = 1\noutcome = [0, 15]\n"
    plan += 'aggregation = "secure"\ncolluders = 1\ndropouts = 1\n'
    tiny.add(f"{plan}[privacy.ranges]\nage = [40, 80]\nseverity = [0, 6]\n")
    tiny.add(said("keys", tiny.clients).out)
    few = tiny.check()
    assert few.code == 1
    assert "of 3 clients of which 1 may collude, at most 0 may be lacking" in few.text
    tiny.edit("colluders = 1", "colluders = 0\nvalues_apart = 0.5")
    assert tiny.check().code == 0
    preview = said("preview", tiny.study, tiny.clients / "north", "--brief").out
    assert "Unmask → UnmaskingShares" in preview
    assert "Shares hold no information about rows" in preview
    price = said("privacy", tiny.study, "--rows", 60, "--rows", 60, "--rows", 60).out
    assert "and at most 1 client is lacking in a sum" in price
    # What is read of each client apart, and what that costs, is said before, beside and after.
    assert "ValueApart → ValuesApart" in preview
    assert "The server reads values apart for each client" in preview
    assert "Of each client apart: sums of values" in price
    assert "at one client" in price
    done = tiny.run()
    assert done.code == 0, done.text
    again = fedopl.load_run(tiny.out)
    assert again.lacking == ()
    assert {row.client for row in again.values.rows} == {GLOBAL, "north", "south", "west"}
    assert "went to values that the server read for each client apart" in render(again)
    ledger = said("ledger", tiny.clients / "north").out
    assert "UnmaskingShares" in ledger
    assert "ValuesApart" in ledger
