"""A private study answers the same rows in any order with the same bytes.

If noise or draws followed from the order, the same question about the same table would have other
noise in every order, and noise would average out.
"""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import fedopl
from fedopl.client.answers.handlers import PRIVATE_HANDLERS
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.door import Door
from fedopl.client.private import private_rows
from fedopl.client.private.private_workspace import Noise, PrivateWorkspace
from fedopl.messages import codec
from fedopl.messages.bundle import unbundled
from fedopl.messages.derived_sizes import decoder_of
from fedopl.policies.linear import constant_policy
from fedopl.privacy.exact_noise import FINE

ORDERS = 60
ACTIONS, FEATURES = ("a", "b"), ("x0", "x1", "x2")
NAMES = ("east", "mid", "north", "south", "west")
RANGES = dict.fromkeys(FEATURES, (-2.0, 2.0))
ARMS = {action: constant_policy(action, ACTIONS, FEATURES) for action in ACTIONS}
SGD = fedopl.Linear(oracle="csoaa-sgd", training=fedopl.TrainingPlan(rounds=2))
MASKS = {"noise": "total", "aggregation": "secure"}
PERSONS = {"unit": "person", "most_rows_per_person": 4}
KNOTS = {"x0": (-1.0, 0.0, 1.0)}
# By name: options of the call, and of the plan.
STUDIES = {
    "rows, sampled": ({"policy": SGD}, {"sampled": 0.4}),
    "persons, sampled": ({"policy": SGD}, {"sampled": 0.4, **PERSONS}),
    "basis": ({"basis": fedopl.Basis(knots=KNOTS)}, {}),
    "tree of persons": ({"policy": fedopl.Tree(depth=2)}, PERSONS),
    "candidates": ({"policy": fedopl.Finite(candidates=ARMS)}, {}),
    "ranges": ({}, {"scales": "measured"}),
    "masks": ({}, {**MASKS, "values_apart": 0.3}),
    "drop-outs": ({}, {**MASKS, **PERSONS, "dropouts": 1}),
}


