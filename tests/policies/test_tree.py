import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedopl
from fedopl.base.errors import DataError, PolicyError
from fedopl.base.schema import Encoding
from fedopl.policies.tree import TreePolicy
from fedopl.policies.tree_columns import LevelColumn, NumberColumn, tree_columns
from fedopl.policies.trees.nodes import (
    MOST_NODES,
    Branch,
    Leaf,
    as_array,
    depth_of,
    from_array,
    leaf_positions,
)

ENCODING = Encoding(
    numeric=("age",), categorical={"place": ("town", "land", "sea")}, missing="indicator"
)
# age, whether it is missing, place=land, place=sea, whether place is missing
ROWS = np.array(
    [
        [30.0, 0, 0, 0, 0],  # town
        [50.0, 0, 1, 0, 0],  # land
        [50.0, 0, 0, 1, 0],  # sea
        [0.0, 1, 0, 0, 1],  # neither is known
    ]
)


def policy_of(root):
    return TreePolicy(root, ("none", "some", "all"), ENCODING.feature_names, ENCODING)


TREE = policy_of(
    Branch(0, 40.5, Branch(2, 3.0, Leaf(0), Leaf(1)), Branch(2, 1.0, Leaf(2), Leaf(0)))
)


# --- what may be asked ----------------------------------------------------------------------------


def test_numbers_are_columns_and_so_are_labels_with_what_is_missing():
    assert tree_columns(ENCODING.feature_names, ENCODING) == (
        NumberColumn(name="age", feature=0),
        LevelColumn(name="age is missing", levels=("no", "yes"), features=(1,)),
        LevelColumn(name="place", levels=("town", "land", "sea", None), features=(2, 3, 4)),
    )
    assert tree_columns(("x", "y"), None) == (
        NumberColumn(name="x", feature=0),
        NumberColumn(name="y", feature=1),
    )


def test_levels_are_read_from_their_features():
    place = TREE.columns[2]
    assert place.values(ROWS).tolist() == [0, 1, 2, 3]
    assert TREE.columns[1].values(ROWS).tolist() == [0, 0, 0, 1]


def test_a_tree_decides_by_numbers_levels_and_what_is_missing():
    assert TREE.names(ROWS).tolist() == ["some", "all", "none", "none"]
    assert leaf_positions(TREE.root, TREE.columns, ROWS).tolist() == [1, 2, 3, 0]


def test_questions_are_words():
    assert TREE.question(TREE.root) == "age ≤ 40.5"
    assert TREE.question(TREE.root.yes) == "place is missing"
    assert TREE.question(TREE.root.no) == "place is 'land'"
    assert repr(TREE) == "TreePolicy(depth 2, 4 leaves)"


def test_contexts_are_checked():
    with pytest.raises(DataError, match="learned on 5 features"):
        TREE.decide([[1.0]])


# --- saved ----------------------------------------------------------------------------------------


def test_a_saved_tree_decides_the_same_and_can_be_read(tmp_path):
    TREE.save(tmp_path / "policy.json")
    again = fedopl.load_policy(tmp_path / "policy.json")
    assert isinstance(again, TreePolicy)
    assert (again.root, again.encoding) == (TREE.root, ENCODING)
    content = json.loads((tmp_path / "policy.json").read_text())
    assert content["tree"]["column"] == "age"
    assert content["tree"]["at most"] == 40.5
    assert content["tree"]["yes"] == {
        "column": "place",
        "is": None,
        "yes": {"action": "none"},
        "no": {"action": "some"},
    }


DAMAGE = {
    "an action that is none": ("action", "everything"),
    "a column that is none": ("column", "height"),
    "a level that is none": ("is", "mars"),
    "a threshold that is text": ("at most", "old"),
    "a threshold that is not finite": ("at most", float("inf")),
    "an answer that leads nowhere": ("no", None),
}


