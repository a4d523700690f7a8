"""Whatever a server asks where jumps are screened for, it does not learn of a few rows.

It may know everybody's features, or choose thresholds so that few rows lie beyond them.
"""

import numpy as np
import pytest
from lying_server import ACTIONS, LyingServer

import fedopl
from fedopl.messages.learning.found_terms import FoundTaken, TakeFound
from fedopl.messages.learning.jump_screening import ScreenJumps
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.refusal import Refusal
from fedopl.policies.basis import Basis
from fedopl.policies.threshold_grid import candidate_cuts, first_looked_at
from fedopl.study.screened_study import FoundTerms, after_screening

NAMES = ("x0", "x1", "x2")
KNOTS = dict.fromkeys(NAMES, (-1.0, 0.0, 1.0))
CUTS = candidate_cuts(KNOTS["x0"])


def study_of():
    basis = Basis(knots=KNOTS, products=NAMES, screened_thresholds=4)
    nuisances = fedopl.NuisancePlan(propensity="marginal")
    return fedopl.Study(actions=ACTIONS, features=NAMES, basis=basis, nuisances=nuisances)


def rows(n_rows=1_200, *, jump=0.0, outlier=0.0):
    rng = np.random.default_rng(4)
    contexts = rng.standard_normal((n_rows, 3))
    actions = rng.integers(0, len(ACTIONS), n_rows)
    beyond = (contexts[:, 0] > 0.2) == (contexts[:, 1] > -0.1)
    rewards = rng.standard_normal(n_rows) + jump * beyond
    rewards[np.flatnonzero(actions == 0)[:1]] += outlier
    return fedopl.LoggedData(contexts, actions, rewards, action_names=ACTIONS)


def test_what_many_rows_speak_for_is_told():
    told = LyingServer(rows(jump=1.5), study_of()).ask(ScreenJumps).strongest
    assert (told[:, 0, [0, 2]] == [0, 1]).all()
    assert (np.abs(told[:, 0, -1]) >= 5).all()


def test_one_row_never_speaks_for_a_jump_however_large_its_outcome():
    told = LyingServer(rows(jump=1.5, outlier=1e7), study_of()).ask(ScreenJumps).strongest
    assert not told[0].any()
    assert told[1:].any()


def test_statistics_are_whole_and_no_more_than_the_rows_can_hide():
    server = LyingServer(rows(180), study_of(), limits=fedopl.Limits(minimum_cell=1))
    told, space = server.ask(ScreenJumps).strongest, server.door._space
    n_fitted = space.study.terms.sizes["splines"] + 1
    assert not (told % 1).any()
    most = np.maximum(space.limits.parameter_share * space.rows_per_action - n_fitted, 0)
    assert (np.count_nonzero(told[..., -1], axis=1) <= most).all()
    assert not LyingServer(rows(90), study_of()).ask(ScreenJumps).strongest.any()


def diagonal(limits, *cuts):
    """How many rows of each fold and action the sums count in a corner at these cuts."""
    agreed = study_of()
    corner = tuple((name, CUTS[cut]) for name, cut in zip(NAMES, cuts, strict=False))
    found = after_screening(agreed, FoundTerms(thresholds=(corner,)))
    server = LyingServer(rows(), agreed, limits=limits)
    server.study = found
    query = TakeFound.of(found)
    assert isinstance(
        server.ask(TakeFound, pairs=query.pairs, thresholds=query.thresholds), FoundTaken
    )
    place = found.terms.sizes["thresholds"] - 1
    return server.ask(SumOutcomes).sums[:, :, place, place]


def test_a_corner_aimed_at_a_few_is_hidden():
    last = len(CUTS) - 1
    few = diagonal(fedopl.Limits.open(), last, last)
    assert 0 < few.max() < fedopl.Limits().minimum_cell  # that is the attack
    assert not diagonal(fedopl.Limits(), last, last).any()
    middle = len(CUTS) // 2
    assert diagonal(fedopl.Limits(), middle, middle).min() >= fedopl.Limits().minimum_cell


def rows_passed(limits):
    """How many rows each place told was moved past, from either value of the coarse grid."""
    data = rows(jump=1.5)
    told = LyingServer(data, study_of(), limits=limits).ask(ScreenJumps).strongest
    coarse = np.array(CUTS)[list(first_looked_at(KNOTS["x0"]))]
    for action, lines in enumerate(told):
        contexts = data.contexts[data.actions == action]
        for feature, cut in lines[lines[:, -1] != 0][:, :2].astype(int).tolist():
            below = (contexts[:, feature] <= CUTS[cut]).sum()
            either = [(contexts[:, feature] <= other).sum() for other in coarse]
            if CUTS[cut] not in coarse:
                above = np.searchsorted(coarse, CUTS[cut])
                yield int(max(below - either[above - 1], either[above] - below))


def test_where_a_jump_is_told_moves_past_no_fewer_rows_than_a_cell_may_have():
    fewest = fedopl.Limits().minimum_cell
    assert 0 < min(rows_passed(fedopl.Limits.open())) < fewest  # that is the attack
    assert min(rows_passed(fedopl.Limits())) >= fewest


@pytest.mark.parametrize(
    "thresholds",
    [
        [[0, 999, -1, -1]],
        [[0, 0.5, -1, -1]],
        [[9, 3, -1, -1]],
        [[0, 3, 0, 4]],
        [[0, 3, 1, 4], [1, 9, 0, 9]],
        [[0, 3, -1, 4]],
    ],
)
def test_thresholds_that_are_none_are_refused(thresholds):
    server = LyingServer(rows(), study_of())
    asked = {"pairs": np.empty((0, 2)), "thresholds": np.array(thresholds, float)}
    assert isinstance(server.ask(TakeFound, **asked), Refusal)
