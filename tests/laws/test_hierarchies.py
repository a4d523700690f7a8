"""A region speaks for its clients as one client would that has what they have together.

With a mixture over regions in which one has λ, results are those of the study over its members in
which each has λ times its share of the region's rows.
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from fedopl import (
    ClientFactory,
    EvaluationPlan,
    Linear,
    LoggedData,
    NuisancePlan,
    PrivacyPlan,
    TrainingPlan,
    Tree,
    learn,
)
from fedopl.base.errors import OptionError
from fedopl.base.labels import GLOBAL
from fedopl.client.disclosure.ledger import MemoryLedger
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.aggregator import Aggregator
from fedopl.engines.clients import members_of
from fedopl.engines.in_process import InProcess
from fedopl.messages import codec
from fedopl.messages.bundle import bundled, unbundled
from fedopl.messages.derived_sizes import decoder_of
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.learning.policy_steps import ImprovedPolicy
from fedopl.messages.learning.score_sums import ScoreSums
from fedopl.messages.refusal import Refusal
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from fedopl.study.mixture import Empirical
from fedopl.study.plans import Declared
from fedopl.study.spending import Budget, Costs
from fedopl.study.study import Study

KNOWN = NuisancePlan(propensity="known")
ROWS = {"a": 130, "b": 210, "c": 90, "d": 150, "e": 260, "f": 80}
ACTIONS = ("u", "v")


def rows(n_rows, seed, **more):
    rng = np.random.default_rng(seed)
    shift = 0.3 * seed - 0.6
    x = rng.standard_normal((n_rows, 3)) + shift
    actions = rng.integers(0, 2, n_rows)
    rewards = np.abs(x[:, 0]) * (2 * actions - 1) + shift * actions + rng.standard_normal(n_rows)
    known = np.full((n_rows, 2), 0.5)
    more = {name: make(rng, n_rows) for name, make in more.items()}
    return LoggedData(x, actions, rewards, known, action_names=ACTIONS, **more)


CLIENTS = {name: rows(n_rows, seed) for seed, (name, n_rows) in enumerate(ROWS.items())}
REGIONS = {
    "north": {name: CLIENTS[name] for name in "abc"},
    "south": {name: CLIENTS[name] for name in "def"},
}
LEVELS = {"west": {"north": REGIONS["north"], "d": CLIENTS["d"]}, "e": CLIENTS["e"]}
LEVELS["east"] = {"f": CLIENTS["f"]}


def alike(one, other):
    """The same policy, and the same values and gains with the same standard errors."""
    np.testing.assert_allclose(one.policy.numbers(), other.policy.numbers(), rtol=1e-9, atol=1e-12)
    assert one.chosen == other.chosen
    for table, key in (("values", "policy"), ("gains", "against")):
        mine, others = (
            {getattr(row, key): row.estimate for row in run if row.client == GLOBAL}
            for run in (getattr(one, table).rows, getattr(other, table).rows)
        )
        # Fewer arms are valued in regions: nobody there knows how few rows a member has.
        assert mine
        assert mine.keys() <= others.keys()
        for what, estimate in mine.items():
            expected = others[what]
            assert estimate.value == pytest.approx(expected.value, rel=1e-9, abs=1e-12)
            assert estimate.standard_error == pytest.approx(expected.standard_error, rel=1e-8)
            assert estimate.n_rows == expected.n_rows
    if other.curve:
        assert one.within_budget().price == pytest.approx(other.within_budget().price, rel=1e-8)
        for mine, expected in zip(one.curve.along(), other.curve.along(), strict=True):
            assert mine[0] == pytest.approx(expected[0], rel=1e-9)
            assert mine[1].value == pytest.approx(expected[1].value, rel=1e-9, abs=1e-12)
            assert mine[1].standard_error == pytest.approx(expected[1].standard_error, rel=1e-8)


BY_ROWS = Linear(precision="rows")
PLAIN = {"nuisances": KNOWN, "personal": "none", "basis": "linear", "policy": BY_ROWS}
TREE = PLAIN | {"policy": Tree(depth=1, cuts={"x0": (-1, 0, 1), "x1": (0,), "x2": (0,)})}
WITHIN = {"budget": Budget(most=0.3), "costs": Costs(by_action={"v": 1}, unit="hours")}
SETTINGS = {
    "linear": PLAIN,
    "basis": PLAIN | {"basis": "hinges"},
    "tree": TREE,
    "cross-fitted": PLAIN | {"evaluation": "cross-fitted"},
    "cross-fitted tree": TREE | {"evaluation": "cross-fitted"},
    "cross-fitted candidates": PLAIN | {"evaluation": "cross-fitted", "policy": "finite"},
    "pairs": PLAIN | {"policy": Linear(oracle="wap")},
    "budget": PLAIN | WITHIN,
    "cross-fitted budget": PLAIN | WITHIN | {"evaluation": "cross-fitted"},
    "tree in a budget": TREE | WITHIN,
    "candidates in a budget": PLAIN | WITHIN | {"policy": "finite"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_region_counts_as_all_of_its_clients_do(name):
    settings = SETTINGS[name]
    flat = learn(CLIENTS, **settings)
    for regions in (REGIONS, LEVELS):
        alike(learn(regions, **settings), flat)


def test_a_uniform_mixture_of_regions_is_one_of_clients_by_their_share_of_a_region():
    by_region = learn(REGIONS, mixture="uniform", **PLAIN)
    learned_from = learn(CLIENTS, **PLAIN).rows
    shares = {
        name: 0.5 * learned_from[name] / sum(learned_from[other] for other in region)
        for region in REGIONS.values()
        for name in region
    }
    alike(by_region, learn(CLIENTS, mixture=shares, **PLAIN))


def test_clients_that_count_by_weight_do_so_in_regions():
    weights = {"weights": lambda rng, n: rng.uniform(0.5, 3, n)}
    clients = {name: rows(n, seed, **weights) for seed, (name, n) in enumerate(ROWS.items())}
    regions = {r: {name: clients[name] for name in own} for r, own in REGIONS.items()}
    settings = PLAIN | {"mixture": Empirical(count="weight")}
    alike(learn(regions, **settings), learn(clients, **settings))


def test_a_region_of_one_client_is_that_client_bit_for_bit():
    settings = {"nuisances": KNOWN, "personal": "none"}
    settings["evaluation"] = EvaluationPlan(describe=False)
    alone = {f"region {name}": {name: own} for name, own in CLIENTS.items()}
    flat = learn(CLIENTS, basis="hinges", **settings)
    nested = learn(alone, basis="hinges", **settings)
    assert flat.policy.numbers().tolist() == nested.policy.numbers().tolist()
    assert flat.values.of(flat.chosen) == nested.values.of(nested.chosen)
    assert flat.described == nested.described


def test_regions_whose_clients_are_made_when_they_are_asked():
    names = [f"{place:02d}" for place in range(12)]
    made = {name: rows(40, int(name)) for name in names}
    factories = {
        "first": ClientFactory(names[:6], made.__getitem__),
        "second": ClientFactory(names[6:], made.__getitem__),
    }
    listed = {name: {own: made[own] for own in factory} for name, factory in factories.items()}
    settings = {"nuisances": KNOWN, "basis": "linear"}
    one, other = learn(factories, **settings), learn(listed, **settings)
    assert one.policy.numbers().tolist() == other.policy.numbers().tolist()
    assert set(one.ledger) == set(other.ledger) == {*names, "first", "second"}


def test_members_release_what_they_release_to_a_server_and_the_server_gets_totals():
    settings = {"nuisances": KNOWN, "personal": "none", "basis": "linear"}
    flat, nested = learn(CLIENTS, **settings), learn(LEVELS, **settings)
    told = [entry.query for entry in nested.ledger["a"]]
    assert [q for q in (e.query for e in flat.ledger["a"]) if "Tell" not in q] == told
    assert {entry.query for entry in nested.ledger["north"]} == set(told)
    assert set(nested.mixture) == {"west", "east", "e"}
    # Byte for byte what they are asked is what the server asks.
    asked = {entry.query_sha256 for entry in nested.ledger["west"]}
    assert asked == {entry.query_sha256 for entry in nested.ledger["a"]}


def test_with_limits_regions_of_small_clients_are_not_taken_for_liars():
    members = {f"m{place:02d}": rows(140, place % 4) for place in range(12)}
    names = sorted(members)
    regions = {"x": {n: members[n] for n in names[:6]}, "y": {n: members[n] for n in names[6:]}}
    run = learn(regions, nuisances=KNOWN, basis="linear", limits="guarded")
    assert all(not latest.rejected for latest in run.rounds)
    assert run.policy is not None


# --- members that are missing, or lie -------------------------------------------------------------


def study_of(**more):
    return Study(
        actions=ACTIONS,
        features=("x0", "x1", "x2"),
        nuisances=KNOWN,
        aggregators=("north", "south"),
        **{"policy": Linear(precision="rows"), **more},
    )


def door(name, study, **more):
    data = LoggedData(
        CLIENTS[name].contexts,
        CLIENTS[name].actions,
        CLIENTS[name].rewards,
        CLIENTS[name].propensities,
        action_names=ACTIONS,
        feature_names=study.features,
    )
    more = {"limits": Limits.open(), "secret": SEED_ALONE, "ledger": MemoryLedger(), **more}
    return Door(name, data, study, **more)


class Changed:
    """A door whose answers are changed on their way."""

    def __init__(self, door, change):
        self.door, self.change, self.ledger = door, change, door.ledger

    def handle(self, content):
        return self.change(self.door.handle(content))


class Repeating(InProcess):
    """A transport over which one member answers twice."""

    def exchange(self, queries):
        for name, answer in super().exchange(queries):
            yield name, answer
            if name == "c":
                yield name, answer


def changed_in(study, kind, **fields):
    """A change of this kind of answers, and of no other."""

    def change(content):
        answers = [decoder_of(study).decode(one) for one in unbundled(content)]
        return bundled(
            [
                codec.encode(replace(one, **{name: new(one) for name, new in fields.items()}))
                if isinstance(one, kind)
                else codec.encode(one)
                for one in answers
            ]
        )

    return change


def run_with(study, north, minimum_members=1, transport=InProcess, **members):
    doors = {name: door(name, study) for name in ROWS} | members
    answering = {
        "north": Aggregator(
            "north",
            study,
            transport({name: doors[name] for name in north}),
            minimum_members=minimum_members,
        ),
        "south": Aggregator(
            "south",
            study,
            InProcess({name: doors[name] for name in "def"}),
            minimum_members=1,
        ),
    }
    return run_study(Conversation(study, InProcess(answering))), answering


def test_a_member_whose_answers_cannot_be_read_is_left_out_and_named():
    study = study_of()
    liar = Changed(door("c", study), lambda content: content[:-1])
    found, answering = run_with(study, "abc", c=liar)
    without, _ = run_with(study, "ab")
    assert found.policy.numbers().tolist() == without.policy.numbers().tolist()
    assert all("c: " in entry.why for entry in answering["north"].ledger.entries()[:2])


def test_a_member_that_answers_twice_is_left_out():
    study = study_of()
    found, answering = run_with(study, "abc", transport=Repeating)
    without, _ = run_with(study, "ab")
    assert found.policy.numbers().tolist() == without.policy.numbers().tolist()
    assert "more than once" in answering["north"].ledger.entries()[0].why


def test_a_member_whose_sums_cannot_be_of_rows_is_left_out():
    study = study_of()
    negative = changed_in(study, ScoreSums, squares=lambda one: -one.squares)
    found, answering = run_with(study, "abc", c=Changed(door("c", study), negative))
    assert np.isfinite(found.policy.numbers()).all()
    (entry,) = (e for e in answering["north"].ledger.entries() if e.query == "SumScores")
    assert entry.why.startswith("c: ")


def test_a_member_that_moves_the_policy_much_further_than_others_is_left_out():
    study = study_of(policy=Linear(oracle="csoaa-sgd", training=TrainingPlan(rounds=2)))
    far = changed_in(study, ImprovedPolicy, parameters=lambda one: 1e4 * (one.parameters + 1))
    found, answering = run_with(study, "abcd", d=Changed(door("d", study), far))
    assert np.abs(found.policy.numbers()).max() < 100
    why = {e.why for e in answering["north"].ledger.entries() if e.query == "ImprovePolicy"}
    assert all("times as long as the others'" in one for one in why)
    assert why


def test_of_too_few_members_nothing_is_released():
    study = study_of(quorum=0.5)
    gone = Changed(door("c", study), lambda _content: b"")
    with_two, answering = run_with(study, "abc", minimum_members=3, c=gone)
    assert set(with_two.mixture) == {"south"}
    reasons = {entry.reason for entry in answering["north"].ledger.entries()}
    assert reasons == {"TOO_FEW_MEMBERS"}


def test_an_aggregator_that_was_restarted_gives_the_same_bytes():
    study = study_of()
    doors = {name: door(name, study) for name in "abc"}
    first = Aggregator("north", study, InProcess(doors), minimum_members=3)
    heard = []

    def told(content):
        heard.append((content, first.handle(content)))
        return heard[-1][1]

    north = SimpleNamespace(handle=told, ledger=first.ledger)
    south = Aggregator("south", study, InProcess({n: door(n, study) for n in "def"}))
    run_study(Conversation(study, InProcess({"north": north, "south": south})))
    assert len(heard) == 3
    for content, answer in heard[1:]:
        again = Aggregator("north", study, InProcess(doors), minimum_members=3)
        assert again.handle(content) == answer


# --- who asks what it may not ---------------------------------------------------------------------


def test_what_no_honest_server_asks_reaches_no_member():
    study = study_of()
    doors = {name: door(name, study) for name in "abc"}
    north = Aggregator("north", study, InProcess(doors))
    other = study.model_copy(update={"seed": 7})
    for sent in (
        b"",
        b"nonsense",
        codec.encode(Enrol(study=other.digest, exchange=0)),
        codec.encode(Enrol(study=study.digest, exchange=0))[:-3],
    ):
        answer = decoder_of(study).decode(north.handle(sent))
        assert isinstance(answer, Refusal)
    assert not any(list(own.ledger.entries()) for own in doors.values())


def test_a_server_that_asks_an_aggregator_learns_of_no_single_member():
    study = study_of()
    doors = {name: door(name, study) for name in "abc"}
    north = Aggregator("north", study, InProcess(doors))
    enrolled, summed = (
        codec.encode(query(study=study.digest, exchange=place))
        for place, query in enumerate((Enrol, SumOutcomes))
    )
    read = cast(Any, decoder_of(study).decode)
    total, sums = read(north.handle(enrolled)), read(north.handle(summed))
    own = {name: read(door.handle(enrolled)) for name, door in doors.items()}
    each = [read(door.handle(summed)).sums for door in doors.values()]
    assert total.n_rows == sum(answer.n_rows for answer in own.values())
    np.testing.assert_allclose(sums.sums, sum(each))
    # The attack: the same question again, with a member gone, would differ by that member's sums.
    fewer = Aggregator("north", study, InProcess({name: doors[name] for name in "ab"}))
    assert isinstance(read(fewer.handle(enrolled)), Refusal)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"personal": "ridge"}, "personal"),
        ({"diagnose": True}, "diagnose"),
        ({"policy": "neural"}, "neural"),
        (
            {
                "privacy": PrivacyPlan(
                    epsilon=1, outcome=(0, 1), ranges={f"x{k}": (0, 1) for k in range(3)}
                ),
                "declared": Declared(overlap=0.5),
            },
            "privacy",
        ),
    ],
)
def test_a_study_that_asks_single_clients_is_refused_before_a_door_opens(
    settings, said, monkeypatch
):
    monkeypatch.setattr("fedopl.engines.run_in_memory.Door", None)
    settings = {"nuisances": KNOWN, "basis": "linear", **settings}
    with pytest.raises(OptionError, match=rf"(?s)aggregators: .*{said}"):
        learn(REGIONS, **settings)


def test_names_are_of_one_party_at_all_levels():
    for bad in (
        {"north": {"a": CLIENTS["a"]}, "a": CLIENTS["b"]},
        {"north": {"north": CLIENTS["a"]}},
    ):
        with pytest.raises(OptionError, match="more than once"):
            members_of(bad)
    with pytest.raises(OptionError, match="'north' has no clients"):
        learn({"north": {}})
    with pytest.raises(OptionError, match="the study does not list it"):
        Aggregator("west", study_of(), InProcess({"a": door("a", study_of())}))
