"""Law: where the past says little, an action has to look better by more."""

import json

import numpy as np
import pytest
from lying_server import N_FEATURES, packed, study_with

import fedopl
from fedopl.base.errors import OptionError
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.message import Axis
from fedopl.policies.cautious import CautiousPolicy
from fedopl.policies.kinds import misfit, unpacked
from fedopl.policies.linear import constant_policy
from fedopl.results.files.run_folder import load_record, save_record
from fedopl.results.sums.finite_statistics import FiniteStatistics
from fedopl.results.value_tables import LEARNED
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study

SIZES = {"north": 400, "south": 150, "west": 61}
BETA = 0.5


@pytest.fixture(scope="module")
def federation():
    """Three clients in which the last action is rare, their doors after a run, and the record."""
    clients = {}
    for seed, (name, size) in enumerate(SIZES.items()):
        rng = np.random.default_rng(seed)
        x = rng.normal([0, 5, 0], 1, (size, 3))
        chances = np.column_stack([np.ones(size), np.ones(size), np.where(x[:, 0] > 0, 0.04, 1)])
        chances /= chances.sum(axis=1, keepdims=True)
        actions = (chances.cumsum(axis=1)[:, :-1] < rng.random((size, 1))).sum(axis=1)
        rewards = x[:, 1] + x[:, 2] * actions + rng.standard_normal(size)
        weights = rng.uniform(0.5, 2, size)
        clients[name] = fedopl.LoggedData(x, actions, rewards, chances, weights=weights)
    first = clients["north"]
    study = fedopl.Study(
        actions=first.action_names,
        features=first.feature_names,
        policy=fedopl.Linear(caution=BETA, precision="rows"),
        evaluation=0.25,
    )
    doors = {
        name: Door(name, data, study, limits=Limits.open(), secret=SEED_ALONE)
        for name, data in clients.items()
    }
    return doors, run_study(Conversation(study, InProcess(doors)))


def training_rows(doors):
    """Contexts with a one, actions and weights of everybody's training rows."""
    spaces = [doors[name]._space for name in sorted(doors)]
    x = np.vstack([space.data.contexts[space.training] for space in spaces])
    actions = np.concatenate([space.data.actions[space.training] for space in spaces])
    weights = np.concatenate([space.data.weights[space.training] for space in spaces])
    return np.column_stack([x, np.ones(len(x))]), actions, weights


def test_doubts_are_the_standard_errors_of_pooled_rows(federation):
    doors, record = federation
    b, actions, weights = training_rows(doors)
    mean = (b * weights[:, None]).T @ b / weights.sum()
    variances = []
    for action, own in enumerate(record.policy.doubts):
        took, of_takers = b[actions == action], weights[actions == action]
        gram = (took * of_takers[:, None]).T @ took * of_takers.sum() / (of_takers**2).sum()
        expected = np.linalg.inv(gram + mean)
        variances.append(np.trace(own.T @ own) / np.trace(expected) / BETA**2)
        np.testing.assert_allclose(own.T @ own, BETA**2 * variances[-1] * expected, rtol=1e-8)
    # One for all actions, and that of the outcomes' noise.
    np.testing.assert_allclose(variances, variances[0], rtol=1e-8)
    assert variances[0] == pytest.approx(1.0, rel=0.25)


def test_the_largest_score_less_its_doubt_decides_and_is_what_clients_value(federation):
    doors, record = federation
    policy, space = record.policy, doors["north"]._space
    contexts = space.data.contexts[space.n_training :]
    b = np.column_stack([contexts, np.ones(len(contexts))])
    doubts = np.column_stack([np.linalg.norm(b @ own.T, axis=1) for own in policy.doubts])
    decided = np.argmax(b @ policy.parameters.T - doubts, axis=1)
    np.testing.assert_array_equal(policy.decide(contexts), decided)
    assert (decided != np.argmax(b @ policy.parameters.T, axis=1)).any()
    rows_there = np.arange(space.n_training, space.data.n_rows)
    scores, weights = space.scores[rows_there, decided], space.data.weights[rows_there]
    value = record.values.of(LEARNED, "north").value
    assert value == pytest.approx(np.average(scores, weights=weights))


def test_an_action_is_doubted_most_where_it_was_rare(federation):
    _, record = federation
    rare, common = record.policy.doubted([[1.5, 5, 0], [-1.0, 5, 0]])[:, 2]
    assert rare > 1.5 * common


