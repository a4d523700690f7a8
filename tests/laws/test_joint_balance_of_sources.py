"""Weights for all sources together: what is said of a target is what pooled rows say."""

from dataclasses import replace

import numpy as np
import pytest
from test_new_site import (
    ACTIONS,
    CLIENTS,
    THERE,
    contexts,
    left_by_models,
    logged,
    means_of,
    modelled,
    opened,
)

import fedopl
from fedopl.base.errors import OptionError
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.messages.about_target import (
    MOST_BALANCING_STEPS,
    BalanceContexts,
    BalanceSums,
    TransportedValues,
    ValueAtTarget,
)
from fedopl.policies.kinds import packed
from fedopl.report.page import render
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange_counts import expected_trips
from fedopl.server.federation import run_study
from fedopl.solvers.entropy_balance import LARGEST_GAP, balance
from fedopl.study.plans import TargetPlan
from fedopl.study.study import Study

pytestmark = pytest.mark.usefixtures("without_figures")

# Far from each other and from the target, which lies between them.
APART = {
    name: logged(seed, 900, middle=place)
    for seed, (name, place) in enumerate(
        {"low": [-1.2, -0.2, 0.0], "high": [1.4, -0.5, 0.0], "side": [0.3, 1.3, 0.0]}.items()
    )
}


def learned(clients=CLIENTS, target=THERE, **options):
    usual = {"basis": "linear", "balance": "joint", "personal": "none"}
    return fedopl.learn(clients, target=target, **{"evaluation": 0.25, **usual, **options})


@pytest.fixture(scope="module")
def run():
    return learned(APART)


@pytest.fixture(scope="module")
def doors():
    return opened(APART, TargetPlan(client="new", balance="joint"))


def in_one_place(doors, record):
    """Values and their covariances, from everybody's rows, scores and weights in one place."""
    there = THERE.contexts
    said = modelled(record, there)
    rows, rest = zip(*(left_by_models(record, doors[name]) for name in APART), strict=True)
    own = [
        np.full(len(held), record.rows[name] / len(held))
        for name, held in zip(APART, rows, strict=True)
    ]
    moments = there.mean(axis=0), (there**2).mean(axis=0)
    weights = balance(np.vstack(rows), *moments, np.concatenate(own)).weights
    rest = np.vstack(rest)
    moved = weights[:, None] * (rest - weights @ rest) / (1 - weights[:, None])
    about = (said - said.mean(axis=0)) / (len(there) - 1)
    covariances = about.T @ about + moved.T @ moved
    return said.mean(axis=0) + weights @ rest, covariances, 1 / np.sum(weights**2)


def test_federated_equals_pooled_up_to_what_weights_are_found_to(doors):
    (doors, record), found = doors, doors[1].target
    values, covariances, rows = in_one_place(doors, record)
    told = np.array([(own.value, own.standard_error) for own in found.values.values()]).T
    assert told[0] == pytest.approx(values, abs=0.02)
    assert told[1] == pytest.approx(np.sqrt(np.diagonal(covariances)), rel=0.05)
    assert found.effective_rows == pytest.approx(rows, rel=0.05)


def test_with_as_many_steps_as_it_takes_it_is_the_same(doors, monkeypatch):
    """What is left is that effective rows of a source are rounded down."""
    from fedopl.server.target import value_there

    monkeypatch.setattr(value_there, "NEAR_ENOUGH", 1e-7)
    monkeypatch.setattr(value_there, "_NEARER", 1.0)
    doors, _ = doors
    study = next(iter(doors.values())).study
    again = {
        name: Door(
            name,
            door._space.study_rows.given,
            study,
            limits=fedopl.Limits.open(),
            secret=SEED_ALONE,
        )
        for name, door in doors.items()
    }
    record = run_study(Conversation(study, InProcess(again)))
    values, covariances, _ = in_one_place(again, record)
    told = np.array([(own.value, own.standard_error) for own in record.target.values.values()]).T
    assert told[0] == pytest.approx(values, abs=2e-3)
    assert told[1] == pytest.approx(np.sqrt(np.diagonal(covariances)), rel=5e-3)


def test_sources_far_apart_keep_more_rows_together_than_each_for_itself(run):
    alone, found = learned(APART, balance="each").target, run.target
    assert found.why_not == ""
    assert found.effective_rows > 1.5 * alone.effective_rows
    assert found.gap < LARGEST_GAP


