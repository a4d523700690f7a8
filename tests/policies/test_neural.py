"""A policy with a network decides by a linear policy's scores and a network's beside them."""

import json
import subprocess
import sys

import numpy as np
import pytest

from fedopl.base.errors import OptionError, PolicyError
from fedopl.base.schema import Encoding
from fedopl.policies.basis import Basis
from fedopl.policies.kinds import load_policy, misfit
from fedopl.policies.linear import NEVER, LinearPolicy
from fedopl.policies.neural import Layer, NeuralPolicy, first_network, on_raw_contexts, passed
from fedopl.policies.terms import Terms
from fedopl.study.policy_plans import Neural
from fedopl.study.study import Study

ACTIONS, FEATURES = ("stay", "go", "wait"), ("age", "dose")
RNG = np.random.default_rng(0)
CONTEXTS = RNG.normal(size=(200, 2))


def network_of(widths, seed=0):
    """One that says something: its last layer is not zero."""
    rng = np.random.default_rng(seed)
    *others, last = first_network(widths, rng)
    return (*others, Layer(rng.normal(size=last.weights.shape), rng.normal(size=last.biases.shape)))


def policy_with(terms=None, widths=(2, 8, 5, 3)):
    n_columns = 2 if terms is None else terms.n_terms
    parameters = RNG.normal(size=(3, n_columns + 1))
    encoding = Encoding(numeric=FEATURES)
    return NeuralPolicy(parameters, network_of(widths), ACTIONS, FEATURES, encoding, terms)


BENT = Terms(Basis(knots={"age": (-0.5, 0.5)}, products=FEATURES), FEATURES)
POLICIES = {
    "features": policy_with(),
    "terms": policy_with(BENT),
    "one layer": policy_with(None, (2, 4, 3)),
}
every_policy = pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)


def test_it_decides_as_by_hand():
    network = (
        Layer(np.array([[1.0], [0.0]]), np.array([-0.5])),  # age above a half
        Layer(np.array([[0.0, 4.0]]), np.array([0.0, 0.0])),
    )
    start = LinearPolicy(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]), ("stay", "go"), FEATURES)
    policy = NeuralPolicy.beside(start, network)
    contexts = [[0.0, 9.0], [0.75, 0.0], [0.76, 0.0]]
    np.testing.assert_allclose(policy.scores(contexts), [[1, 0], [1, 1], [1, 1.04]])
    assert policy.names(contexts).tolist() == ["stay", "stay", "go"]  # ties to the first


@every_policy
def test_saved_and_loaded_it_is_the_same_to_the_bit(policy, tmp_path):
    policy.save(tmp_path / "policy.json")
    again = load_policy(tmp_path / "policy.json")
    assert isinstance(again, NeuralPolicy)
    assert again.numbers().tobytes() == policy.numbers().tobytes()
    np.testing.assert_array_equal(again.scores(CONTEXTS), policy.scores(CONTEXTS))
    json.loads((tmp_path / "policy.json").read_text())  # text, and nothing to unpickle


@pytest.mark.parametrize(
    "spoil",
    [
        lambda layers: layers.pop(),
        lambda layers: layers[0]["weights"].pop(),
        lambda layers: layers[0]["biases"].append(0.0),
        lambda layers: layers.clear(),
        lambda layers: layers[1].update(biases="many"),
    ],
)
def test_a_file_whose_layers_do_not_fit_is_refused(spoil, tmp_path):
    path = tmp_path / "policy.json"
    POLICIES["features"].save(path)
    content = json.loads(path.read_text())
    spoil(content["layers"])
    path.write_text(json.dumps(content))
    with pytest.raises(PolicyError, match="wrong kind or size"):
        load_policy(path)


def test_standardised_contexts_and_units_are_folded_into_the_layers():
    network, centre, scale = network_of((2, 6, 3)), np.array([3.0, -1.0]), np.array([2.0, 0.5])
    raw = on_raw_contexts(network, centre, scale, spread=7.0)
    expected = 7.0 * passed(network, (CONTEXTS - centre) / scale)[-1]
    np.testing.assert_allclose(passed(raw, CONTEXTS)[-1], expected, rtol=1e-12)


def test_an_action_that_nobody_has_a_score_for_is_never_taken():
    parameters = np.zeros((3, 3))
    parameters[1, -1] = NEVER
    policy = NeuralPolicy(parameters, network_of((2, 8, 3)), ACTIONS, FEATURES)
    assert 1 not in policy.decide(CONTEXTS)


@every_policy
def test_a_python_file_decides_as_it_does(policy, tmp_path):
    policy.export(tmp_path / "policy.py")
    rows = "age,dose\n" + "".join(f"{a!r},{d!r}\n" for a, d in CONTEXTS.tolist())
    (tmp_path / "rows.csv").write_text(rows)
    run = [sys.executable, str(tmp_path / "policy.py"), str(tmp_path / "rows.csv")]
    decided = subprocess.run(run, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [line.split(",")[-1] for line in decided[1:]] == policy.names(CONTEXTS).tolist()


@every_policy
def test_an_onnx_model_decides_as_it_does(policy, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    policy.export(tmp_path / "policy.onnx")
    session = runtime.InferenceSession(tmp_path / "policy.onnx")
    columns = {name: CONTEXTS[:, [place]] for place, name in enumerate(FEATURES)}
    (decided,) = session.run(None, columns)
    assert decided[:, 0].tolist() == policy.names(CONTEXTS).tolist()


@pytest.mark.parametrize("ending", ["sql", "xlsx"])
def test_languages_without_loops_refuse_in_words(ending, tmp_path):
    with pytest.raises(OptionError, match=r"exported to python \(.py\) or onnx"):
        POLICIES["features"].export(tmp_path / f"policy.{ending}")
    assert not list(tmp_path.iterdir())


def test_only_a_study_with_the_same_layers_can_value_it():
    policy = POLICIES["one layer"]
    study = Study(actions=ACTIONS, features=FEATURES, policy=Neural(hidden=(4,)))
    assert misfit(policy, study) is None
    for other in (Neural(hidden=(4, 4)), "linear"):
        wrong = Study(actions=ACTIONS, features=FEATURES, policy=other)
        assert "hidden = [4]" in misfit(policy, wrong)
