import math
import shutil
from collections import Counter
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Error,
    Message,
    MessageType,
    RecordDict,
)
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.task_identity import TaskIdentity

import fedopl
from fedopl.base.errors import FederationError, StudyError
from fedopl.client.client_file import read_client, read_clients
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.disk.personal_store import kept_personal
from fedopl.client.disk.store import FolderStore
from fedopl.demo.hospitals import three_hospitals
from fedopl.engines.flower import flower_apps
from fedopl.engines.flower.flower_apps import FlowerTransport, client_app, server_app
from fedopl.engines.run import join_folder
from fedopl.messages import codec
from fedopl.messages.bundle import bundled, unbundled, unheaded
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.learning.enrolment import Enrol, Enrolment
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.policies.policy import policy_json
from fedopl.report.page import render
from fedopl.secure.keys import Identity
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange.journal import Journal
from fedopl.study.study_file import read_study
from tiny_study import STRONG

pytestmark = pytest.mark.usefixtures("without_figures")

DEADLINE = 60.0
NAMES = ("north", "south", "west")
BROKEN = Error(code=0, reason="it broke")


@dataclass
class Clock:
    """Time that passes only when somebody sleeps."""

    now: float = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@dataclass
class Node:
    """A node that answers its messages in turn: after how long, and with what."""

    name: str
    number: int
    answers: list = field(default_factory=list)
    since: str = "the beginning"
    there: tuple = (0.0, math.inf)


@dataclass
class Road:
    """Flower's Grid, with real messages and without a network."""

    clock: Clock
    nodes: list
    asked: list = field(default_factory=list)
    _due: dict = field(default_factory=dict)

    def get_nodes(self):
        return [
            NodeInfo(node_id=node.number, name=node.name, last_activated_at=node.since)
            for node in self.nodes
            if node.there[0] <= self.clock.now < node.there[1]
        ]

    def push_messages(self, messages):
        return [self._push(message) for message in messages]

    def _push(self, message):
        (node,) = [
            n
            for n in self.nodes
            if n.number == message.metadata.dst_node_id
            and n.there[0] <= self.clock.now < n.there[1]
        ]
        number = f"message {len(self.asked)}"
        message.metadata.__dict__["_message_id"] = number
        self.asked.append(node.name)
        delay, answer = node.answers.pop(0) if node.answers else (math.inf, BROKEN)
        if answer is None:
            return None
        if callable(answer):
            reply = answer(message)
        else:
            content = answer if isinstance(answer, Error | RecordDict) else packed(answer)
            reply = Message(content, reply_to=message)
        self._due[number] = (self.clock.now + delay, reply)
        return number

    def pull_messages(self, numbers):
        ready = [n for n in numbers if n in self._due and self._due[n][0] <= self.clock.now]
        return [self._due.pop(number)[1] for number in ready]


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """What Flower knows of the process that it started; its messages cannot be made without."""
    for name in ("run_id", "task_id", "node_id"):
        monkeypatch.setattr(TaskIdentity, f"_{name}", 1, raising=False)


def packed(content):
    return RecordDict({"fedopl": ConfigRecord({"bytes": content})})


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(flower_apps, "time", clock)
    return clock


def transport_over(road):
    names = tuple(sorted({node.name for node in road.nodes}))
    return FlowerTransport(road, names, DEADLINE)


def exchanged(road, transport=None, names=None):
    transport = transport or transport_over(road)
    queries = {name: f"to {name}".encode() for name in names or transport.clients}
    return list(transport.exchange(queries))


# --- the transport -----------------------------------------------------------------------------


def test_answers_are_handed_on_as_they_come_in_any_order(clock):
    delays = {"north": 9.0, "south": 1.0, "west": 4.0}
    nodes = [
        Node(name, place, [(delay, name.encode())])
        for place, (name, delay) in enumerate(delays.items(), 1)
    ]
    road = Road(clock, nodes)
    assert exchanged(road) == [("south", b"south"), ("west", b"west"), ("north", b"north")]
    assert sorted(road.asked) == sorted(delays)
    assert clock.now < 10


