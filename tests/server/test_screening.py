"""Pairs of features that act together are found among many, and none where there are none."""

from itertools import combinations

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.client.drafted_basis import drafted_basis
from fedopl.client.screening.product_statistics import product_tests
from fedopl.engines.in_process import InProcess
from fedopl.messages.learning.term_screening import ProductStatistics, ScreenProducts
from fedopl.policies.basis import Basis
from fedopl.policies.terms import Terms
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange_counts import expected_exchanges, expected_trips
from fedopl.server.federation import evaluate_policies
from fedopl.server.screening import joint_statistics, strongest_pairs

N_FEATURES = 16
NAMES = tuple(f"x{place}" for place in range(N_FEATURES))
FRESH = np.random.default_rng(9).standard_normal((5_000, N_FEATURES))
NOT_DESCRIBED = fedopl.EvaluationPlan(share=0.25, describe=False)


def effect(contexts, strength):
    return contexts[:, 0] / 2 + strength * contexts[:, 3] * contexts[:, 12]


def drawn(seed, n_rows=500, strength=1.0, **options):
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n_rows, N_FEATURES))
    actions = rng.integers(0, 2, n_rows)
    rewards = actions * effect(contexts, strength) + rng.standard_normal(n_rows)
    return fedopl.LoggedData(
        contexts, actions, rewards, 0.5, action_names=("no", "yes"), feature_names=NAMES, **options
    )


def clients(strength=1.0, n_rows=500):
    return {name: drawn([place, 7], n_rows, strength) for place, name in enumerate("abc")}


def regret(policy, strength=1.0):
    gain = effect(FRESH, strength)
    return float(np.mean(np.maximum(gain, 0) - gain * policy.decide(FRESH)))


@pytest.fixture(scope="module")
def found():
    return fedopl.learn(clients(), evaluation=NOT_DESCRIBED)


def test_a_pair_without_effects_of_its_own_is_found_and_used(found):
    assert found.study.basis.found_pairs == (("x3", "x12"),)
    assert "x3 × x12" in found.policy.terms.names[: found.policy.n_used]
    without = fedopl.learn(clients(), basis="hinges")
    assert regret(found.policy) < 0.2 * regret(without.policy)


def test_it_takes_one_trip_more(found):
    plain = fedopl.learn(clients(), basis="hinges", evaluation=NOT_DESCRIBED)
    trips = [run.rounds[-1].trip + 1 for run in (plain, found)]
    assert trips == [3, 4]
    assert trips[1] == expected_trips(found.study, 3)
    assert len(found.rounds) == expected_exchanges(found.study, 3)
    assert {len(own) for own in found.ledger.values()} == {len(found.rounds)}
    assert [latest.query for latest in found.rounds][:3] == ["Enrol", "ScreenProducts", "TakeFound"]


def test_nothing_is_found_where_nothing_acts_together():
    screened, linear = (fedopl.learn(clients(0.0), basis=basis) for basis in ("auto", "linear"))
    assert screened.study.basis.found_pairs == ()
    assert regret(screened.policy, 0.0) <= 1.2 * regret(linear.policy, 0.0)


def test_a_run_and_its_policy_are_saved_and_valued_again(found, tmp_path):
    found.save(tmp_path / "run")
    again = fedopl.load_run(tmp_path / "run")
    assert again.study == found.study
    found.policy.save(tmp_path / "policy.json")
    policy = fedopl.load_policy(tmp_path / "policy.json")
    assert np.array_equal(policy.decide(FRESH), found.policy.decide(FRESH))
    agreed = found.study.before_screening
    doors = {
        name: Door(name, data, agreed, secret=SEED_ALONE, limits=fedopl.Limits.open())
        for name, data in clients().items()
    }
    record = evaluate_policies(Conversation(agreed, InProcess(doors)), {"it": policy})
    assert record.study == found.study
    valued = record.values.of("it").value
    assert valued == pytest.approx(found.values.of(found.chosen).value)


def test_statistics_are_those_of_a_naive_loop():
    for options in ({}, {"weights": np.random.default_rng(3).uniform(1, 2, 500)}):
        data = drawn(4, **options)
        study = fedopl.Study(
            actions=data.action_names,
            features=NAMES,
            basis=Basis(knots={"x3": (-1, 0, 1)}, screened_pairs=3),
        )
        space = Door("a", data, study, secret=SEED_ALONE)._space
        terms = study.terms
        tests = product_tests(space.unscored_chunks, terms.scaled, 2, N_FEATURES)
        rows = space.training
        own = space.data.actions[rows] == 1
        scaled = terms.scaled(space.data.contexts[rows][own])
        weights = np.ones(own.sum()) if not options else space.data.weights[rows][own]
        root = np.sqrt(weights)[:, None]
        for first, second in ((3, 12), (0, 1)):
            plain = np.column_stack([np.ones(len(scaled)), scaled])
            main = np.column_stack([plain, scaled[:, [first, second]] ** 2])
            product = scaled[:, first] * scaled[:, second]
            rest = product - main @ np.linalg.lstsq(root * main, root[:, 0] * product)[0]
            y = space.data.rewards[rows][own]
            left = y - plain @ np.linalg.lstsq(root * plain, root[:, 0] * y)[0]
            moved = weights * rest * left
            t = moved.sum() / np.sqrt((moved**2).sum())
            t *= np.sqrt(1 - plain.shape[1] / len(plain))
            pair = list(combinations(range(N_FEATURES), 2)).index((first, second))
            assert tests.statistics[1, pair] == pytest.approx(t)