def test_the_value_is_near_the_truth(run):
    x = np.random.default_rng(1).standard_normal((200_000, 3)) + 0.4
    truth = means_of(x)[np.arange(len(x)), run.policy.decide(x)].mean()
    low, high = run.target.values["learned"].interval()
    assert low < truth < high


def test_the_mixture_found_is_the_sources_shares_of_the_weights(run):
    found = run.target
    assert found.mixture == {one.client: one.share for one in found.sources}
    assert sum(found.mixture.values()) == pytest.approx(1.0)
    total = sum(run.rows.values())
    assert found.skewness == pytest.approx(
        sum(share**2 * total / run.rows[name] for name, share in found.mixture.items())
    )


def test_the_report_says_how_weights_were_found(run):
    page = render(run)
    for words in (
        "Weights were then found for the held-out rows of all sources together, in",
        "they cannot be compared with each other at the same contexts",
        "shares of the weights: the mixture under which",
        "Its price is a skewness of",
    ):
        assert words in page
    assert "Each source then weighted its own" not in page


def test_it_takes_a_trip_for_every_step_and_two_more(run):
    asked = [one.query for one in run.rounds if "Context" in one.query or "Target" in one.query]
    assert asked == ["TellContexts", *["BalanceContexts"] * run.target.n_steps, "ValueAtTarget"]
    assert 3 <= run.target.n_steps <= 7
    trips = len({one.trip for one in run.rounds})
    assert expected_trips(run.study, 3) == trips + MOST_BALANCING_STEPS - run.target.n_steps


def test_the_policy_and_all_else_are_those_of_the_study_without_a_target(run):
    plain = fedopl.learn(APART, basis="linear", personal="none", evaluation=0.25)
    assert np.array_equal(plain.policy.parameters, run.policy.parameters)
    assert plain.values == run.values


def test_the_order_of_clients_and_threads_change_nothing(run):
    turned = dict(reversed(APART.items()))
    assert learned(turned, running=fedopl.Running(threads=3)).target == run.target


def test_a_run_is_saved_and_loaded_as_it_was(run, tmp_path):
    run.save(tmp_path)
    assert fedopl.load_run(tmp_path).target == run.target


def test_a_run_that_asked_by_a_name_that_is_gone_has_its_report(run):
    rounds = [replace(one, query=one.query.replace("AtTarget", "Jointly")) for one in run.rounds]
    assert rounds[-1].query == "ValueJointly"
    assert render(replace(run, rounds=tuple(rounds))) == render(run)


def test_within_default_limits_noise_leaves_sources_about_as_near():
    found = learned(APART, limits="guarded").target
    assert found.why_not == ""
    assert found.gap < LARGEST_GAP
    assert all(one.used for one in found.sources)