def test_everybody_gets_the_query_that_is_its_own(clock):
    seen = {}

    def remember(message):
        seen[message.metadata.dst_node_id] = message.content["fedopl"]["bytes"]
        return Message(packed(b"yes"), reply_to=message)

    nodes = [Node("north", 1, [(0, remember)]), Node("south", 2, [(0, remember)])]
    exchanged(Road(clock, nodes))
    assert seen == {1: b"to north", 2: b"to south"}


def test_a_node_that_failed_is_asked_again_and_its_answer_counts(clock):
    road = Road(clock, [Node("north", 1, [(1, BROKEN), (1, BROKEN), (1, b"yes")])])
    assert exchanged(road) == [("north", b"yes")]
    assert road.asked == ["north"] * 3


def test_a_node_that_always_fails_is_asked_three_times_and_no_more(clock):
    road = Road(clock, [Node("north", 1, [(1, BROKEN)] * 10), Node("south", 2, [(2, b"yes")])])
    assert exchanged(road) == [("south", b"yes")]
    assert Counter(road.asked) == {"north": 3, "south": 1}
    assert DEADLINE <= clock.now <= DEADLINE + 1


def test_a_message_that_flower_does_not_take_is_sent_again(clock):
    road = Road(clock, [Node("north", 1, [(0, None), (1, b"yes")])])
    assert exchanged(road) == [("north", b"yes")]


def test_a_node_that_was_started_anew_is_asked_again(clock):
    before = Node("north", 1, there=(0, 5))
    after = Node("north", 1, [(3, b"yes")], since="later", there=(20, math.inf))
    road = Road(clock, [before, after])
    assert exchanged(road) == [("north", b"yes")]
    assert road.asked == ["north", "north"]
    assert clock.now < 25


def test_a_node_that_was_asked_before_and_after_its_restart_answers_once(clock):
    before = Node("north", 1, [(30, b"yes")], there=(0, 5))
    after = Node("north", 1, [(10, b"yes")], since="later", there=(20, math.inf))
    slow = Node("south", 2, [(40, b"yes")])
    assert exchanged(Road(clock, [before, after, slow])) == [("north", b"yes"), ("south", b"yes")]


def test_failures_before_a_restart_are_forgiven(clock):
    before = Node("north", 1, [(1, BROKEN)] * 3, there=(0, 15))
    after = Node("north", 1, [(1, b"yes")], since="later", there=(20, math.inf))
    assert exchanged(Road(clock, [before, after])) == [("north", b"yes")]


def test_a_client_that_comes_late_but_in_time_is_asked(clock):
    road = Road(clock, [Node("north", 1, [(2, b"yes")], there=(40, math.inf))])
    assert exchanged(road) == [("north", b"yes")]


def test_nobody_is_waited_for_beyond_the_deadline(clock):
    road = Road(clock, [Node("north", 1, [(2, b"yes")]), Node("south", 2)])
    assert exchanged(road) == [("north", b"yes")]
    assert DEADLINE <= clock.now <= DEADLINE + 1


def test_who_missed_a_deadline_and_is_not_there_is_not_waited_for_again(clock):
    road = Road(
        clock,
        [
            Node("north", 1, [(2, b"1"), (2, b"2"), (2, b"3")]),
            Node("south", 2, [(2, b"3")], there=(DEADLINE + 10, math.inf)),
        ],
    )
    transport = transport_over(road)
    assert exchanged(road, transport) == [("north", b"1")]
    start = clock.now
    assert exchanged(road, transport) == [("north", b"2")]
    assert clock.now - start < 5
    clock.sleep(10)
    assert exchanged(road, transport) == [("north", b"3"), ("south", b"3")]


def test_a_client_that_was_not_invited_is_never_asked(clock):
    road = Road(clock, [Node("north", 1, [(1, b"yes")]), Node("stranger", 2, [(0, b"yes")])])
    transport = FlowerTransport(road, ("north",), DEADLINE)
    assert exchanged(road, transport) == [("north", b"yes")]
    assert road.asked == ["north"]


