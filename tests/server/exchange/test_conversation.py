"""A query says whether each client's own answer is needed, and is asked in no other way.

Totals are taken answer by answer, whatever the order of arrival and however many clients there are.
"""

import tracemalloc
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import pytest

from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.server.exchange import answers
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange.journal import Journal
from fedopl.study.study import Study

WEIGHTS = {"north": 0.25, "south": 0.75}


def begun(draw):
    data = {name: draw(120, seed=seed) for seed, name in enumerate(WEIGHTS)}
    first = data["north"]
    study = Study(actions=first.action_names, features=first.feature_names)
    doors = {
        name: Door(name, own, study, limits=Limits.open(), secret=SEED_ALONE)
        for name, own in data.items()
    }
    return Conversation(study, InProcess(doors), Journal())


@pytest.fixture
def conversation(draw):
    return begun(draw)


def test_a_total_is_the_sum_of_what_each_client_answers(draw):
    (each,) = begun(draw).together(WEIGHTS, SumOutcomes())
    total = begun(draw).total(SumOutcomes(), WEIGHTS)
    np.testing.assert_array_equal(total.sums, each["north"].sums + each["south"].sums)
    assert total.study == b""  # nobody's answer, but what they come to


def test_a_total_is_not_to_be_had_client_by_client(conversation):
    with pytest.raises(TypeError, match="SumOutcomes asks for the total"):
        conversation.each(SumOutcomes(), WEIGHTS)
    assert not conversation.rounds


def test_what_is_each_clients_own_is_not_added_up(conversation):
    with pytest.raises(TypeError, match="Enrol asks for each client's own answer"):
        conversation.total(Enrol(), WEIGHTS)
    assert not conversation.rounds


@dataclass
class Arriving:
    """Clients who answer in this order; several may speak through one door."""

    doors: dict[str, Door]

    @property
    def clients(self):
        return tuple(self.doors)

    def exchange(self, queries):
        return ((name, door.handle(queries[name])) for name, door in self.doors.items())


def conversation_of(data, names):
    first = data[0]
    study = Study(actions=first.action_names, features=first.feature_names)
    doors = [Door("a client", own, study, limits=Limits.open(), secret=SEED_ALONE) for own in data]
    return Conversation(study, Arriving(dict(zip(names, cycle(doors), strict=False))), Journal())


def test_the_order_of_arrival_changes_no_bit(draw):
    data = [draw(120, seed=seed) for seed in range(5)]
    names = "abcde"
    weights = dict.fromkeys(names, 0.2)
    expected = conversation_of(data, names).total(SumOutcomes(), weights).sums
    for order in ("edcba", "cabed"):
        shuffled = [data[names.index(name)] for name in order]
        total = conversation_of(shuffled, order).total(SumOutcomes(), weights).sums
        np.testing.assert_array_equal(total, expected)
        by_arrival = sum(each.sums for each in answers_of(shuffled, order))
        assert (by_arrival != expected).any()  # or the order would not matter anyway


def answers_of(data, names):
    (answers,) = conversation_of(data, names).together(names, SumOutcomes())
    return [answers[name] for name in names]


def test_a_total_takes_no_more_memory_with_more_clients(draw, monkeypatch):
    monkeypatch.setattr(answers, "MOST_IN_MEMORY", 1 << 16)
    monkeypatch.setattr(SumOutcomes, "most", classmethod(lambda *_: 2))
    data, peaks = draw(400, n_features=30), []
    for n_clients in (10, 200):
        names = [f"c{number:03d}" for number in range(n_clients)]
        asking = conversation_of([data], names)
        asking.total(SumOutcomes(), dict.fromkeys(names, 1.0))  # what a door keeps is its own
        tracemalloc.start()
        total = asking.total(SumOutcomes(), dict.fromkeys(names, 1.0))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 5 * total.sums.nbytes


def test_seven_of_a_hundred_are_seven_percent(draw):
    """Though .07 · 100 is a little more than 7 in binary."""
    names = [f"client {number}" for number in range(100)]
    conversation = conversation_of([draw(60)], names)
    conversation.study = conversation.study.model_copy(update={"quorum": 0.07})
    told = answers.Answers(0, dict.fromkeys(names[:7], Enrol()))
    assert conversation.has_quorum(told)
    assert conversation.require_quorum(told) is told
    assert not conversation.has_quorum(told.without({names[0]: ""}))
