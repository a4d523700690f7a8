"""`fedopl check` names trees and networks where features act as no basis holds, and only there."""

import numpy as np
import pytest

import fedopl
from fedopl.client.scoring.fit_check import check_fit
from fedopl.simulation.named_worlds import shaped_world

NAMES = ("a0", "a1", "a2")


def three_at_a_time():
    rng = np.random.default_rng(0)
    contexts, actions = rng.standard_normal((2000, 4)), rng.integers(0, 2, 2000)
    together = np.prod(np.sign(contexts[:, :3]), axis=1)
    rewards = actions * together + 0.5 * rng.standard_normal(2000)
    return fedopl.LoggedData(contexts, actions, rewards, action_names=NAMES[:2])


def rows_of(world):
    first = next(iter(shaped_world(world).all_logged(1500).values()))
    return fedopl.LoggedData(first.contexts, first.actions, first.rewards, action_names=NAMES)


def cautions_about(data):
    return " ".join(check_fit(data, fedopl.cross_fit(data, propensity="marginal")).cautions)


def test_where_three_act_together_a_network_is_something_to_try():
    said = cautions_about(three_at_a_time())
    assert 'A basis cannot express that; policies of kind = "tree" or "neural" may' in said


@pytest.mark.parametrize("world", ["linear", "smooth", "clients-differ", "noisy-client"])
def test_where_a_basis_holds_no_network_is_spoken_of(world):
    assert "neural" not in cautions_about(rows_of(world))
