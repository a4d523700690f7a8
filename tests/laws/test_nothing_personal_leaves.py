"""Personal policies in a private study: solved and valued at home, and nobody can tell.

What leaves is the same to the last byte, whether or not clients have such policies.
"""

import json

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import fedopl
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.messages.vocabulary import queries_of
from fedopl.policies.linear import LinearPolicy
from fedopl.report.page import render
from fedopl.results.value_tables import LEARNED, LOCAL, PERSONAL
from fedopl.secure.keys import Identity
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from fedopl.study.study import Study

ACTIONS, FEATURES, NAMES = ("a", "b"), ("x0", "x1"), ("east", "north", "south", "west")
RANGES = dict.fromkeys(FEATURES, (-2.0, 2.0))
OUTCOME = (-5.0, 5.0)
SECRETS = {name: f"known to {name} alone" for name in NAMES}
KEYS = {name: Identity(PrivateDraws(0, name, SECRETS[name]).key).public for name in NAMES}
PLAIN, MASKED = {}, {"aggregation": "secure", "keys": KEYS, "values_apart": 0.5}
MEASURED = {"scales": "measured"}


def study_with(plan, personal="ridge", **changes):
    return fedopl.Study(
        actions=ACTIONS,
        features=FEATURES,
        privacy=fedopl.PrivacyPlan(epsilon=8.0, steps=1, outcome=OUTCOME, ranges=RANGES, **plan),
        evaluation=fedopl.EvaluationPlan(share=0.4),
        declared=fedopl.Declared(overlap=0.4),
        personal=personal,
        **changes,
    )


def rows(name, n_rows=1500):
    """West gains by the action that harms everybody else."""
    rng = np.random.default_rng(NAMES.index(name))
    contexts = rng.normal(size=(n_rows, 2))
    actions = rng.integers(2, size=n_rows)
    sign = -1 if name == "west" else 1
    rewards = sign * (2 * actions - 1) * contexts[:, 0] + 0.5 * rng.normal(size=n_rows)
    return fedopl.LoggedData(contexts, actions, rewards, np.full(n_rows, 0.5), action_names=ACTIONS)


class Overheard(InProcess):
    """Keeps every byte that is asked and answered."""

    def __init__(self, doors, solving=None):
        super().__init__(doors)
        self.bytes, self._solving = [], solving

    def exchange(self, queries):
        for name, answer in super().exchange(queries):
            self.bytes.append((name, queries[name], answer))
            if self._solving is not None:  # at home, between any two answers
                self.doors[name].valued_at_home(self._solving)
            yield name, answer


def overheard(study, solving=None):
    doors = {name: Door(name, rows(name), study, secret=SECRETS[name]) for name in NAMES}
    transport = Overheard(doors, solving)
    record = run_study(Conversation(study, transport))
    return record, transport


@pytest.fixture(scope="module")
def plain():
    return overheard(study_with(PLAIN))


@pytest.mark.parametrize("plan", [PLAIN, MASKED, MEASURED], ids=["plain", "masked", "measured"])
def test_the_same_bytes_leave_with_and_without_personal_policies(plan):
    without, first = overheard(study_with(plan, "none"))
    # A policy as the clients will have it: they solve for theirs while they are asked.
    shared = without.policy if plan is not MEASURED else None
    with_them, second = overheard(study_with(plan, "ridge"), shared)
    assert first.bytes == second.bytes
    assert str(without.values) == str(with_them.values)
    assert not with_them.personal


@pytest.mark.parametrize("plan", [PLAIN, MASKED], ids=["plain", "masked"])
def test_nothing_more_can_be_asked(plan):
    assert queries_of(study_with(plan, "ridge")) == queries_of(study_with(plan, "none"))


def test_it_is_the_same_study_for_messages_and_noise_and_another_in_words():
    ridge, none = study_with(PLAIN, "ridge"), study_with(PLAIN, "none")
    assert ridge.digest == none.digest
    assert ridge.agreed_digest == none.agreed_digest
    assert json.loads(ridge.model_dump_json())["personal"] == {"kind": "ridge"}
    assert Study.model_validate_json(ridge.model_dump_json()).personalises_at_home


def test_the_client_that_differs_is_helped_at_home(plain):
    record, transport = plain
    found = transport.doors["west"].valued_at_home(record.policy)
    gain = found.gains.over(LEARNED, "west")
    assert gain.interval()[0] > 0.5
    difference = found.values.of(PERSONAL, "west").value - found.values.of(LEARNED, "west").value
    assert np.isclose(gain.value, difference)
    alike = transport.doors["north"].valued_at_home(record.policy).gains
    assert abs(alike.over(LEARNED, "north").value) < 0.05
    contexts = rows("north").contexts
    policy = transport.doors["north"].solved_at_home(record.policy)
    assert (policy.decide(contexts) == record.policy.decide(contexts)).mean() > 0.95


def test_it_is_valued_on_the_rows_that_the_private_study_holds_out(plain):
    record, transport = plain
    door = transport.doors["west"]
    found = door.valued_at_home(record.policy)
    held_out = door._space.rows.is_held_out
    given = rows("west")
    assert found.values.of(PERSONAL, "west").n_rows == held_out.sum()
    logged = given.rewards[held_out].mean()
    assert np.isclose(found.values.of("logging policy", "west").value, logged)
    assert {row.policy for row in found.values.rows} >= {LEARNED, PERSONAL, LOCAL}