def table(seed, n_rows=90):
    rng = np.random.default_rng(seed)
    contexts, action = rng.normal(size=(n_rows, 3)), rng.integers(2, size=n_rows)
    # Half of the rows are several times there, and persons have one to seven rows.
    contexts[n_rows // 2 :] = np.round(contexts[n_rows // 2 :, :1]) + 0.0
    outcome = np.round(contexts[:, 0]) * np.where(action, 1, -1) + 0.0
    outcome[: n_rows // 2] += rng.normal(size=n_rows // 2)
    return pa.table(
        {
            **dict(zip(FEATURES, contexts.T, strict=True)),
            "done": np.array(ACTIONS)[action],
            "gained": outcome,
            "chance": np.where(contexts[:, 0] > 0, 0.4, 0.6),
            "person": np.char.add("p", rng.integers(n_rows // 3, size=n_rows).astype(str)),
        }
    )


def read(path, rows, plan, **kept):
    path.parent.mkdir(exist_ok=True)
    parquet.write_table(rows, path)
    group = {"group": "person"} if "unit" in plan else {}
    columns = {"action": "done", "reward": "gained", "propensity": "chance", **group}
    schema = fedopl.Schema(actions=ACTIONS, direction="higher", numeric=FEATURES, **columns)
    return fedopl.read_logged(path, schema, **kept)


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    """By study, what the client in the east was asked and answered in a run, and its door."""
    found, honest = {name: [] for name in STUDIES}, Door.handle
    folder = tmp_path_factory.mktemp("clients")
    with pytest.MonkeyPatch.context() as patched:
        for name, (options, plan) in STUDIES.items():

            def handle(door, content, heard=found[name]):
                answer = honest(door, content)
                if door.name == "east":
                    heard.append((door, content, answer))
                return answer

            patched.setattr(Door, "handle", handle)
            run = fedopl.learn(
                {
                    own: read(folder / f"{own}.parquet", table(n), plan)
                    for n, own in enumerate(NAMES)
                },
                privacy=fedopl.PrivacyPlan(epsilon=8.0, outcome=(-4, 4), ranges=RANGES, **plan),
                declared=fedopl.Declared(overlap=0.3),
                running=fedopl.Running(secret="a" * 64),
                **{"basis": "linear", **options},
            )
            assert not run.refusals
    return found


def kinds(heard):
    """The kinds of queries among these, to the study or to the one that it continued as."""
    door = heard[0][0]
    doors = [own for own in (door, door._after) if own is not None]
    return {
        type(decoder_of(own.study).decode(content))
        for _, together, _ in heard
        for content in unbundled(together)
        for own in doors
        if codec.study_asked_about(content) == own.study.digest
    }


def test_every_kind_of_message_of_a_private_study_is_heard(heard):
    assert {kind for own in heard.values() for kind in kinds(own)} == {*PRIVATE_HANDLERS}


@pytest.mark.parametrize("name", STUDIES)
def test_the_same_rows_in_another_order_have_the_same_answers(name, heard, tmp_path, monkeypatch):
    plan, rows, rng = STUDIES[name][1], table(0), np.random.default_rng(0)
    door = heard[name][0][0]
    for number in range(ORDERS):
        ordered, kept = rows.take(rng.permutation(rows.num_rows)), [{}]
        if number < 3:
            monkeypatch.setattr(private_rows, "ROWS_PER_CHUNK", 40)
            monkeypatch.setattr(private_rows, "RECORDS_PER_BUCKET", 20)
            kept.append({"on_disk": tmp_path / "rows"})
        for where in kept:
            data = read(tmp_path / f"{number}.parquet", ordered, plan, **where)
            again = Door("east", data, door.study, secret=door._space.draws.secret)
            for _, content, answer in heard[name]:
                assert again.handle(content) == answer
        monkeypatch.undo()


# --- the attack -----------------------------------------------------------------------------------


def space(rows, plan=None, *, tmp_path):
    data = read(tmp_path / "rows.parquet", rows, plan or {})
    privacy = fedopl.PrivacyPlan(epsilon=1.0, outcome=(-4, 4), ranges=RANGES, **(plan or {}))
    study = fedopl.Study(
        actions=ACTIONS,
        features=FEATURES,
        privacy=privacy,
        declared=fedopl.Declared(overlap=0.3),
    )
    return PrivateWorkspace(data, study, Limits.open(), PrivateDraws(0, "east", "s" * 32))


def test_noise_does_not_average_out_over_orders(tmp_path, monkeypatch):
    rows, rng = table(0), np.random.default_rng(0)
    own = partial(space, tmp_path=tmp_path)
    told = [own(rows.take(rng.permutation(90))).first_sums.squares for _ in range(ORDERS)]
    monkeypatch.setattr(Noise, "added", lambda _self, sums, *_: sums / FINE)
    exact = own(rows).first_sums.squares
    one, mean = (np.linalg.norm(found - exact) for found in (told[0], np.mean(told, axis=0)))
    assert mean > 0.9 * one > 0  # by the order of rows it was an eighth of it


def test_numbers_of_a_person_add_up_to_the_same_in_any_order(tmp_path):
    """Not as floats: 0.1 + 0.2 + 0.7 is 1, but 0.7 + 0.2 + 0.1 is less, and would be cut."""
    rows = space(table(0), PERSONS, tmp_path=tmp_path).rows
    person = np.flatnonzero(rows._drawn.is_held_out)[0]
    for numbers in ([0.1, 0.2, 0.7], [0.7, 0.2, 0.1]):
        (found,) = rows.by_unit([(np.full(3, person), np.array(numbers)[:, None])])
        assert found[0, 0] == sum(int(number * FINE) for number in numbers) / FINE


# --- one row more or less -------------------------------------------------------------------------


def sides(own, rows):
    """How many rows with this content are held out, and how many are not."""
    found = {}
    for row, is_held_out in zip(rows.to_pylist(), own.rows.is_held_out, strict=True):
        key = tuple(row[name] for name in (*FEATURES, "done", "gained"))
        found.setdefault(key, [0, 0])[int(is_held_out)] += 1
    return found


def test_one_row_less_moves_no_other_to_the_other_side(tmp_path):
    rows = table(0)
    before = sides(space(rows, tmp_path=tmp_path), rows)
    copies = {sum(both) for both in before.values()}
    assert 1 in copies  # rows that are there once, and rows that are there several times
    assert max(copies) > 3
    assert any(min(both) > 0 for both in before.values())  # copies have draws of their own
    for place in range(rows.num_rows):
        rest = rows.take(np.delete(np.arange(90), place))
        after = sides(space(rest, tmp_path=tmp_path), rest)
        lost = {key: np.subtract(both, after.get(key, [0, 0])) for key, both in before.items()}
        (moved,) = [change for change in lost.values() if change.any()]
        assert sorted(moved) == [0, 1]


def test_one_person_less_moves_no_other_to_the_other_side(tmp_path):
    rows = table(0).add_column(0, "row", [np.arange(90)])
    persons = np.array(rows["person"])

    def drawn(rows):
        own = space(rows.drop_columns(["row"]), PERSONS, tmp_path=tmp_path).rows
        return dict(zip(np.array(rows["row"]).tolist(), own.is_held_out, strict=True)), own._is_used

    before, _ = drawn(rows)
    assert {*before.values()} == {True, False}
    for person in np.unique(persons):
        rest = np.flatnonzero(persons != person)
        after, is_used = drawn(rows.take(rest))
        assert after == {row: before[row] for row in after}
        for other in np.unique(persons[rest]):
            own = persons[rest] == other
            assert is_used[own].sum() == min(4, own.sum())


def test_persons_who_are_alike_are_told_apart_by_their_number(tmp_path):
    """Not by their labels, whose codes depend on who else is there."""
    row = table(0).slice(0, 1)
    rows = pa.concat_tables([row] * 80).set_column(
        6, "person", [np.repeat([f"p{n}" for n in range(40)], 2)]
    )
    own = space(rows, PERSONS, tmp_path=tmp_path).rows
    held_out = own.is_held_out.reshape(40, 2)
    assert (held_out[:, 0] == held_out[:, 1]).all()
    assert 2 < held_out[:, 0].sum() < 20


def test_who_belongs_together_is_part_of_what_noise_follows_from(tmp_path):
    rows = table(0)
    other = rows.set_column(6, "person", [np.array(rows["person"])[::-1]])
    one, two = (space(each, PERSONS, tmp_path=tmp_path).rows.fingerprint for each in (rows, other))
    assert one != two
