"""A query says whether each client's own answer is needed, and is asked in no other way."""

import numpy as np
import pytest

from fedopl.client.disclosure.limits import Limits
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange.journal import Journal
from fedopl.study.study import Study

WEIGHTS = {"north": 0.25, "south": 0.75}


@pytest.fixture
def conversation(draw):
    data = {name: draw(120, seed=seed) for seed, name in enumerate(WEIGHTS)}
    first = data["north"]
    study = Study(actions=first.action_names, features=first.feature_names)
    doors = {name: Door(name, own, study, limits=Limits.open()) for name, own in data.items()}
    return Conversation(study, InProcess(doors), Journal())


def test_a_total_is_the_sum_of_what_each_client_answers(conversation):
    (each,) = conversation.together(WEIGHTS, SumOutcomes())
    total = conversation.total(SumOutcomes(), WEIGHTS)
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
