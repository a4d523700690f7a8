"""Rounds of a network: far better where features act three at a time, and exact where none do."""

from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.base.errors import OptionError
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.messages.learning.policy_steps import TrainedNetwork
from fedopl.policies.policy import policy_json
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from trips import Edited

NAMES = ("east", "north")
PLAN = fedopl.Neural(hidden=(24, 24), rounds=14, local_steps=24, rate=0.01, patience=6)
OPTIONS = {"nuisances": fedopl.NuisancePlan(propensity="marginal", folds=3), "policy": PLAN}


def effect(contexts, *, deep):
    """What the second action is worth beyond the first."""
    together = np.prod(np.sign(contexts[:, :3]), axis=1)
    return together if deep else contexts[:, 0]


def clients_with(*, deep, n_rows=1500):
    found = {}
    for turn, name in enumerate(NAMES):
        rng = np.random.default_rng(turn)
        contexts = rng.standard_normal((n_rows, 4))
        actions = rng.integers(0, 2, n_rows)
        rewards = actions * effect(contexts, deep=deep) + 0.5 * rng.standard_normal(n_rows)
        found[name] = fedopl.LoggedData(contexts, actions, rewards, action_names=["no", "yes"])
    return found


def right(policy, *, deep):
    """The share of fresh contexts in which it decides for the better action."""
    contexts = np.random.default_rng(9).standard_normal((4000, 4))
    return float(np.mean((effect(contexts, deep=deep) > 0) == policy.decide(contexts)))


@pytest.fixture(scope="module")
def deep():
    return fedopl.learn(clients_with(deep=True), basis="linear", **{"evaluation": 0.25, **OPTIONS})


def test_it_learns_what_three_features_do_together(deep):
    assert right(deep.policy.start, deep=True) < 0.6
    assert right(deep.policy, deep=True) > 0.8
    losses = [latest.loss for latest in deep.rounds if latest.loss is not None]
    assert losses[0] == 0  # the first network says nothing
    assert min(losses) < -0.1
    assert deep.values.of("learned").value - deep.values.of("everybody gets yes").value > 0


def test_where_effects_are_linear_it_is_the_exact_linear_policy():
    clients = clients_with(deep=False, n_rows=400)
    run = fedopl.learn(clients, basis="linear", **{"evaluation": 0.25, **OPTIONS})
    exact = fedopl.learn(
        clients, basis="linear", **{"evaluation": 0.25, **OPTIONS, "policy": "linear"}
    )
    assert run.policy.is_linear
    assert run.policy.start.parameters.tobytes() == exact.policy.parameters.tobytes()
    contexts = np.random.default_rng(8).standard_normal((500, 4))
    np.testing.assert_array_equal(run.policy.decide(contexts), exact.policy.decide(contexts))
    n_rounds = sum(latest.query == "TrainNetwork" for latest in run.rounds)
    assert n_rounds < PLAN.rounds  # it stopped where patience ended


@pytest.mark.parametrize("loss", ["regression", "softmax"])
def test_neither_the_order_of_clients_nor_threads_change_a_bit(loss):
    clients = clients_with(deep=True, n_rows=200)
    options = {**OPTIONS, "policy": fedopl.Neural(hidden=(5,), rounds=4, loss=loss)}
    run = fedopl.learn(clients, basis="linear", **options)
    other = fedopl.learn(
        dict(reversed(clients.items())),
        basis="linear",
        running=fedopl.Running(threads=2),
        **options,
    )
    assert policy_json(run.policy) == policy_json(other.policy)
    assert str(run) == str(other)


def test_a_run_that_was_stopped_goes_on_from_its_journal(tmp_path):
    clients = clients_with(deep=True, n_rows=200)
    options = {**OPTIONS, "policy": fedopl.Neural(hidden=(5,), rounds=5)}
    whole = fedopl.learn(clients, basis="linear", **options)

    class StoppedError(Exception):
        pass

    def stop(latest):
        if latest.query == "TrainNetwork" and latest.exchange > 4:
            raise StoppedError

    running = fedopl.Running(journal=tmp_path, progress=stop)
    with pytest.raises(StoppedError):
        fedopl.learn(clients, basis="linear", running=running, **options)
    again = fedopl.learn(
        clients, basis="linear", running=fedopl.Running(journal=tmp_path), **options
    )
    assert policy_json(again.policy) == policy_json(whole.policy)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mixture": "minimax"}, "a minimax mixture needs policies for many mixtures"),
        ({"mixture": fedopl.mixture.path("east")}, "a path mixture needs policies"),
        ({"diagnose": True}, "judge it with a linear policy"),
        ({"evaluation": "cross-fitted"}, "hold rows out"),
    ],
    ids=lambda given: str(given)[:20],
)
def test_what_a_network_is_not_for_is_refused_in_words(options, said):
    with pytest.raises((OptionError, ValueError), match=said):
        fedopl.learn(clients_with(deep=True, n_rows=100), basis="linear", **{**OPTIONS, **options})


STUDY = fedopl.Study(
    actions=("no", "yes"),
    features=("x0", "x1", "x2", "x3"),
    nuisances=OPTIONS["nuisances"],
    policy=fedopl.Neural(hidden=(2,), rounds=2),
)


def rejected_for(**changes):
    """Who is rejected in the first round, and why, where one client changes its answers so."""

    def edit(message):
        return replace(message, **changes) if isinstance(message, TrainedNetwork) else message

    doors = {
        name: Door(name, data, STUDY, secret=SEED_ALONE, limits=fedopl.Limits.open())
        for name, data in clients_with(deep=True, n_rows=120).items()
    }
    conversation = Conversation(STUDY, Edited(doors, STUDY, "east", edit))
    run_study(conversation)
    first, *_ = (one for one in conversation.rounds if one.query == "TrainNetwork")
    return first.rejected


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"loss_variance": -1.0}, "the variance of its loss is negative"),
        ({"network": np.full(16, 1e7)}, "a number of its network is beyond 1e+06"),
    ],
)
def test_an_answer_that_cannot_be_true_is_rejected_by_name(changes, said):
    assert rejected_for(**changes) == {"east": said}
