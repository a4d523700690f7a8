"""Law: sums of scores by fold and outcome sums of the same fold never differ by a few rows.

Outcome sums hide what few rows of a fold and action have. If sums of scores hid only what few rows
of a fold have, the difference of the two would be those few rows of an action, with all their
features.
"""

import numpy as np
import pytest
from lying_server import ACTIONS, LyingServer, rows, study_with

import fedopl
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.learning.score_sums import SumFitting, SumScores
from fedopl.messages.learning.score_sums_by_fold import SumByFold
from fedopl.policies.basis import Basis
from fedopl.study.mixture import BestSkew

N_ROWS, FLAG, RARE_ACTION = 2000, 3, 2
BASIS = Basis(kind="hinges", knots={"x0": (-0.5, 0.0, 0.5)})
PATH = BestSkew(toward="north")


def seldom(what):
    """Rows of which a few in each fold took the rare action and have a flag, or a large number."""
    rng, data = np.random.default_rng(3), rows(N_ROWS)
    contexts, is_rare = data.contexts.copy(), rng.random(N_ROWS) < 0.03
    if what == "flag":
        contexts[:, FLAG] = is_rare
    else:
        contexts[:, 0] = np.where(is_rare, rng.uniform(0.5, 1.5, N_ROWS), -abs(contexts[:, 0]))
    actions = np.where(rng.random(N_ROWS) < 0.1, RARE_ACTION, rng.integers(0, 2, N_ROWS))
    return fedopl.LoggedData(contexts, actions, data.rewards, action_names=ACTIONS)


def asked(data, **changes):
    """The server, and by fold the squares of all terms and a constant, from outcome sums."""
    study = study_with(**{"evaluation": 0, **changes})
    server = LyingServer(data, study)
    outcomes = server.ask(SumOutcomes)
    assert (outcomes.squared_weights > 0).all()  # no cell is left out
    models = np.zeros((study.n_outcome_models, len(ACTIONS), study.n_terms + 1))
    server.ask(SumScores, models=models, supported=np.ones(models.shape[:2]))
    return server, outcomes.sums[:, :, :-1, :-1].sum(axis=1)


def told_apart(server):
    """How many rows of each fold and action the client hid something of."""
    space = server.door._space.study_rows
    (all_of_it,), (summed,) = space.chunks_in_terms(), space.chunks_as_summed()
    hidden = (all_of_it.data.contexts != summed.data.contexts).any(axis=1)
    return np.bincount(all_of_it.fold_actions[hidden], minlength=5 * len(ACTIONS))


@pytest.mark.parametrize("what", ["flag", "number"])
def test_sums_by_fold_hide_what_outcome_sums_hide(what):
    server, expected = asked(seldom(what), basis=BASIS)
    hidden = told_apart(server)
    assert ((hidden > 0) & (hidden < fedopl.Limits().minimum_cell)).any()
    by_fold = server.ask(SumByFold)
    found = by_fold.grams[:, 0] * by_fold.weights[:, None, None] * N_ROWS
    assert np.allclose(found, expected, atol=1e-8 * N_ROWS)


def test_sums_without_the_first_fold_hide_what_outcome_sums_hide():
    server, expected = asked(seldom("flag"), mixture=PATH)
    hidden = told_apart(server)
    assert ((hidden > 0) & (hidden < fedopl.Limits().minimum_cell)).any()
    n_rows = expected[1:, -1, -1].sum()
    found = server.ask(SumFitting).grams[0] * n_rows
    assert np.allclose(found, expected[1:].sum(axis=0), atol=1e-8 * N_ROWS)
