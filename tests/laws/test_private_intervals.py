"""Intervals with differential privacy hold as often as they claim, and are no wider than need be.

Policies and outcome models are given, so that many releases are cheap: real answers of clients,
with real noise, and what the server makes of them.
"""

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.private.private_workspace import PrivateWorkspace
from fedopl.messages.private.noised_scores import ValuePrivately
from fedopl.policies.kinds import packed
from fedopl.server.aggregate.evaluation import honest_variance, mixture_estimate
from fedopl.server.private_values import values_of
from fedopl.study.study import Study

N_CLIENTS, N_ROWS = 3, 400
CONTRASTS = {"value": np.array([1.0, 0, 0, 0]), "gain": np.array([1.0, -1, 0, 0])}
# Outcomes of two arms, ±x and noise. The policy takes the better one, the arm is the first.
TRUTH = {"value": np.sqrt(2 / np.pi), "gain": np.sqrt(2 / np.pi)}
POLICIES = np.array([[[1.0, 0], [-1, 0]], [[0, 1], [0, 0]]])
MODELS = {"right": POLICIES[0], "wrong": np.array([[-2.0, 1], [-2, -1]])}


def a_study(most=1, epsilon=1.0, overlap=0.5):
    plan = fedopl.PrivacyPlan(
        epsilon=epsilon,
        outcome=(-5, 5),
        ranges={"x": (-2, 2)},
        unit="row" if most == 1 else "person",
        most_rows_per_person=most,
    )
    declared = fedopl.Declared(overlap=overlap)
    return Study(actions=("a", "b"), features=("x",), privacy=plan, declared=declared)


def a_client(rng, most):
    """A trial's rows; those of a person are alike."""
    n_people = N_ROWS // most
    contexts = np.repeat(rng.normal(size=n_people), most)
    actions = np.repeat(rng.integers(2, size=n_people), most)
    outcomes = np.where(actions == 0, contexts, -contexts) + np.repeat(
        rng.normal(size=n_people), most
    )
    return fedopl.LoggedData(
        contexts[:, None],
        actions,
        np.clip(outcomes, -5, 5),
        np.full(N_ROWS, 0.5),
        action_names=("a", "b"),
        feature_names=("x",),
        groups=None if most == 1 else np.repeat(np.arange(n_people), most),
    )


def estimates(study, models, draw):
    """What the server says of one draw of all clients."""
    rng = np.random.default_rng(draw)
    query = ValuePrivately(models=models, **packed([], study) | {"linear": POLICIES})
    answers = {}
    for place in range(N_CLIENTS):
        data = a_client(rng, study.privacy.most_rows_per_person)
        draws = PrivateDraws(0, f"{place}", f"secret {draw}".ljust(32))
        own = PrivateWorkspace(data, study, Limits.open(), draws).noised_values(query, b"")
        answers[str(place)] = values_of(study, own)
    weights = dict.fromkeys(answers, 1 / N_CLIENTS)
    return {name: mixture_estimate(answers, weights, c) for name, c in CONTRASTS.items()}


# With few draws, the shares that hold and the errors that are made are known less well.
@pytest.mark.parametrize(
    ("n_draws", "least", "beside"),
    [(40, 0.85, 0.2), pytest.param(200, 0.92, 0.1, marks=pytest.mark.slow_law)],
    ids=["few draws", "many draws"],
)
@pytest.mark.parametrize(("how", "most"), [("right", 1), ("wrong", 2)])
def test_they_hold_what_they_claim_and_are_no_wider_than_that_takes(
    how, most, n_draws, least, beside
):
    study = a_study(most)
    found = [estimates(study, MODELS[how], draw) for draw in range(n_draws)]
    for name, truth in TRUTH.items():
        own = [one[name] for one in found]
        held = np.mean([low <= truth <= high for low, high in (one.interval() for one in own)])
        off = np.sqrt(np.mean([(one.value - truth) ** 2 for one in own]))
        wide = np.sqrt(np.mean([one.standard_error**2 for one in own])) / off
        assert held > least, name
        # The claimed error is that which is made, and what the variance's own noise takes.
        assert 1 - beside < wide < 1 + 2 * beside, name


def test_a_variance_with_noise_makes_no_interval_hold_too_rarely():
    """Whatever the variance is beside its noise: from nothing to much, for 95 % and 97.5 %."""
    from scipy.special import ndtr, ndtri

    drawn = np.linspace(-6, 6, 401)
    chance = np.exp(-(drawn**2) / 2) / np.exp(-(drawn**2) / 2).sum()
    for level in (0.95, 0.975):
        quantile = ndtri(0.5 + level / 2)
        for doubt in (0.1, 0.5, 2.0, 20.0):
            for beyond in doubt * np.array([0, 0.1, 0.3, 1, 2, 4, 8, 16]):
                seen = 1 + beyond + doubt * drawn
                claimed = np.array([honest_variance(one, [(1.0, doubt)]) for one in seen])
                held = 2 * ndtr(quantile * np.sqrt(claimed / (1 + beyond))) - 1
                assert chance @ held > level - 2e-3