def test_of_many_rows_some_are_tested_and_find_the_same():
    data = drawn(4, n_rows=4000)
    basis = Basis(knots={"x3": (-1, 0, 1)}, screened_pairs=3)
    study = fedopl.Study(actions=data.action_names, features=NAMES, basis=basis)
    space = Door("a", data, study, secret=SEED_ALONE)._space
    asked = (space.unscored_chunks, study.terms.scaled, 2, N_FEATURES)
    every, some = product_tests(*asked), product_tests(*asked, every=4)
    assert (some.n_rows < every.n_rows / 3.9).all()
    assert np.abs(some.statistics).argmax() == np.abs(every.statistics).argmax()


def test_flags_of_one_column_and_constants_have_no_product():
    data = drawn(5)
    contexts = np.array(data.contexts)
    contexts[:, 0] = contexts[:, 1] > 0
    contexts[:, 1] = 1 - contexts[:, 0]
    contexts[:, 2] = 3.0
    data = fedopl.LoggedData(contexts, data.actions, data.rewards, action_names=("no", "yes"))
    study = fedopl.Study(
        actions=data.action_names,
        features=data.feature_names,
        basis=Basis(knots={data.feature_names[5]: (-1, 0, 1)}, screened_pairs=3),
    )
    space = Door("a", data, study, secret=SEED_ALONE)._space
    tests = product_tests(space.unscored_chunks, study.terms.scaled, 2, N_FEATURES)
    pairs = list(combinations(range(N_FEATURES), 2))
    nothing = [pairs.index(pair) for pair in ((0, 1), (0, 2), (2, 5))]
    assert (tests.statistics[:, nothing] == 0).all()
    assert np.isfinite(tests.statistics).all()


def test_clients_count_by_their_rows_and_pairs_come_by_strength():
    study = fedopl.Study(
        actions=("no", "yes"),
        features=("a", "b", "c"),
        basis=Basis(knots={"a": (0, 1)}, pairs=[("c", "a")], screened_pairs=2),
    )
    told = np.zeros((2, 2, 3))
    told[:, 0] = [[4, 0, 9], [4, 8, 9]]
    joint = joint_statistics(told, np.array([[300.0, 1], [100.0, 1]]))
    assert joint[0, 0] == pytest.approx(4 * (300**0.5 + 10) / 20)
    assert strongest_pairs(study, study.basis, joint) == (("b", "c"), ("a", "b"))
    assert strongest_pairs(study, study.basis, joint * 0) == ()
    fault = ScreenProducts().fault_in
    answer = ProductStatistics
    assert fault(answer(statistics=told), study, 400) is None
    assert "larger than its rows" in fault(answer(statistics=told * 9), study, 400)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"evaluation": fedopl.EvaluationPlan(splits=3)}, "another split may find other pairs"),
        ({"features": ("a",)}, "pairs of 2 to 200 features"),
    ],
)
def test_screening_is_refused_where_values_would_not_be_honest(changes, said):
    options = {"actions": ("no", "yes"), "features": ("a", "b")}
    basis = Basis(knots={"a": (0, 1)}, screened_pairs=2)
    with pytest.raises(fedopl.FedoplError, match=said):
        fedopl.Study(**{**options, "basis": basis, **changes})


def test_a_wide_draft_screens_unless_it_may_not():
    rng = np.random.default_rng(0)
    columns = {name: [rng.standard_normal(300)] for name in NAMES}
    assert drafted_basis(columns, n_screenings=1).screened_pairs == 60
    assert drafted_basis(columns, n_screenings=1, most_terms=100).screened_pairs == 10
    assert drafted_basis(columns, n_screenings=6).screened_pairs == 60  # each time
    assert drafted_basis(columns, n_screenings=6, most_terms=100).screened_pairs == 1
    assert drafted_basis(columns).screened_pairs == 0
    few = dict(list(columns.items())[:5])
    assert drafted_basis(few, n_screenings=1).products == tuple(few)
    of_few = [drafted_basis(few, n_screenings=n, most_terms=80) for n in (0, 1, 6)]
    assert [own.screened_thresholds for own in of_few] == [0, 6, 1]
    assert [Terms(own, tuple(few)).n_terms for own in of_few] == [45, 45, 45]
