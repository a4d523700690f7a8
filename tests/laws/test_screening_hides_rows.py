"""Whatever a server asks where pairs of features are screened, it does not learn of a few rows.

It knows everybody's features and actions, and is after outcomes: statistics of many products are as
many equations for them. Or the study was written so that a product is about two people alone.
"""

import numpy as np
import pytest
from lying_server import ACTIONS, LyingServer

import fedopl
from fedopl.client.disk.store import FolderStore
from fedopl.client.screening.product_statistics import product_tests
from fedopl.messages.learning.found_terms import FoundTaken, TakeFound
from fedopl.messages.learning.outcome_sums import SumOutcomes
from fedopl.messages.learning.product_screening import ScreenProducts
from fedopl.messages.refusal import Refusal, RefusalCode
from fedopl.policies.basis import Basis
from fedopl.study.screened_study import FoundTerms, after_screening

N_FEATURES = 20
NAMES = tuple(f"x{place}" for place in range(N_FEATURES))
NONE = np.empty((0, 4))  # no thresholds
KNOTS = dict.fromkeys(NAMES[2:], (-1.0, 0.0, 1.0))


def study_of(**changes):
    basis = Basis(knots=KNOTS, screened_pairs=5)
    nuisances = fedopl.NuisancePlan(propensity="marginal")
    options = {"actions": ACTIONS, "features": NAMES, "basis": basis, "nuisances": nuisances}
    return fedopl.Study(**{**options, **changes})


def rows(n_rows=500, seed=0, *, together=0.0, two_people=False):
    """Two flags, of which two people have both, or more do; and numbers."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n_rows, N_FEATURES))
    first, second = rng.permutation(n_rows)[: 2 * (n_rows // 10)].reshape(2, -1)
    contexts[:, :2] = 0.0
    contexts[first, 0] = contexts[second, 1] = 1.0
    both = first[:2] if two_people else first[: n_rows // 20]
    contexts[both, 1] = 1.0
    actions = rng.integers(0, len(ACTIONS), n_rows)
    actions[both[:2]] = 0
    rewards = rng.standard_normal(n_rows) + together * contexts[:, 4] * contexts[:, 5]
    rewards[both[:2]] += 100.0 if two_people else 0.0
    return fedopl.LoggedData(contexts, actions, rewards, action_names=ACTIONS)


def place_of(first, second):
    pairs = np.column_stack(np.triu_indices(N_FEATURES, 1)).tolist()
    return pairs.index([first, second])


def solved_outcomes(space, statistics):
    """How much of what features leave of outcomes all statistics together give away, r²."""
    data, training = space.data, space.training
    scaled = space.study.terms.scaled(data.contexts[training])
    first, second = np.triu_indices(N_FEATURES, 1)
    found, truth = [], []
    for action, told in enumerate(statistics):
        own = data.actions[training] == action
        features = np.column_stack([np.ones(own.sum()), scaled[own]])
        left = np.eye(len(features)) - features @ np.linalg.pinv(features)
        products = left @ (scaled[own][:, first] * scaled[own][:, second])
        products /= np.maximum(np.linalg.norm(products, axis=0), 1e-9)
        found.append(np.linalg.pinv(products.T, rcond=1e-6) @ told)
        truth.append(left @ data.rewards[training][own])
    return np.corrcoef(np.concatenate(found), np.concatenate(truth))[0, 1] ** 2


def test_statistics_cannot_be_solved_for_outcomes():
    server = LyingServer(rows(), study_of())
    told = server.ask(ScreenProducts).statistics
    space = server.door._space
    terms = space.study.terms
    exact = product_tests(space.unscored_chunks, terms.scaled, len(ACTIONS), N_FEATURES).statistics
    open_to_all, guarded = (solved_outcomes(space, numbers) for numbers in (exact, told))
    print(f"r² with outcomes: {open_to_all:.2f} from all statistics, {guarded:.2f} from those told")
    assert open_to_all > 0.7
    assert guarded < 0.25
    assert not (told % 1).any()
    assert ((told == 0) | (np.abs(told) >= 2)).all()


def test_there_are_never_more_numbers_than_the_rows_can_hide():
    server = LyingServer(rows(150), study_of(), limits=fedopl.Limits(minimum_cell=1))
    told = server.ask(ScreenProducts).statistics
    taken = server.door._space.rows_per_action
    assert (np.count_nonzero(told, axis=1) <= np.maximum(taken / 2 - N_FEATURES - 1, 0)).all()
    few = LyingServer(rows(80), study_of()).ask(ScreenProducts)
    assert few.reason is RefusalCode.TOO_MANY_PARAMETERS


def test_a_product_of_two_people_is_not_told_of_whatever_their_outcomes():
    pair = place_of(0, 1)
    told = LyingServer(rows(two_people=True), study_of()).ask(ScreenProducts).statistics
    assert (told[:, pair] == 0).all()
    # Without the rules it is: two rows of 100 are all that speaks for it.
    space = LyingServer(rows(two_people=True), study_of(), limits=fedopl.Limits.open()).door._space
    rests_on = product_tests(
        space.unscored_chunks, space.study.terms.scaled, len(ACTIONS), N_FEATURES
    ).rests_on
    assert rests_on[0, pair] < fedopl.Limits().minimum_cell


def test_what_many_rows_speak_for_is_told():
    told = LyingServer(rows(1_000, together=1.5), study_of()).ask(ScreenProducts).statistics
    assert (told[:, place_of(4, 5)] >= 3).all()


@pytest.mark.parametrize("restarted", [False, True])
def test_a_client_goes_on_with_the_first_pairs_and_no_others(tmp_path, restarted):
    agreed = study_of()
    store = FolderStore(tmp_path)
    server = LyingServer(rows(), agreed, store=store)
    assert server.ask(SumOutcomes).reason is RefusalCode.NOT_IN_STUDY

    def going_on(*pairs):
        if restarted:
            server.door = LyingServer(rows(), agreed, store=store).door
        server.study = after_screening(agreed, FoundTerms(pairs=pairs))
        return server.ask(TakeFound, pairs=TakeFound.of(server.study).pairs, thresholds=NONE)

    assert isinstance(going_on(("x4", "x5")), FoundTaken)
    refused = [going_on(("x6", "x7")), going_on(), going_on(("x4", "x5"), ("x6", "x7"))]
    assert [answer.reason for answer in refused] == [RefusalCode.WRONG_STUDY] * 3
    assert isinstance(going_on(("x5", "x4")), Refusal)  # the same two, but another study
    assert isinstance(going_on(("x4", "x5")), FoundTaken)
    held_out = [
        door._space.study_rows.folds_as_given.held_out for door in (server.door, server.door._after)
    ]
    assert np.array_equal(*held_out)


def test_pairs_that_are_none_are_refused():
    server = LyingServer(rows(), study_of())
    for pairs in ([[4, 4]], [[4, 99]], [[4, 5], [5, 4]], [[0.5, 1]]):
        assert isinstance(
            server.ask(TakeFound, pairs=np.array(pairs, float), thresholds=NONE), Refusal
        )
