"""Decided tables with scores, margins and ranks; places are filled from the top."""

import csv

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedopl.base.errors import OptionError, PolicyError
from fedopl.base.schema import Encoding
from fedopl.client.apply_policy import decide_table
from fedopl.client.ranked_rows import Ranking
from fedopl.policies.allowed.permissions import Never, Permissions
from fedopl.policies.linear import LinearPolicy, constant_policy
from fedopl.policies.pairwise import PairwisePolicy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Branch, Leaf

ACTIONS = ("wait", "A", "B")
ENCODING = Encoding(numeric=("x", "z"))
NUMBERS = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    rows = np.round(rng.normal(size=(200, 2)) * 2, 1)  # with ties
    lines = ["x,z", *(f"{x},{z}" for x, z in rows.tolist())]
    lines[7] = ",1.0"
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "rows.csv"


def read(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def number(cell):
    return float(cell) if cell else np.nan


def test_scores_margins_ranks_and_places_are_those_of_the_rows(table, tmp_path):
    permissions = Permissions(never=[Never(action="A", when="z > 2")])
    policy = LinearPolicy(NUMBERS, ACTIONS, ("x", "z"), ENCODING, None, permissions)
    out = tmp_path / "out.csv"
    decide_table(policy, table, out, undecided="blank", ranking=Ranking())
    rows = read(out)
    assert rows[6] == {**dict.fromkeys(rows[6], ""), "z": "1.0"}
    decided = [row for row in rows if row["action"]]
    for row in decided:
        x, z = float(row["x"]), float(row["z"])
        scores = {"wait": 1.0, "A": x, "B": z}
        if z > 2:
            assert row["score: A"] == ""
            del scores["A"]
        assert {a: float(row[f"score: {a}"]) for a in scores} == pytest.approx(scores)
        best, second, *_ = sorted(scores.values(), reverse=True)
        assert scores[row["action"]] == best
        assert float(row["margin"]) == pytest.approx(best - second)
    ranked = sorted(decided, key=lambda row: int(row["rank"]))
    assert [int(row["rank"]) for row in ranked] == list(range(1, len(decided) + 1))
    margins = [float(row["margin"]) for row in ranked]
    assert margins == sorted(margins, reverse=True)
    places = Ranking(places={"A": 10})
    counts = decide_table(policy, table, out, undecided="blank", ranking=places).counts
    assert counts["A"] == 10
    given = read(out)
    best = [n for n, row in enumerate(given) if row["rank"] and int(row["rank"]) <= 10]
    assert [n for n, row in enumerate(given) if row["action"] == "A"] == best
    assert not any(float(row["z"]) > 2 for row in given if row["action"] == "A")


def test_margins_over_a_control_and_parquet(table, tmp_path):
    policy = LinearPolicy(NUMBERS, ACTIONS, ("x", "z"), ENCODING)
    out = tmp_path / "out.parquet"
    decide_table(policy, table, out, undecided="blank", ranking=Ranking(over="wait"))
    found = pq.read_table(out).to_pydict()
    for place, action in enumerate(found["action"]):
        if action is None:
            assert found["margin"][place] is found["rank"][place] is None
        else:
            own = found[f"score: {action}"][place]
            assert found["margin"][place] == pytest.approx(own - 1.0)


def test_a_tree_is_ranked_by_the_values_of_its_leaves(table, tmp_path):
    tree = TreePolicy(Branch(0, 0.0, Leaf(0), Leaf(1)), ACTIONS, ("x", "z"), ENCODING)
    out = tmp_path / "out.csv"
    with pytest.raises(PolicyError, match="name the folder"):
        decide_table(tree, table, out, ranking=Ranking())
    values = np.array([[2.0, 1.0, np.nan], [0.0, 3.0, 1.0]])
    valued = TreePolicy(tree.root, ACTIONS, ("x", "z"), ENCODING, leaf_values=values)
    decide_table(valued, table, out, undecided="blank", ranking=Ranking(places={"A": 5}))
    rows = read(out)
    taken = [n for n, row in enumerate(rows) if row["action"] == "A"]
    above = [n for n, row in enumerate(rows) if row["action"] and float(row["x"]) > 0]
    assert taken == above[:5]
    assert {row["action"] for row in rows if row["action"] and float(row["x"]) <= 0} == {"wait"}


@pytest.mark.parametrize(
    ("policy", "ranking", "words"),
    [
        (constant_policy("A", ACTIONS, ("x", "z")), Ranking(), "gives everybody the same scores"),
        (PairwisePolicy(NUMBERS, ACTIONS, ("x", "z")), Ranking(), "does not say what actions"),
        (LinearPolicy(NUMBERS, ACTIONS, ("x", "z")), Ranking(over="C"), "'C' is no action"),
        (LinearPolicy(NUMBERS, ACTIONS, ("x", "z")), Ranking(places={"A": -1}), "0 or more"),
        (LinearPolicy(NUMBERS, ACTIONS, ("x", "z")), Ranking(fill=True), "no places to fill"),
    ],
)
def test_what_cannot_be_ranked_is_refused(table, tmp_path, policy, ranking, words):
    from dataclasses import replace

    policy = replace(policy, encoding=ENCODING)
    with pytest.raises((PolicyError, OptionError), match=words):
        decide_table(policy, table, tmp_path / "out.csv", undecided="blank", ranking=ranking)
    assert not (tmp_path / "out.csv").exists()
