"""What a server learns of one person by trees that treat nobody else: more than by half-spaces.

It stays open, and `docs/threats.md` says so; here is how much it is, and what owners can do.
"""

import numpy as np
import pytest
from lying_server import ACTIONS, N_FEATURES, rows, servers_of
from test_a_lying_server import N_HELD_OUT

import fedopl
from fedopl.messages.evaluation.policy_values import EstimateValues
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import Refusal
from fedopl.policies.kinds import packed
from fedopl.policies.linear import LinearPolicy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Branch, Leaf


def around(person, rng, study):
    node, reach = Leaf(1), rng.uniform(1e-4, 1e-3)
    for place, value in enumerate(person.tolist()):
        inside = Branch(place, value - reach, Leaf(0), node)
        node = Branch(place, value + reach, inside, Leaf(0))
    return TreePolicy(node, ACTIONS, study.features)


def for_nobody(rng, study):
    parameters = np.zeros((len(ACTIONS), N_FEATURES + 1))
    parameters[1:, -1] = -rng.uniform(1, 2), -5.0
    return LinearPolicy(parameters, ACTIONS, study.features)


def averaged(server, person, rng):
    """V(the person) − V(nobody), with all policies of a study spent on it, in other words."""
    found, study = [], server.study
    while True:
        nobody = [for_nobody(rng, study) for _ in range(2)]
        fields = packed([*nobody, *(around(person, rng, study) for _ in range(2))], study)
        answer = server.ask(EstimateValues, split=RowSplit.EVALUATION, **fields)
        if isinstance(answer, Refusal):
            return np.mean(found)
        found.append(answer.n_rows * (answer.means[2:4].sum() - answer.means[:2].sum()) / 2)


@pytest.mark.parametrize(("noise", "most"), [(2.0, 0.65), (8.0, 0.25)])
def test_it_learns_about_half_of_the_effect_and_less_with_more_noise(noise, most):
    data, rng = rows(4 * N_HELD_OUT), np.random.default_rng(1)
    server = servers_of(data, limits=fedopl.Limits(value_noise=noise))
    space = server().door._space
    held_out = np.arange(space.n_training, data.n_rows)
    held_out = held_out[space.data.actions[held_out] < 2][:60]
    effects = space.scores[held_out, 1] - space.scores[held_out, 0]
    people = space.data.contexts[held_out]
    asking = [averaged(server(), one, rng) for one in people]
    explained = np.corrcoef(asking, effects)[0, 1] ** 2
    print(f"r² = {explained:.2f} with the effect")
    assert explained < most
