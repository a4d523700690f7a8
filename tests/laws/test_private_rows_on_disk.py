"""A private study answers from rows on disk what it answers from memory, noise and all."""

import tracemalloc

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
from fedopl.client.private.private_workspace import PrivateWorkspace
from fedopl.messages.private.noised_scores import ValuePrivately
from fedopl.messages.private.noised_sums import SumPrivately, SumResiduals
from fedopl.policies.kinds import packed
from fedopl.policies.linear import constant_policy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Branch, Leaf
from fedopl.privacy.exact_noise import row_by_row

ACTIONS, FEATURES = ("a", "b"), tuple(f"x{place}" for place in range(9))
RANGES = dict.fromkeys(FEATURES, (-2.0, 2.0))
NARROW = {"x0": (-1.0, 0.0, 1.0), "x1": (-1.0, 0.0, 1.0)}
TREE = TreePolicy(Branch(0, 0.1, Leaf(0), Leaf(1)), ACTIONS, FEATURES)
CANDIDATES = {"always a": constant_policy("a", ACTIONS, FEATURES), "tree": TREE}
SGD = fedopl.Linear(oracle="csoaa-sgd", training=fedopl.TrainingPlan(rounds=3))
# By name: options of the call, of the plan, and what columns say beside features and outcomes.
STUDIES = {
    "rows, sampled": ({"policy": SGD}, {"sampled": 0.4}, {"propensity": "chance"}),
    "basis": ({"basis": fedopl.Basis(knots=NARROW)}, {}, {}),
    "tree": ({"policy": fedopl.Tree(depth=2)}, {}, {"propensity": "chance"}),
    "candidates": ({"policy": fedopl.Finite(candidates=CANDIDATES)}, {}, {}),
    "persons, sampled": (
        {"policy": SGD},
        {"unit": "person", "most_rows_per_person": 2, "sampled": 0.4},
        {"group": "person"},
    ),
    "under masks": ({}, {"noise": "total", "aggregation": "secure"}, {}),
}


def table(seed, n_rows):
    rng = np.random.default_rng(seed)
    contexts, action = rng.normal(size=(n_rows, len(FEATURES))), rng.integers(2, size=n_rows)
    outcome = contexts[:, 0] * np.where(action, 1, -1) + rng.normal(size=n_rows)
    return pa.table(
        {
            **dict(zip(FEATURES, contexts.T, strict=True)),
            "done": np.array(ACTIONS)[action],
            "gained": outcome,
            "chance": rng.uniform(0.4, 0.6, n_rows),
            # Of three rows each, which lie far apart.
            "person": rng.permutation(n_rows) // 3,
        }
    )


def read(folder, columns, n_rows, **kept):
    schema = fedopl.Schema(
        action="done",
        actions=ACTIONS,
        reward="gained",
        direction="higher",
        numeric=FEATURES,
        **columns,
    )
    found = {}
    for seed, name in enumerate(("east", "north", "west")):
        path = folder / f"{name} {n_rows}.parquet"
        if not path.exists():
            parquet.write_table(table(seed, n_rows), path)
        found[name] = fedopl.read_logged(path, schema, **kept)
    return found


def learned(clients, options, plan):
    privacy = fedopl.PrivacyPlan(epsilon=8.0, outcome=(-4, 4), ranges=RANGES, **plan)
    return fedopl.learn(
        clients,
        privacy=privacy,
        declared=fedopl.Declared(overlap=0.3),
        running=fedopl.Running(secret="of rows on disk"),
        **{"basis": "linear", **options},
    )


@pytest.mark.parametrize("name", STUDIES)
def test_every_answer_is_the_same_from_disk_and_from_memory_whatever_is_read_at_once(
    name, tmp_path, monkeypatch
):
    options, plan, columns = STUDIES[name]
    told = []
    honest = Door.handle

    def heard(door, content):
        told[-1].append((door.name, content, honest(door, content)))
        return told[-1][-1][-1]

    monkeypatch.setattr(Door, "handle", heard)
    told.append([])
    in_memory = learned(read(tmp_path, columns, 80), options, plan)
    assert not in_memory.refusals
    clients = read(tmp_path, columns, 80, on_disk=tmp_path / "rows")
    assert all(data.is_on_disk for data in clients.values())
    for at_once in (1, 50, 1000):
        monkeypatch.setattr(private_rows, "ROWS_PER_CHUNK", at_once)
        told.append([])
        learned(clients, options, plan)
        assert told[-1] == told[0]


def test_a_row_is_rounded_as_it_would_be_alone():
    """By BLAS it may not be: one row more could then move others on the grid."""
    rng = np.random.default_rng(0)
    for n_columns, n_actions in ((7, 3), (40, 4), (61, 60), (5, 1)):
        rows, models = rng.normal(size=(300, n_columns)), rng.normal(size=(n_actions, n_columns))
        together = row_by_row(rows, models.T)
        np.testing.assert_allclose(together, rows @ models.T, rtol=1e-9, atol=1e-9)
        for n_rows in (1, 2, 3, 31, 299):
            np.testing.assert_array_equal(row_by_row(rows[:n_rows], models.T), together[:n_rows])
            np.testing.assert_array_equal(row_by_row(rows[-n_rows:], models.T), together[-n_rows:])


def test_memory_grows_by_a_few_bytes_a_row(tmp_path, monkeypatch):
    """Also where rows of a person lie anywhere; the numbers of a row take 88."""
    options, plan, columns = STUDIES["persons, sampled"]
    study = learned(read(tmp_path, columns, 80), options, plan).study
    monkeypatch.setattr(private_rows, "ROWS_PER_CHUNK", 500)
    monkeypatch.setattr(private_rows, "RECORDS_PER_BUCKET", 1000)
    models = np.ones((2, len(FEATURES) + 1))
    step = SumResiduals(number=0, n_terms=len(FEATURES), parameters=models)
    values = ValuePrivately(models=models, **packed([*CANDIDATES.values()], study))
    peaks = []
    for n_rows in (1_500, 20_000, 40_000):  # the first take what is made once, whatever the rows
        data = read(tmp_path, columns, n_rows, on_disk=tmp_path / "rows")["east"]
        own = PrivateWorkspace(data, study, Limits.open(), PrivateDraws(0, "east", "s" * 32))
        tracemalloc.start()
        for query in (SumPrivately(), step, values):
            PRIVATE_HANDLERS[type(query)](own, query)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[2] - peaks[1]) / 20_000 < 16
