"""Whatever network a server sends, within default limits it does not learn of a person.

The server knows a person's context. It builds a network of which one unit is above zero for that
person alone: steps on what comes out of that unit are by that person's scores and nobody else's.
"""

from functools import partial

import numpy as np
import pytest
from lying_server import ACTIONS, N_FEATURES, LyingServer, rows, study_with

import fedopl
from fedopl.messages.learning.trained_network import TrainedNetwork, TrainNetwork
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import Refusal
from fedopl.policies.network import Layer, network_numbers

ROUNDS, N_PEOPLE = 8, 30
N_NUMBERS = 5 * 3 + 4 + 2 * 3
PLAN = fedopl.Neural(hidden=(3, 1), rounds=ROUNDS, local_steps=4, patience=ROUNDS)
OPEN = fedopl.Limits(value_noise=0.0, parameter_share=1e9)


def spotting(person, rng, *, height, says=0.0):
    """A network whose last unit is `height` at this person and 0 at everybody else."""
    direction = rng.standard_normal(N_FEATURES)
    at, reach = float(direction @ person), 1e-5
    first = Layer(
        np.tile(direction[:, None] / reach, (1, 3)) / 4,
        np.array([1.0, 0.0, -1.0]) / 4 - at / reach / 4,
    )
    # A triangle: nowhere above zero but within reach of the person.
    second = Layer(np.array([[4.0], [-8.0], [4.0]]) * height, np.zeros(1))
    last = Layer(np.array([[says, 0.0, 0.0]]), np.zeros(len(ACTIONS)))
    return network_numbers((first, second, last))


def spying(data, limits=None):
    server = LyingServer(data, study_with(policy=PLAN), limits=limits).score()
    width = N_FEATURES + 1
    fields = {
        "linear": np.zeros((len(ACTIONS), width)),
        "centre": np.zeros(width),
        "scale": np.ones(width),
        "spread": 1.0,
    }
    return server, partial(server.ask, TrainNetwork, **fields)


def by_steps(answer, sent):
    """Where the steps moved the first action's output from that unit."""
    return -(answer.network - sent)[-2 * len(ACTIONS)]


def by_loss(answer, _sent):
    """The loss, which for a small output is less by that much times the person's score."""
    return -answer.loss


def learned_of_people(split, read, says, limits=None):
    """What all rounds together, spent on one person, tell of a score; and those scores."""
    rng, found, truth = np.random.default_rng(0), [], []
    data = rows(300)
    space = spying(data)[0].door._space
    people = np.arange(space.rows(split).start, space.rows(split).stop)[:N_PEOPLE]
    for person in people:
        _, ask = spying(data, limits)
        seen = []
        for turn in range(ROUNDS):
            sent = spotting(space.data.contexts[person], rng, height=10.0, says=says)
            seen.append(read(ask(round=turn, network=sent), sent))
        found.append(np.mean(seen))
        truth.append(space.scores[person, 0])
    return np.corrcoef(found, truth)[0, 1] ** 2


@pytest.mark.parametrize(
    ("split", "read", "says"),
    [(RowSplit.FITTING, by_steps, 0.0), (RowSplit.VALIDATION, by_loss, 0.1)],
    ids=["steps", "loss"],
)
def test_all_rounds_spent_on_one_person_do_not_tell_the_outcome(split, read, says):
    without_noise = learned_of_people(split, read, says, OPEN)
    within_limits = learned_of_people(split, read, says)
    print(f"r² {without_noise:.2f} without noise, {within_limits:.2f} within default limits")
    assert without_noise > 0.4  # the attack is one; its steps differ by processor
    assert within_limits < 0.2


def test_a_round_is_asked_once_and_in_the_units_of_the_first():
    server, ask = spying(rows(300))
    network = spotting(np.zeros(N_FEATURES), np.random.default_rng(1), height=1.0)
    assert isinstance(ask(round=0, network=network), TrainedNetwork)
    assert ask(round=0, network=2 * network).reason.name == "BUDGET_SPENT"
    for field, other in (
        ("linear", np.ones((3, 5))),
        ("centre", np.ones(5)),
        ("scale", np.full(5, 2.0)),
        ("spread", 2.0),
    ):
        assert ask(round=1, network=network, **{field: other}).reason.name == "BUDGET_SPENT"
    assert isinstance(ask(round=1, network=network), TrainedNetwork)
    assert server.door.limits.withheld_answers == 20  # as all this is within default limits


@pytest.mark.parametrize(
    "wrong",
    [
        {"round": ROUNDS},
        {"round": -1},
        {"network": np.full(N_NUMBERS, 1e7)},
        {"spread": 0.0},
        {"scale": np.zeros(5)},
        {"linear": np.full((3, 5), 1e16)},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_what_no_honest_server_asks_is_refused_before_any_row_is_looked_at(wrong):
    _, ask = spying(rows(300))
    network = spotting(np.zeros(N_FEATURES), np.random.default_rng(1), height=1.0)
    assert ask(**{"round": 0, "network": network, **wrong}).reason.name == "MALFORMED"


def test_without_noise_a_network_has_no_more_numbers_than_rows_can_hide():
    limits = fedopl.Limits(value_noise=0.0)
    few, many = fedopl.Neural(hidden=(3, 1)), fedopl.Neural(hidden=(64, 64))
    told = []
    for plan in (few, many):
        server = LyingServer(rows(400), study_with(policy=plan), limits=limits).score()
        width, n_numbers = N_FEATURES + 1, N_NUMBERS if plan is few else 64 * 5 + 64 * 65 + 65 * 3
        answer = server.ask(
            TrainNetwork,
            round=0,
            network=np.zeros(n_numbers),
            linear=np.zeros((3, width)),
            centre=np.zeros(width),
            scale=np.ones(width),
            spread=1.0,
        )
        told.append(answer.reason.name if isinstance(answer, Refusal) else "answered")
    assert told == ["answered", "TOO_MANY_PARAMETERS"]