def test_weights_and_groups_count():
    rng = np.random.default_rng(3)
    more = {"weights": rng.uniform(0.5, 2.0, 500), "groups": np.arange(500) // 2}
    clients = {name: logged(seed, **more) for seed, name in enumerate("ab")}
    found, plain = learned(clients).target, learned({n: logged(s) for s, n in enumerate("ab")})
    assert found.values["learned"].value != plain.target.values["learned"].value
    assert found.effective_rows <= 2 * 125 / 2


# --- each for itself, or together ---------------------------------------------------------------


def test_auto_is_each_where_that_leaves_enough_rows():
    found, alone = learned(balance="auto"), learned(balance="each")
    assert found.target == alone.target
    assert found.rounds[-1].query == "ValueAtTarget"


def test_auto_is_joint_where_each_leaves_too_few():
    far = {
        "low": logged(0, 600, middle=[-1.6, 0.0, 0.0]),
        "high": logged(1, 600, middle=[1.8, 0.0, 0.0]),
    }
    there = contexts(middle=[0.1, 0.0, 0.0])
    alone = learned(far, there, balance="each").target
    found = learned(far, there, balance="auto").target
    assert alone.effective_rows < 100
    assert found.balance == "joint"
    assert found.effective_rows > alone.effective_rows


def test_auto_does_not_go_on_where_sources_disagree():
    found = learned({"a": logged(0, 1000), "b": logged(1, 1000, odd=2.5)}, balance="auto")
    assert "disagree" in found.target.why_not
    assert found.rounds[-1].query == "ValueAtTarget"


# --- where nothing is claimed -------------------------------------------------------------------


def test_people_whom_nobody_has_seen_claim_nothing():
    run = learned(target=contexts(middle=[6.0, 0.0, 0.0]))
    found = run.target
    assert found.values == {}
    assert found.why_not
    assert found.balance == "joint"
    assert not any(one.used for one in found.sources)
    assert all(one.why_not for one in found.sources)
    # What is said of joint weights is said only where there are some.
    page = render(run)
    assert "shares of the weights: the mixture under which" not in page
    assert "By these sums, no mean" not in page


def test_a_source_whose_rows_come_to_too_few_leaves_and_the_others_go_on():
    clients = {**APART, "far": logged(7, 120, middle=[-3.0, 0.0, 0.0])}
    found = learned(clients, contexts(middle=[0.9, 0.5, 0.0]), limits="guarded").target
    out = {one.client: one.why_not for one in found.sources if not one.used}
    assert list(out) == ["far"]
    assert "its sums would rest on too few rows" in out["far"]
    assert set(found.mixture) == set(APART)
    assert found.values


def test_a_source_without_scores_of_an_action_leaves():
    data = logged(5)
    usual = fedopl.LoggedData(data.contexts, np.zeros(500, int), data.rewards, action_names=ACTIONS)
    nuisances = fedopl.NuisancePlan(unseen="mask", propensity="marginal")
    clients = {
        name: fedopl.LoggedData(own.contexts, own.actions, own.rewards, action_names=ACTIONS)
        for name, own in CLIENTS.items()
    }
    found = learned({**clients, "usual": usual}, nuisances=nuisances).target
    assert [one.why_not for one in found.sources if not one.used] == ["has no scores of an action"]
    assert found.values


def test_options_that_cannot_be_are_refused_in_words():
    with pytest.raises(OptionError, match="balance"):
        learned(balance="together")
    with pytest.raises(OptionError, match="there is none; give target"):
        fedopl.learn(CLIENTS, balance="joint")


def test_a_study_that_does_not_say_it_has_the_hash_it_had():
    said = Study(actions=ACTIONS, features=("x0",), target=TargetPlan(client="new"))
    joint = said.model_copy(update={"target": TargetPlan(client="new", balance="joint")})
    assert "balance" not in said.model_dump_json()
    assert Study.model_validate_json(joint.model_dump_json()) == joint
    assert joint.digest != said.digest


# --- answers that cannot be true ----------------------------------------------------------------


def sums(**changes):
    zeros = {"means": np.zeros(6), "products": np.eye(6), "log_weight": 0.0}
    return BalanceSums(**{"released": 1, "scored": 1, "n_rows": 100, **zeros, **changes})


LIES = {
    "more weight than its means allow": {"log_weight": 2.0},
    "products below the squares of means": {"means": np.full(6, 2.0)},
    "more rows than it has": {"n_rows": 400_000},
    "no rows": {"n_rows": 0},
    "a part": {"released": 2},
    "sums, though none were released": {"released": 0, "means": np.ones(6)},
}


@pytest.mark.parametrize("changes", LIES.values(), ids=LIES)
def test_sums_that_cannot_be_true_are_rejected(run, changes):
    units = {"centres": np.zeros(4), "scales": np.ones(4)}
    query = BalanceContexts(**units, slopes=np.full(6, 0.1))
    assert query.fault_in(sums(), run.study, 1_000) is None
    assert query.fault_in(sums(**changes), run.study, 1_000)


def values(**changes):
    zeros = {"means": np.zeros(3), "crossed": np.zeros(3), "covariances": np.eye(3)}
    more = {"known": np.ones(3), "shares": np.zeros(4), "effective_rows": 50.0, "apart": 0.0}
    return TransportedValues(**{"released": 1, "n_rows": 100, **zeros, **more, **changes})


WRONG = {
    "more rows than it has": {"n_rows": 400_000},
    "more effective rows than rows": {"effective_rows": 101.0},
    "a part": {"released": 2},
    "a part of an action": {"known": np.full(3, 0.5)},
    "a share above 1": {"shares": np.full(4, 1.5)},
    "versions apart in more than all rows": {"apart": 1.5},
    "covariances that none can have": {"covariances": 1 - np.eye(3)},
    "values, though none were released": {"released": 0, "means": np.ones(3)},
    "parts of means, though none were released": {"released": 0, "crossed": np.ones(3)},
}


@pytest.mark.parametrize("changes", WRONG.values(), ids=WRONG)
def test_values_that_cannot_be_true_are_rejected(run, changes):
    lines = np.zeros((4, 4))
    like = {"means": lines[0], "squares": lines[0], "regions": lines}
    query = ValueAtTarget(models=lines[None], **like, **packed([], run.study))
    assert query.fault_in(values(), run.study, 1_000) is None
    assert query.fault_in(values(**changes), run.study, 1_000)