def test_only_those_are_asked_who_have_a_query(clock):
    road = Road(clock, [Node("north", 1, [(1, b"yes")]), Node("south", 2, [(1, b"yes")])])
    assert exchanged(road, names=["south"]) == [("south", b"yes")]


@pytest.mark.parametrize("delays", [(1, 1), (1, 9), (9, 1)])
def test_two_nodes_with_one_name_are_both_heard_and_neither_is_believed(clock, delays):
    study = fedopl.Study(actions=("a", "b"), features=("x",))
    content = codec.encode(
        Enrolment(study=study.digest, exchange=0, n_rows=9, rows_per_action=np.array([4.0, 5.0]))
    )
    nodes = [Node("north", place, [(delay, content)]) for place, delay in enumerate(delays, 1)]
    conversation = Conversation(study, transport_over(Road(clock, nodes)), Journal())
    assert conversation.each(Enrol(), ["north"]) == {}
    assert conversation.rounds[0].rejected == {"north": "answered 2 times"}
    assert clock.now < 12


@pytest.mark.parametrize(
    "content",
    [
        RecordDict({}),
        RecordDict({"other": ConfigRecord({"bytes": b"yes"})}),
        RecordDict({"fedopl": ConfigRecord({"text": b"yes"})}),
        RecordDict({"fedopl": ConfigRecord({"bytes": "yes"})}),
        RecordDict({"fedopl": ConfigRecord({"bytes": [1, 2]})}),
        RecordDict({"fedopl": ArrayRecord({"bytes": Array(np.zeros(3))})}),
    ],
    ids=["nothing", "other name", "other field", "text", "numbers", "arrays"],
)
def test_what_is_no_message_of_ours_is_an_empty_answer(clock, content):
    assert exchanged(Road(clock, [Node("north", 1, [(1, content)])])) == [("north", b"")]


def test_waiting_ends_when_everybody_is_there(clock):
    road = Road(clock, [Node("north", 1), Node("south", 2, there=(7, math.inf))])
    transport_over(road).wait_for_all(100)
    assert 7 <= clock.now < 8


def test_waiting_ends_when_the_time_is_over(clock):
    road = Road(clock, [Node("north", 1), Node("south", 2, there=(700, math.inf))])
    transport_over(road).wait_for_all(100)
    assert 100 <= clock.now < 101


# --- the apps ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    example = three_hospitals()
    return example.write(tmp_path_factory.mktemp("hospitals"))


@pytest.fixture
def own(tmp_path):
    return three_hospitals().write(tmp_path / "hospitals")


def context_of(node_config=None, run_config=None):
    return Context(1, 1, node_config or {}, RecordDict(), run_config or {})


def files_of(study, name="north"):
    return {"client": str(study.parent / "clients" / name), "study": str(study)}


def asked(content, config):
    """What the ClientApp replies to these bytes, called as a node would call it."""
    message = Message(packed(content), dst_node_id=1, message_type=MessageType.QUERY)
    message.metadata.__dict__["_message_id"] = "message 1"
    return client_app()(message, context_of(config))


def payload(reply):
    assert reply.has_content()
    assert list(reply.content) == ["fedopl"]
    assert list(reply.content["fedopl"]) == ["bytes"]
    return unheaded(reply.content["fedopl"]["bytes"])[0]  # without the ledger's head


def queries_of(agreed):
    kinds = (Enrol, SumOutcomes)
    return [codec.encode(kind(study=agreed.digest, exchange=k)) for k, kind in enumerate(kinds)]


def test_a_node_says_what_its_door_says(study):
    agreed, _ = read_study(study)
    first, second = queries_of(agreed)
    reply = payload(asked(bundled([first, second]), files_of(study)))
    sizes = axis_sizes(agreed)
    enrolled, _ = [codec.decode(part, sizes) for part in unbundled(reply)]
    assert isinstance(enrolled, Enrolment)
    assert enrolled.n_rows == 1680


def no_setting(_study):
    return {}


def no_study(study):
    return {"client": files_of(study)["client"]}


def no_such_client(study):
    return {**files_of(study), "client": str(study.parent / "nowhere")}