def damaged(node, key, value):
    if key in node:
        return {**node, key: value}
    return {k: damaged(v, key, value) if k in ("yes", "no") else v for k, v in node.items()}


@pytest.mark.parametrize(("key", "value"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_tree_is_refused(tmp_path, key, value):
    TREE.save(tmp_path / "policy.json")
    content = json.loads((tmp_path / "policy.json").read_text())
    content["tree"] = damaged(content["tree"], key, value)
    (tmp_path / "policy.json").write_text(json.dumps(content))
    with pytest.raises(PolicyError, match=r"policy\.json: a field is missing or of the wrong"):
        fedopl.load_policy(tmp_path / "policy.json")


@pytest.mark.parametrize("depth", [7, 5000])
def test_a_tree_that_is_too_deep_is_refused(tmp_path, depth):
    TREE.save(tmp_path / "policy.json")
    text = (tmp_path / "policy.json").read_text()
    deep = '{"column": "age", "at most": 1, "no": {"action": "some"}, "yes": ' * depth
    start, end = text.index('"tree": ') + 8, text.index('"encoding"')
    tree = deep + '{"action": "some"}' + "}" * depth
    (tmp_path / "policy.json").write_text(f"{text[:start]}{tree},\n {text[end:]}")
    with pytest.raises(PolicyError, match=r"policy\.json: "):
        fedopl.load_policy(tmp_path / "policy.json")


# --- as numbers -----------------------------------------------------------------------------------

nodes = st.recursive(
    st.builds(Leaf, st.integers(0, 2)),
    lambda below: st.one_of(
        st.builds(Branch, st.just(0), st.floats(-1e9, 1e9), below, below),
        st.builds(Branch, st.just(2), st.integers(0, 3).map(float), below, below),
    ),
    max_leaves=16,
)


@given(nodes)
def test_a_tree_is_the_same_as_numbers(root):
    columns, actions = TREE.columns, range(3)
    assert from_array(as_array(root), columns, actions) == root
    if depth_of(root) <= 6:
        padded = as_array(root, MOST_NODES)
        assert len(padded) == MOST_NODES
        assert from_array(padded, columns, actions) == root


NOT_TREES = {
    "it leads back": [[0, 1.0, 0, 1], [-1, 0, 0, 0]],
    "both answers lead to one node": [[0, 1.0, 1, 1], [-1, 0, 0, 0]],
    "it leads out": [[0, 1.0, 1, 9], [-1, 0, 0, 0]],
    "it leads between two nodes": [[0, 1.0, 1, 1.5], [-1, 0, 0, 0], [-1, 0, 0, 0]],
    "it leads before itself": [[0, 1.0, -1, 1], [-1, 0, 0, 0]],
    "an action that is none": [[-1, 3, 0, 0]],
    "half an action": [[-1, 0.5, 0, 0]],
    "a column that is none": [[9, 1.0, 1, 2], [-1, 0, 0, 0], [-1, 0, 0, 0]],
    "half a column": [[0.5, 1.0, 1, 2], [-1, 0, 0, 0], [-1, 0, 0, 0]],
    "a level that is none": [[2, 4.0, 1, 2], [-1, 0, 0, 0], [-1, 0, 0, 0]],
    "a node too many": [[-1, 0, 0, 0], [-1, 0, 0, 0]],
    "nothing": [[-2, 0, 0, 0]],
    "no node": np.empty((0, 4)),
}


@pytest.mark.parametrize("numbers", NOT_TREES.values(), ids=NOT_TREES)
def test_numbers_that_are_no_tree_are_refused(numbers):
    with pytest.raises(ValueError, match=r".+"):
        from_array(np.array(numbers, float), TREE.columns, range(3))


def test_a_chain_of_more_nodes_than_any_tree_has_is_refused():
    with pytest.raises(ValueError, match="too many"):
        from_array(np.zeros((MOST_NODES + 1, 4)), TREE.columns, range(3))