def test_a_cautious_policy_comes_back_from_files_and_messages(federation, tmp_path):
    _, record = federation
    policy = record.policy
    contexts = np.random.default_rng(0).normal([0, 5, 0], 1, (200, 3))
    policy.save(tmp_path / "policy.json")
    loaded = fedopl.load_policy(tmp_path / "policy.json")
    assert isinstance(loaded, CautiousPolicy)
    assert loaded.numbers().tobytes() == policy.numbers().tobytes()
    arm = constant_policy(record.study.actions[1], record.study.actions, record.study.features)
    fields = packed([policy, arm], record.study)
    back = [unpacked("linear", numbers, record.study) for numbers in fields["linear"]]
    np.testing.assert_array_equal(back[0].decide(contexts), policy.decide(contexts))
    assert set(back[1].decide(contexts)) == {1}
    save_record(record, tmp_path / "run")
    again = load_record(tmp_path / "run").resolve(record.study.mixture)
    np.testing.assert_allclose(again.numbers(), policy.numbers(), rtol=1e-9)
    plain = record.study.model_copy(update={"policy": fedopl.Linear()})
    assert "caution" in misfit(policy, plain)
    text = json.loads((tmp_path / "policy.json").read_text())
    text["scores"][0]["doubt"] = [[1.0]]
    (tmp_path / "policy.json").write_text(json.dumps(text))
    with pytest.raises(fedopl.PolicyError, match="wrong kind or size"):
        fedopl.load_policy(tmp_path / "policy.json")


def test_without_caution_nothing_is_said_of_it_and_nothing_is_longer():
    study = study_with(policy=fedopl.Linear(caution=0))
    assert study.digest == study_with().digest
    assert "caution" not in study.model_dump_json()
    assert axis_sizes(study)[Axis.LINEAR_NUMBERS] == range(N_FEATURES + 1, N_FEATURES + 2)
    cautious = study_with(policy=fedopl.Linear(caution=0.5))
    assert fedopl.Study.model_validate_json(cautious.model_dump_json()) == cautious
    assert cautious.digest != study.digest


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"policy": {"kind": "linear", "caution": -1}}, "greater than or equal to 0"),
        ({"policy": {"kind": "linear", "caution": float("nan")}}, "finite"),
        ({"policy": {"kind": "linear", "caution": 1, "oracle": "csoaa-sgd"}}, "csoaa-exact"),
        ({"policy": {"kind": "linear", "caution": 1, "oracle": "direct"}}, "csoaa-exact"),
        ({"policy": {"kind": "neural", "caution": 1}}, "caution"),
        (
            {
                "policy": fedopl.Linear(caution=1),
                "nuisances": fedopl.NuisancePlan(kind="local", propensity="marginal"),
            },
            "federated outcome models",
        ),
    ],
)
def test_caution_that_cannot_be_had_is_refused(options, why):
    with pytest.raises(OptionError, match=why):
        study_with(**options)


def test_a_candidate_is_judged_by_its_value_less_standard_errors():
    told = {
        "a": ([1.0, 1.2], [0.01, 0.09]),
        "b": ([0.8, 1.2], [0.01, 0.25]),
    }
    answers = {
        name: Values(
            n_rows=100,
            of_rows=100,
            degrees_of_freedom=99,
            means=np.array([*means, 0.0, 0.0]),
            covariances=np.diag([*variances, 1.0, 1.0]),
        )
        for name, (means, variances) in told.items()
    }
    weights = {"a": 0.75, "b": 0.25}
    # Gains .25; standard errors are √(.75²·.09 + .25²·.25) = .2577 and .0791.
    for caution, best in [(0.0, "risky"), (1.3, "risky"), (1.5, "safe")]:
        found = FiniteStatistics.of_answers(["safe", "risky"], answers, caution)
        assert found.solve(weights) == best
        assert found.solve_contrast({"a": 1.0, "b": -0.4}) == "risky"


def test_a_study_of_candidates_can_be_cautious_and_a_private_one_not():
    study = study_with(policy=fedopl.Finite(caution=1.5))
    assert fedopl.Study.model_validate_json(study.model_dump_json()).caution == 1.5
    assert not study.is_cautious  # so that its messages are what they were
    ranges = dict.fromkeys(study.features, (-5.0, 5.0))
    private = fedopl.PrivacyPlan(epsilon=1.0, outcome=(-5.0, 5.0), ranges=ranges)
    with pytest.raises(OptionError, match="sums with noise"):
        study_with(policy=fedopl.Finite(caution=1.5), privacy=private)


def test_doubts_about_more_terms_than_a_message_holds_are_refused():
    features = tuple(f"x{place}" for place in range(900))
    plan = {"policy": fedopl.Linear(caution=1), "features": features}
    study_with(**plan)
    with pytest.raises(OptionError, match="numbers of doubts about 900 terms"):
        study_with(**plan, joining=fedopl.JoiningPlan(diagnose=True))
