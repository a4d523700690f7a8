"""`fedopl check` says what to try where hinges and products are too little, and only there."""

import numpy as np
import pytest

import fedopl
from fedopl.client.scoring.fit_check import check_fit
from fedopl.policies.basis import Basis
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


def cautions_about(data, basis=None):
    nuisances = fedopl.cross_fit(data, propensity="marginal")
    return " ".join(check_fit(data, nuisances, basis).cautions)


@pytest.mark.parametrize(
    ("basis", "said"),
    [
        (None, "What may describe them: screened_thresholds = 6 or waves = 200 in [basis] or a "),
        (
            {"screened_thresholds": 4},
            "The study's screened_thresholds may describe them, but the comparison leaves these "
            'out. What may, besides: waves = 200 in [basis] or a policy of kind = "tree" or "neu',
        ),
        (
            {"screened_thresholds": 4, "waves": 50},
            "The study's screened_thresholds and waves may describe them, but the comparison "
            'leaves these out. What may, besides: a policy of kind = "tree" or "neural"',
        ),
    ],
)
def test_where_three_act_together_it_is_said_what_may_describe_it(basis, said):
    own = Basis(knots={"x0": (-1.0, 0.0, 1.0)}, **basis) if basis else None
    cautions = cautions_about(three_at_a_time(), own)
    assert said in cautions
    assert "cannot" not in cautions


@pytest.mark.parametrize("world", ["linear", "smooth", "clients-differ", "noisy-client"])
def test_where_a_basis_holds_no_network_is_spoken_of(world):
    assert "neural" not in cautions_about(rows_of(world))