def no_such_study(study):
    return {**files_of(study), "study": str(study.parent / "nowhere.toml")}


def a_number(study):
    return {**files_of(study), "client": 7}


def broken_settings(study):
    (study.parent / "clients/north/client.toml").write_text("secret diagnosis = [")
    return files_of(study)


def no_rows(study):
    (study.parent / "clients/north/discharges.csv").unlink()
    return files_of(study)


def broken_rows(study):
    table = study.parent / "clients/north/discharges.csv"
    table.write_text(table.read_text().replace("usual care", "secret diagnosis", 1))
    return files_of(study)


def a_folder_for_a_file(study):
    return {**files_of(study), "study": str(study.parent)}


TROUBLES = [
    no_setting,
    no_study,
    no_such_client,
    no_such_study,
    a_number,
    broken_settings,
    no_rows,
    broken_rows,
    a_folder_for_a_file,
]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_whatever_is_wrong_at_a_node_a_code_leaves_and_no_text(own, trouble):
    agreed, _ = read_study(own)
    queries, config = queries_of(agreed), trouble(own)
    reply = payload(asked(bundled(queries), config))
    refusals = [codec.decode(part, axis_sizes(agreed)) for part in unbundled(reply)]
    assert [asdict(refusal) for refusal in refusals] == [
        {"study": agreed.digest, "exchange": place, "reason": RefusalCode.FAILED}
        for place in range(2)
    ]
    plain = codec.encode(Refusal(study=agreed.digest, exchange=0, reason=RefusalCode.FAILED))
    assert len(reply) == len(bundled([plain, plain]))


@pytest.mark.parametrize("content", [b"", b"nonsense", b"fopb", bundled([b"", b"x"])])
@pytest.mark.parametrize("trouble", [files_of, no_setting])
def test_nonsense_is_refused_by_a_node_that_works_and_by_one_that_does_not(study, trouble, content):
    agreed, _ = read_study(study)
    for part in unbundled(payload(asked(content, trouble(study)))):
        assert isinstance(codec.decode(part, axis_sizes(agreed)), Refusal)


def test_the_reason_is_in_the_nodes_own_log(own, caplog):
    asked(queries_of(read_study(own)[0])[0], no_such_client(own))
    assert "nowhere" in caplog.text


def test_a_node_that_would_share_its_personal_policy_answers_and_keeps_it(own, caplog):
    own.write_text(own.read_text() + '\n[personal]\nkind = "ridge"\n')
    settings = own.parent / "clients/north/client.toml"
    settings.write_text("share_personal = true\n" + settings.read_text())
    agreed, _ = read_study(own)
    (answer,) = unbundled(payload(asked(bundled(queries_of(agreed)[:1]), files_of(own))))
    assert not isinstance(codec.decode(answer, axis_sizes(agreed)), Refusal)
    assert "no message carries a personal policy, so it stays here" in caplog.text


def test_a_node_whose_owner_approves_by_hand_refuses_where_no_page_is_served(own):
    settings = own.parent / "clients/north/client.toml"
    settings.write_text('approve = "ask"\n' + settings.read_text())
    agreed, _ = read_study(own)
    queries = bundled(queries_of(agreed))
    refusals = [
        codec.decode(part, axis_sizes(agreed))
        for part in unbundled(payload(asked(queries, files_of(own))))
    ]
    assert [asdict(one)["reason"] for one in refusals] == [RefusalCode.NOT_APPROVED] * 2
    approvals = read_client(settings).approvals()
    assert [one.to for one in approvals.waiting()] == [f"Flower run {context_of().run_id}"] * 2
    for one in approvals.waiting():
        approvals.approve(one.sha256)
    # Approved once, they are answered when they are asked again.
    for part in unbundled(payload(asked(queries, files_of(own)))):
        assert not isinstance(codec.decode(part, axis_sizes(agreed)), Refusal)


def road_to(study, clock, n_messages=10, names=NAMES):
    """Three nodes, each of which calls the ClientApp with its own files."""

    def answer(name):
        return lambda message: client_app()(message, context_of(files_of(study, name)))

    return Road(
        clock,
        [
            Node(name, place, [(place, answer(name))] * n_messages)
            for place, name in enumerate(names, 1)
        ],
    )


