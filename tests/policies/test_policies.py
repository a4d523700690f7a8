import json

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import fedopl
from fedopl.policies.linear import constant_policy
from fedopl.policies.pairwise import action_pairs
from fedopl.policies.policy import policy_json

ACTIONS, FEATURES = ("stay", "go", "wait"), ("x", "y")
PARAMETERS = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, -1.0, 0.5]])


@pytest.fixture
def policy():
    return fedopl.LinearPolicy(PARAMETERS, ACTIONS, FEATURES)


def test_the_largest_score_is_taken(policy):
    contexts = [[2, 0], [0, 2], [-1, -1]]
    assert policy.decide(contexts).tolist() == [0, 1, 2]
    assert policy.names(contexts).tolist() == ["stay", "go", "wait"]
    np.testing.assert_array_equal(policy.scores(contexts)[2], [-1, -1, 2.5])


def test_ties_go_to_the_lowest_code():
    nothing = np.zeros((3, 3))
    assert fedopl.LinearPolicy(nothing, ACTIONS, FEATURES).decide([[1, 2]]).tolist() == [0]
    assert fedopl.PairwisePolicy(nothing, ACTIONS, FEATURES).decide([[1, 2]]).tolist() == [0]


def test_pairs_are_counted_as_wins():
    # go beats stay, wait beats stay, wait beats go: wait has most wins.
    parameters = np.array([[0, 0, -1.0], [0, 0, -1.0], [0, 0, -1.0]])
    policy = fedopl.PairwisePolicy(parameters, ACTIONS, FEATURES)
    assert policy.score_names == ["stay over go", "stay over wait", "go over wait"]
    np.testing.assert_array_equal(policy.scores([[0, 0]]), [[0, 1, 2]])
    assert action_pairs(3) == [(0, 1), (0, 2), (1, 2)]


def test_a_constant_policy_gives_everybody_the_same():
    policy = constant_policy("go", ACTIONS, FEATURES)
    assert set(policy.decide(np.random.default_rng(0).standard_normal((20, 2)) * 1e6)) == {1}
    with pytest.raises(fedopl.OptionError, match="'run' is not an action"):
        constant_policy("run", ACTIONS, FEATURES)


def test_a_frame_may_have_its_columns_in_any_order(policy):
    frame = pandas.DataFrame({"y": [0, 2], "more": ["a", "b"], "x": [2, 0]})
    assert policy.decide(frame).tolist() == [0, 1]
    with pytest.raises(fedopl.DataError, match="needs columns 'x'"):
        policy.decide(frame[["y"]])


@pytest.mark.parametrize(
    ("contexts", "message"),
    [
        ([[1, 2, 3]], "learned on 2 features"),
        ([1, 2], "expected shape"),
        ([["a", "b"]], "expected numbers"),
        ([[1, np.nan]], "missing or infinite values in 1 of 1 rows .*'y' 1"),
    ],
)
def test_bad_contexts_are_refused(policy, contexts, message):
    with pytest.raises(fedopl.DataError, match=message):
        policy.decide(contexts)


@pytest.mark.parametrize("kind", [fedopl.LinearPolicy, fedopl.PairwisePolicy])
@given(arrays(np.float64, (3, 3), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_a_saved_policy_loads_bit_for_bit(tmp_path_factory, kind, parameters):
    path = tmp_path_factory.mktemp("policies") / "policy.json"
    policy = kind(parameters, ACTIONS, FEATURES)
    policy.save(path)
    loaded = fedopl.load_policy(path)
    assert type(loaded) is kind
    assert loaded.numbers().tobytes() == parameters.tobytes()
    assert (loaded.action_names, loaded.feature_names) == (ACTIONS, FEATURES)
    assert policy_json(loaded) == path.read_text()


def test_the_file_is_json_a_person_can_read(policy, tmp_path):
    policy.save(tmp_path / "policy.json")
    content = json.loads((tmp_path / "policy.json").read_text())
    assert content["scores"][1] == {"of": "go", "intercept": 0.0, "coefficients": [0.0, 1.0]}


def broken(**changes):
    content = json.loads(policy_json(fedopl.LinearPolicy(PARAMETERS, ACTIONS, FEATURES)))
    return json.dumps({**content, **changes})


BAD_FILES = {
    "not JSON": ("kind: linear", "is not JSON"),
    "something else": ('{"a": 1}', "is not a policy saved by fedopl"),
    "a list": ("[1]", "is not a policy saved by fedopl"),
    "another version": (broken(version=99), "expected version 1, came 99"),
    "another kind": (broken(kind="oracle"), "missing or of the wrong kind or size"),
    "too few scores": (broken(scores=[]), "missing or of the wrong kind or size"),
    "no actions": (broken(actions=None), "missing or of the wrong kind or size"),
    "infinity": (broken(scores=[{"intercept": 1e999, "coefficients": [0, 0]}] * 3), "wrong kind"),
}


@pytest.mark.parametrize(("text", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_bad_file_is_refused(tmp_path, text, message):
    path = tmp_path / "policy.json"
    path.write_text(text)
    with pytest.raises(fedopl.PolicyError, match=message) as caught:
        fedopl.load_policy(path)
    assert "policy.json" in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(fedopl.PolicyError, match="No such file"):
        fedopl.load_policy(tmp_path / "none.json")


def test_a_policy_that_cannot_be_written_leaves_the_old_one(policy, tmp_path):
    (tmp_path / "file").write_text("old")
    with pytest.raises(fedopl.StorageError, match="cannot be written"):
        policy.save(tmp_path / "file" / "policy.json")
    assert (tmp_path / "file").read_text() == "old"
