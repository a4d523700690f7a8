import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import ParameterGrid

import fedopl


@pytest.fixture
def logged(draw):
    data = draw(400, known=True)
    return data.contexts, data.actions, data.rewards, data.propensities


def test_fit_and_predict(logged):
    contexts, actions, rewards, propensities = logged
    learner = fedopl.PolicyLearner(seed=3).fit(contexts, actions, rewards, propensity=propensities)
    predicted = learner.predict(contexts)
    np.testing.assert_array_equal(predicted, learner.policy_.decide(contexts))
    direct = fedopl.learn({"all": fedopl.LoggedData(*logged)}, seed=3, evaluation=0.25)
    np.testing.assert_array_equal(learner.policy_.parameters, direct.policy.parameters)
    assert "beats" in learner.run_.verdict


def test_predictions_are_labels_as_they_came(logged):
    contexts, actions, rewards, _ = logged
    for labels in (np.array(["x", "y", "z"]), np.array([10, 20, 30])):
        learner = fedopl.PolicyLearner().fit(contexts, labels[actions], rewards)
        assert set(learner.predict(contexts)) <= set(labels)
        assert learner.classes_.dtype.kind == labels.dtype.kind


def test_it_follows_scikit_learns_conventions(logged):
    learner = fedopl.PolicyLearner(policy=fedopl.Linear(oracle="wap"), seed=7)
    assert clone(learner).get_params() == learner.get_params()
    few_rounds = fedopl.Linear(oracle="csoaa-sgd", training=fedopl.TrainingPlan(rounds=3))
    learner.set_params(policy=few_rounds)
    assert clone(learner).get_params()["policy"] == few_rounds
    policies = [few_rounds, fedopl.Linear(oracle="wap")]
    for options in ParameterGrid({"policy": policies, "seed": [0, 1]}):
        clone(learner).set_params(**options).fit(*logged[:3])
    with pytest.raises(NotFittedError):
        fedopl.PolicyLearner().predict(logged[0])
    with pytest.raises(ValueError, match="Invalid parameter"):
        learner.set_params(height=3)


def test_bad_parameters_are_refused_when_fitting(logged):
    learner = fedopl.PolicyLearner(policy="magic")
    with pytest.raises(fedopl.OptionError, match="policy"):
        learner.fit(*logged[:3])
