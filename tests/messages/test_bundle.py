import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedopl.base.errors import WireError
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.client.table.logged_data import LoggedData
from fedopl.messages import codec
from fedopl.messages.bundle import (
    BUNDLE_MAGIC,
    MOST_TOGETHER,
    bundled,
    headed,
    unbundled,
    unheaded,
)
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.learning.enrolment import Enrol, Enrolment
from fedopl.messages.learning.outcome_sums import OutcomeSums, SumOutcomes
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.study.plans import NuisancePlan
from fedopl.study.study import Study

STUDY = Study(
    actions=("a", "b"), features=("x0", "x1"), nuisances=NuisancePlan(folds=2, propensity="known")
)
TOGETHER = st.lists(st.binary(max_size=60), min_size=2, max_size=MOST_TOGETHER)


def new_door():
    rng = np.random.default_rng(0)
    contexts, actions = rng.standard_normal((120, 2)), np.arange(120) % 2
    rewards = rng.standard_normal(120)
    data = LoggedData(contexts, actions, rewards, np.full((120, 2), 0.5), action_names=["a", "b"])
    return Door("north", data, STUDY, secret=SEED_ALONE)


def query(kind=Enrol, exchange=0):
    return codec.encode(kind(study=STUDY.digest, exchange=exchange))


def answers_in(reply):
    return [codec.decode(part, axis_sizes(STUDY)) for part in unbundled(reply)]


def refusals_in(reply):
    answers = answers_in(reply)
    assert all(isinstance(answer, Refusal) for answer in answers)
    return [answer.reason for answer in answers]


@given(TOGETHER)
def test_messages_come_back_as_they_went_and_in_order(messages):
    assert unbundled(bundled(messages)) == messages


@given(st.binary().filter(lambda content: not content.startswith(BUNDLE_MAGIC)))
def test_a_single_message_travels_as_it_is(message):
    assert bundled([message]) == message
    assert unbundled(message) == [message]


@given(TOGETHER, st.data())
def test_a_bundle_that_was_cut_anywhere_is_refused(messages, data):
    content = bundled(messages)
    end = data.draw(st.integers(len(BUNDLE_MAGIC), len(content) - 1))
    with pytest.raises(WireError):
        unbundled(content[:end])


@given(TOGETHER, st.binary(min_size=1))
def test_a_bundle_with_something_behind_it_is_refused(messages, more):
    with pytest.raises(WireError):
        unbundled(bundled(messages) + more)


@given(TOGETHER, st.data())
def test_tampering_gives_messages_or_a_wire_error_and_nothing_else(messages, data):
    content = bytearray(bundled(messages))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        parts = unbundled(bytes(content))
    except WireError:
        return
    assert sum(map(len, parts)) <= len(content)


@pytest.mark.parametrize("count", [0, 1, MOST_TOGETHER + 1, 2**32 - 1])
def test_a_bundle_of_none_of_one_or_of_too_many_is_refused(count):
    few = min(count, MOST_TOGETHER + 1)
    content = struct.pack("<4sI", BUNDLE_MAGIC, count) + struct.pack("<I", 1) * few + b"x" * few
    with pytest.raises(WireError, match="messages together"):
        unbundled(content)


def test_a_door_answers_each_query_of_a_bundle_in_its_place():
    reply = new_door().handle(bundled([query(SumOutcomes, 1), query(), query(SumOutcomes, 1)]))
    answers = answers_in(reply)
    assert [type(answer) for answer in answers] == [OutcomeSums, Enrolment, OutcomeSums]
    assert [answer.exchange for answer in answers] == [1, 0, 1]


def test_a_bad_query_among_good_ones_is_refused_alone():
    good, bad, other = answers_in(new_door().handle(bundled([query(), b"nonsense", query()])))
    assert isinstance(good, Enrolment)
    assert isinstance(other, Enrolment)
    assert bad.reason is RefusalCode.MALFORMED


@pytest.mark.parametrize(
    "content",
    [
        bundled([query(), query()])[:-1],
        bundled([query(), query()]) + b"x",
        bundled([query()] * (MOST_TOGETHER + 1)),
        BUNDLE_MAGIC,
        struct.pack("<4sI", BUNDLE_MAGIC, 0),
        struct.pack("<4sII", BUNDLE_MAGIC, 2, 2**32 - 1),
    ],
    ids=["cut off", "left over", "too many", "magic alone", "empty", "longer than it is"],
)
def test_a_door_refuses_a_broken_bundle_as_a_whole(content):
    assert refusals_in(new_door().handle(content)) == [RefusalCode.MALFORMED]


def test_a_bundle_within_a_bundle_is_no_query():
    nested = bundled([bundled([query(), query()]), bundled([query(), query()])])
    assert refusals_in(new_door().handle(nested)) == [RefusalCode.MALFORMED] * 2


@given(st.data())
def test_a_door_answers_whatever_comes_and_writes_down_every_part(data):
    content = bytearray(bundled([query(), query(SumOutcomes, 1)]))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    door = new_door()
    answers = answers_in(door.handle(bytes(content)))
    assert len(answers) == len(door.ledger.entries())
    assert all(isinstance(answer, Enrolment | OutcomeSums | Refusal) for answer in answers)


def test_an_envelope_is_taken_off_as_it_was_put_on():
    for content in (b"", b"one", bundled([b"one", b"two"])):
        assert unheaded(headed(content, 7)) == (content, 7)
        assert unheaded(content) == (content, None)
    assert unheaded(headed(b"", 7)[:-1]) == (headed(b"", 7)[:-1], None)