def settings_for(out, **changes):
    return {
        "clients": ",".join(NAMES),
        "out": str(out),
        "arrival": 10.0,
        "deadline": DEADLINE,
        **changes,
    }


PRIVATE = """
[declared]
overlap = 0.1
[privacy]
epsilon = 8
outcome = [0, 30]
[privacy.ranges]
age = [30, 98]
severity = [0, 12]
kidney_function = [8, 120]
"""


def keys_of(study):
    """The keys of all clients, as `fedopl keys` prints them."""
    found = {
        name: Identity(PrivateDraws(0, name, client.secret()).key).public
        for name, client in read_clients(study.parent / "clients").items()
    }
    return "".join(f'{name} = "{key}"\n' for name, key in found.items())


MEASURED = 'scales = "measured"\n'
LACKING = PRIVATE.replace("outcome =", "steps = 1\ncolluders = 0\ndropouts = 1\noutcome =")
BUDGET = '\n[budget]\nshares = { "new drug" = 0.3 }\n[policy]\nkind = "tree"\n[tree]\nbins = 8\n'
WAYS = {
    "exact sums": "",
    "a tree within a budget": BUDGET,
    "sums with noise": PRIVATE,
    "totals alone": f"{PRIVATE}[privacy.keys]\n",
    "totals of who is there": f"{LACKING}[privacy.keys]\n",
    "ranges that are measured": PRIVATE.replace("outcome =", f"{MEASURED}outcome ="),
    "the same, from totals": LACKING.replace("outcome =", f"{MEASURED}outcome =")
    + "[privacy.keys]\n",
}


def under_masks(more, study):
    return more.replace("epsilon", 'aggregation = "secure"\nepsilon') + keys_of(study)


