"""The local policy is learned as the study says: gains over it say what others add, no more."""

import numpy as np
import pytest

import fedopl
from fedopl.results.value_tables import LOCAL

ORACLES = ("csoaa-exact", "csoaa-sgd", "csoaa-vw", "wap", "direct")


def hospital(n_rows=1_200, seed=3):
    """Rows with few who took the second action where it is rare, so that clipping matters."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n_rows, 2))
    chances = 1 / (1 + np.exp(-2.5 * contexts[:, 0]))
    actions = (rng.random(n_rows) < chances).astype(int)
    effect = contexts[:, 1] + np.sin(2 * contexts[:, 0])
    rewards = contexts[:, 0] + effect * actions + rng.standard_normal(n_rows)
    return fedopl.LoggedData(contexts, actions, rewards)


@pytest.mark.parametrize("clip", [None, 0.1])
@pytest.mark.parametrize("oracle", ORACLES)
def test_one_client_alone_gains_nothing_over_itself(oracle, clip):
    if oracle == "csoaa-vw":
        pytest.importorskip("vowpalwabbit")
    run = fedopl.learn(
        {"alone": hospital()},
        basis="linear",
        policy=fedopl.Linear(oracle=oracle),
        nuisances=fedopl.NuisancePlan(kind="local", clip=clip),
    )
    gain = run.gains.over(LOCAL)
    assert (gain.value, gain.standard_error) == (0, 0)


def test_one_client_alone_with_blocks_gains_nothing_over_itself():
    run = fedopl.learn(
        {"alone": hospital()},
        basis="linear",
        policy=fedopl.Linear(oracle="direct", features="blocks"),
        nuisances=fedopl.NuisancePlan(kind="local", clip=0.05),
    )
    assert run.gains.over(LOCAL).value == 0


def test_a_client_that_masks_an_action_does_not_choose_it_alone_either():
    both, one = hospital(), hospital(seed=4)
    actions = np.zeros_like(one.actions)
    never = fedopl.LoggedData(one.contexts, actions, one.rewards, action_names=one.action_names)
    run = fedopl.learn(
        {"both": both, "never": never}, basis="linear", nuisances=fedopl.NuisancePlan(unseen="mask")
    )
    assert not np.isnan(run.values.of(LOCAL, "both").value)