@pytest.mark.parametrize("unit", ["row", "person"])
def test_rows_on_disk_and_of_persons_have_the_same_policy_at_home(unit, tmp_path):
    rng = np.random.default_rng(5)
    contexts, action = rng.normal(size=(300, 2)), rng.integers(2, size=300)
    columns = {
        **dict(zip(FEATURES, contexts.T, strict=True)),
        "done": np.array(ACTIONS)[action],
        "gained": contexts[:, 0] * action + rng.normal(size=300),
        "chance": np.full(300, 0.5),
        "person": rng.permutation(300) // 3,
    }
    parquet.write_table(pa.table(columns), tmp_path / "rows.parquet")
    group = {"group": "person"} if unit == "person" else {}
    named = {"action": "done", "reward": "gained", "propensity": "chance", **group}
    schema = fedopl.Schema(actions=ACTIONS, direction="higher", numeric=FEATURES, **named)
    of_persons = {"unit": "person", "most_rows_per_person": 2} if group else {}
    study = study_with(of_persons)
    shared = LinearPolicy(np.array([[0.1, 0.0, 0.0], [0.0, 0.1, 0.0]]), ACTIONS, FEATURES)
    found = []
    for kept in ({}, {"on_disk": tmp_path / "rows"}):
        data = fedopl.read_logged(tmp_path / "rows.parquet", schema, **kept)
        door = Door("west", data, study, secret=SECRETS["west"])
        found.append(door.valued_at_home(shared))
        assert found[-1].values.of(PERSONAL, "west").n_rows == door._space.rows.is_held_out.sum()
    memory, disk = found
    assert np.allclose(memory.policy.numbers(), disk.policy.numbers(), rtol=1e-9, atol=1e-12)
    for row, other in zip(memory.gains.rows[:1], disk.gains.rows[:1], strict=True):
        assert np.isclose(row.estimate.value, other.estimate.value)


def test_outcomes_of_held_out_rows_do_not_move_the_policy(plain):
    record, transport = plain
    door, given = transport.doors["west"], rows("west")
    held_out = door._space.rows.is_held_out
    rewards = np.where(held_out, 100.0, given.rewards)
    other = fedopl.LoggedData(
        given.contexts, given.actions, rewards, np.full(1500, 0.5), action_names=ACTIONS
    )
    changed = Door("west", other, record.study, secret=SECRETS["west"])
    changed._space.rows.__dict__["is_held_out"] = held_out
    own, moved = (one.solved_at_home(record.policy).numbers() for one in (door, changed))
    assert np.allclose(own, moved, rtol=1e-9)


def test_one_training_row_could_move_its_value_by_more_than_any_held_out_row():
    """The attack that a released value would allow: why there is none.

    What a held-out row may add to a mean of values is bounded, and noise is made for that. A single
    training row makes another policy, and with it another decision for every held-out row.
    """
    study = study_with(PLAIN)
    given = rows("west", 400)
    draws = Door("west", given, study, secret=SECRETS["west"])._space.rows
    row = int(np.flatnonzero(~draws.is_held_out)[0])
    effect = np.zeros((2, 3))
    effect[1, -1] = 0.01  # the shared policy: hardly anything speaks for either action
    shared = LinearPolicy(effect, ACTIONS, FEATURES)

    def worth(*, is_there):
        rewards = np.where(given.actions == 1, 1.0, -1.0) * given.contexts[:, 0]
        rewards = np.clip(rewards, *OUTCOME)
        actions, contexts = given.actions.copy(), given.contexts.copy()
        if is_there:
            contexts[row], actions[row], rewards[row] = (1e4, 0.0), 1, OUTCOME[1]
        data = fedopl.LoggedData(
            contexts, actions, rewards, np.full(400, 0.5), action_names=ACTIONS
        )
        door = Door("west", data, study, secret=SECRETS["west"])
        door._space.rows.__dict__["is_held_out"] = draws.is_held_out
        return door.valued_at_home(shared).gains.over(LEARNED, "west")

    before, after = worth(is_there=False), worth(is_there=True)
    largest = (OUTCOME[1] - OUTCOME[0]) * (1 + 2 / 0.4)  # of a difference of two scores
    assert abs(before.value - after.value) > largest / before.n_rows


@pytest.mark.parametrize("policy", ["tree", "finite"])
def test_trees_and_choices_have_nothing_to_be_moved_from(policy):
    with pytest.raises(fedopl.OptionError, match="what leaves or candidates are worth to all"):
        study_with(PLAIN, policy=policy)


def test_the_report_says_that_it_cannot_say_what_they_are_worth(plain):
    record, _ = plain
    page = render(record)
    assert "solved and valued at home, without noise" in page
    assert "Personal over shared" not in page


def test_whoever_holds_all_rows_gets_them_only_if_asked_for():
    clients = {name: rows(name, 500) for name in NAMES}
    options = {
        "privacy": fedopl.PrivacyPlan(epsilon=8.0, outcome=OUTCOME, ranges=RANGES, steps=1),
        "declared": fedopl.Declared(overlap=0.4),
        "basis": "linear",
        "running": fedopl.Running(secret="of this test"),
    }
    assert not fedopl.learn(clients, **options).personal_policies
    run = fedopl.learn(clients, personal="ridge", **options)
    assert set(run.personal_policies) == set(NAMES)
    assert "With differential privacy they stay at the clients" in str(run.personal)
    assert not run.personal