@pytest.mark.parametrize("more", WAYS.values(), ids=WAYS)
def test_the_server_app_learns_what_is_learned_without_flower(own, clock, tmp_path, more):
    if "keys" in more:  # by nodes that begin anew with every message
        more = under_masks(more, own)
    own.write_text(own.read_text() + more)
    untouched = shutil.copytree(own.parent, tmp_path / "untouched")  # nobody kept an answer there
    server_app(own)(road_to(own, clock), context_of(run_config=settings_for(tmp_path / "flower")))
    fedopl.run(untouched / own.name, untouched / "clients", out=tmp_path / "plain")
    for name in ("policy.json", "values.csv", "gains.csv", "study.json"):
        assert (tmp_path / "flower" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_a_site_without_outcomes_is_valued_over_flower_as_without(own, clock, tmp_path):
    everybody = (*NAMES, "new")
    new = own.parent / "clients" / "new"
    new.mkdir()
    rng = np.random.default_rng(0)
    numbers = rng.normal([66, 2.7, 77], [9, 1.2, 15], (300, 3))
    living = np.where(rng.random(300) < 0.34, "alone", "with others")
    lines = [
        f"{a:.1f},{s:.2f},{k:.1f},{who}" for (a, s, k), who in zip(numbers, living, strict=True)
    ]
    header = "age,severity,kidney_function,living"
    (new / "contexts.csv").write_text("\n".join([header, *lines, ""]))
    (new / "client.toml").write_text(f'secret = "{STRONG}"\n[data]\nfile = "contexts.csv"\n')
    own.write_text(own.read_text() + '\n[target]\nclient = "new"\n')
    untouched = shutil.copytree(own.parent, tmp_path / "untouched")
    road = road_to(own, clock, names=everybody)
    settings = settings_for(tmp_path / "flower", clients=",".join(everybody))
    server_app(own)(road, context_of(run_config=settings))
    plain = fedopl.run(untouched / own.name, untouched / "clients", out=tmp_path / "plain")
    for name in ("policy.json", "values.csv", "target.json", "study.json"):
        assert (tmp_path / "flower" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert plain.target.values
    assert set(plain.mixture) == set(NAMES)


def test_who_is_lacking_on_one_trip_is_left_out_of_one_sum_and_comes_back(own, clock, tmp_path):
    own.write_text(own.read_text() + under_masks(f"{LACKING}[privacy.keys]\n", own))
    road = road_to(own, clock)
    lacking = road.nodes[-1]
    lacking.answers[4] = (math.inf, lacking.answers[4][1])  # of a step; it is asked, and is late
    server_app(own)(road, context_of(run_config=settings_for(tmp_path)))
    record = fedopl.load_run(tmp_path)
    assert record.lacking == ((6, "SumResiduals", [lacking.name]),)
    assert set(record.mixture) == set(NAMES)
    row = '<th scope="row">A step of learning, with noise</th><td class="words">7</td>'
    assert f'{row}<td class="words">{lacking.name}</td>' in render(record)


def test_an_exact_study_takes_three_trips(own, clock, tmp_path):
    road = road_to(own, clock)
    server_app(own)(road, context_of(run_config=settings_for(tmp_path)))
    record = fedopl.load_run(tmp_path)
    assert record.study.linear.oracle == "csoaa-exact"
    assert len(road.asked) == 3 * len(NAMES)
    assert [(latest.trip, latest.query) for latest in record.rounds] == [
        (0, "Enrol"),
        (0, "SumOutcomes"),
        (1, "SumScores"),
        (2, "Value"),
        (2, "Value"),
        (2, "Describe"),
        (2, "TellFit"),
        (2, "TellInteractions"),
    ]


def test_personal_policies_are_the_same_over_flower_and_take_no_trip_more(own, clock, tmp_path):
    own.write_text(own.read_text() + '\n[personal]\nkind = "ridge"\n')
    untouched = shutil.copytree(own.parent, tmp_path / "untouched")
    road = road_to(own, clock)
    server_app(own)(road, context_of(run_config=settings_for(tmp_path / "flower")))
    fedopl.run(untouched / own.name, untouched / "clients", out=tmp_path / "plain")
    for name in ("policy.json", "values.csv", "personal.csv"):
        assert (tmp_path / "flower" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert len(road.asked) == 3 * len(NAMES)
    study = fedopl.load_run(tmp_path / "flower").study
    for name in NAMES:
        there, here = (
            kept_personal(FolderStore(clients / name / "scores"), study, name)
            for clients in (own.parent / "clients", untouched / "clients")
        )
        assert np.array_equal(there.numbers(), here.numbers())


def test_a_client_that_cannot_answer_is_recorded_and_the_others_go_on(own, clock, tmp_path):
    no_rows(own)
    server_app(own)(road_to(own, clock), context_of(run_config=settings_for(tmp_path)))
    record = fedopl.load_run(tmp_path)
    assert record.rounds[0].refused == {"north": "FAILED"}
    assert sorted(record.mixture) == ["south", "west"]


def test_a_run_without_a_quorum_leaves_its_reason_and_no_result(own, clock, tmp_path):
    road = road_to(own, clock)
    road.nodes = road.nodes[:1]
    with pytest.raises(FederationError, match="the quorum is 50%"):
        server_app(own)(road, context_of(run_config=settings_for(tmp_path)))
    failure = (tmp_path / "failed.txt").read_text()
    assert "south: no answer" in failure
    assert "west: no answer" in failure
    assert not (tmp_path / "run.json").exists()


def test_a_run_that_lost_its_quorum_goes_on_without_the_trip_that_lost_it(own, clock, tmp_path):
    out = tmp_path / "flower"
    settings = context_of(run_config=settings_for(out))
    road = road_to(own, clock)
    for node in road.nodes[1:]:
        node.answers[1:] = [(0, BROKEN)] * 3
    with pytest.raises(FederationError, match="SumScores"):
        server_app(own)(road, settings)
    again = road_to(own, clock)
    server_app(own)(again, settings)
    assert len(again.asked) == 2 * len(NAMES)
    assert not (out / "failed.txt").exists()
    fedopl.run(own, own.parent / "clients", out=tmp_path / "plain")
    learned, plain = (folder / "policy.json" for folder in (out, tmp_path / "plain"))
    assert learned.read_bytes() == plain.read_bytes()


def test_a_node_with_another_study_is_rejected_by_name(own, clock, tmp_path):
    other = own.with_name("other.toml")
    other.write_text(own.read_text().replace("seed = 1", "seed = 2"))
    road = road_to(own, clock)
    config = {**files_of(own, "west"), "study": str(other)}
    answer = lambda message: client_app()(message, context_of(config))  # noqa: E731
    road.nodes[2] = replace(road.nodes[2], answers=[(1, answer)] * 10)
    server_app(own)(road, context_of(run_config=settings_for(tmp_path)))
    assert fedopl.load_run(tmp_path).rounds[0].rejected == {"west": "answers for another study"}


def test_several_splits_go_over_flower_as_without_it(own, clock, tmp_path):
    own.write_text(own.read_text().replace("[evaluation]\n", "[evaluation]\nsplits = 3\n"))
    road = road_to(own, clock)
    for node in road.nodes:
        node.answers *= 3
    server_app(own)(road, context_of(run_config=settings_for(tmp_path / "flower")))
    fedopl.run(own, own.parent / "clients", out=tmp_path / "plain")
    for name in ("policy.json", "values.csv", "gains.csv", "splits.csv", "study.json"):
        assert (tmp_path / "flower" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
    assert len(road.asked) == 3 * 3 * len(NAMES)
    assert (tmp_path / "flower" / "exchanges" / "split-3").is_dir()


def test_a_node_answers_no_split_that_its_own_study_does_not_have(own, clock, tmp_path):
    alone = own.with_name("alone.toml")
    alone.write_text(own.read_text())
    own.write_text(own.read_text().replace("[evaluation]\n", "[evaluation]\nsplits = 2\n"))
    road = road_to(own, clock)
    for node in road.nodes:
        node.answers *= 2
    config = {**files_of(own, "west"), "study": str(alone)}
    answer = lambda message: client_app()(message, context_of(config))  # noqa: E731
    road.nodes[2] = replace(road.nodes[2], answers=[(1, answer)] * 10)
    server_app(own)(road, context_of(run_config=settings_for(tmp_path)))
    first, *_, second = (r for r in fedopl.load_run(tmp_path).rounds if r.query == "Enrol")
    assert "west" in first.answered  # which is the study that it agreed to
    assert second.rejected == {"west": "answers for another study"}


def test_a_client_joins_over_flower_as_it_does_without(own, clock, tmp_path):
    later = tmp_path / "later"
    later.mkdir()
    (own.parent / "clients" / "west").rename(later / "west")
    ran = tmp_path / "run"
    fedopl.run(own, own.parent / "clients", out=ran)
    shutil.copytree(later, tmp_path / "untouched")
    (later / "west").rename(own.parent / "clients" / "west")
    road = road_to(own, clock)
    config = settings_for(tmp_path / "flower", clients="west", join=str(ran))
    server_app(own)(road, context_of(run_config=config))
    joined, plain = join_folder(ran, tmp_path / "untouched" / "west", out=tmp_path / "plain")
    assert sorted(joined.rows) == ["north", "south", "west"]
    for name in ("policy.json", "sums.npz", "newcomers.npz", "study.json", "before/values.csv"):
        assert (tmp_path / "flower" / name).read_bytes() == (plain / name).read_bytes()
    again = fedopl.load_run(tmp_path / "flower").leave("west")
    assert policy_json(again.policy) == policy_json(fedopl.load_run(ran).policy)


def test_a_node_cannot_join_a_run_of_another_study(own, clock, tmp_path):
    fedopl.run(own, own.parent / "clients", out=tmp_path / "run")
    own.write_text(own.read_text().replace("share = 0.3", "share = 0.2"))
    config = settings_for(tmp_path / "flower", clients="east", join=str(tmp_path / "run"))
    with pytest.raises(StudyError, match="is not that of the run that is joined"):
        server_app(own)(road_to(own, clock), context_of(run_config=config))
    assert "is not that of the run" in (tmp_path / "flower" / "failed.txt").read_text()
