"""Law: with robust weights a minority of clients cannot lead what is learned away."""

import lies
import numpy as np
import pytest
from small_worlds import alike_world, outcome_shift

import fedopl
from fedopl.report.sections.mixture_weights import mixture_weights
from fedopl.study.mixture import Minimax

WORLD = alike_world(10, seed=3)
LIAR = "client 01"
QUICK = {"nuisances": fedopl.NuisancePlan(propensity="marginal", folds=2)}
WAYS = ("trimmed", "median-of-means")
EVERYWHERE = lies.LIES["1,000 times the rows in all it says, rewards flipped"]
PRAISED = lies.LIES["an action praised in sums"]


def clients(n_rows=500):
    return {name: WORLD.logged(name, n_rows) for name in WORLD.clients}


def learned(lie, robust=None, **options):
    mixture = fedopl.mixture.empirical(robust=robust)
    # Sums by fold, which all rows are valued by, would give a lie in sums away.
    return lies.run_with(lie, clients(), LIAR, mixture=mixture, evaluation=0.25, **QUICK, **options)


def value(record):
    return WORLD.value(record.policy, "client 02")


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("lie", [EVERYWHERE, PRAISED], ids=["everywhere", "praised"])
def test_one_liar_of_ten_does_not_lead_the_policy_away(lie, how):
    truth, believed = value(learned(lies.Lie())), value(learned(lie))
    assert believed < truth - 0.3
    record = learned(lie, how)
    assert value(record) > truth - 0.05
    assert record.mixture[LIAR] < 0.1
    assert sum(record.mixture.values()) == pytest.approx(1)


def test_two_liars_of_ten_are_both_trimmed():
    rows = clients()
    for name in ("client 03", "client 08"):
        rows[name] = lies.flipped(rows[name])
    run = fedopl.learn(
        rows, basis="linear", mixture=fedopl.mixture.empirical(robust="trimmed"), **QUICK
    )
    assert [name for name, weight in run.mixture.items() if not weight] == [
        "client 03",
        "client 08",
    ]


@pytest.mark.parametrize("how", WAYS)
def test_the_order_of_clients_changes_nothing(how):
    rows = clients(200)
    mixture = fedopl.mixture.uniform(robust=how)
    one = fedopl.learn(rows, basis="linear", mixture=mixture, **QUICK)
    other = fedopl.learn(dict(reversed(rows.items())), basis="linear", mixture=mixture, **QUICK)
    assert one.mixture == other.mixture
    assert np.array_equal(one.policy.parameters, other.policy.parameters)


@pytest.mark.parametrize("how", WAYS)
def test_honest_clients_that_are_alike_lose_little(how):
    plain, robust = learned(lies.Lie()), learned(lies.Lie(), how)
    assert value(robust) > value(plain) - 0.02
    said = mixture_weights(robust).parts[1].text
    assert how in said
    assert "The price is precision" in said
    assert "Agreed weight" in mixture_weights(robust).parts[3].headers
    assert mixture_weights(plain).parts[1].text.startswith("The skewness")


@pytest.mark.parametrize("how", WAYS)
def test_small_honest_clients_are_not_left_out_for_their_noise_alone(how):
    world = outcome_shift(alike_world(10, seed=1), 0.3)
    sizes = [100] * 5 + [2000] * 5
    rows = {n: world.logged(n, size) for n, size in zip(world.clients, sizes, strict=True)}
    run = fedopl.learn(rows, basis="linear", mixture=fedopl.mixture.empirical(robust=how), **QUICK)
    small = sorted(run.mixture)[:5]
    assert sum(run.mixture[name] > 0 for name in small) >= 3


def test_a_run_can_be_solved_again_with_robust_weights():
    run = fedopl.learn(clients(200), basis="linear", **QUICK)
    robust = fedopl.learn(
        clients(200), basis="linear", mixture=fedopl.mixture.empirical(robust="trimmed"), **QUICK
    )
    again = run.resolve(fedopl.mixture.empirical(robust="trimmed"))
    assert np.array_equal(again.numbers(), robust.policy.numbers())


def test_with_too_few_clients_the_error_says_how_many_it_takes():
    few = {name: rows for name, rows in clients(200).items() if name < "client 05"}
    with pytest.raises(fedopl.FederationError, match=r"needs 5 clients with weight .* came 4"):
        fedopl.learn(
            few, basis="linear", mixture=fedopl.mixture.empirical(robust="trimmed"), **QUICK
        )


NAMES = {"actions": ("a", "b"), "features": ("x",)}


@pytest.mark.parametrize(
    "policy", [fedopl.Tree(), fedopl.Finite(), fedopl.Linear(oracle="csoaa-sgd")]
)
def test_policies_that_are_not_solved_from_sums_refuse_robust_weights(policy):
    with pytest.raises(fedopl.OptionError, match="only linear policies by csoaa-exact"):
        fedopl.Study(**NAMES, policy=policy, mixture=fedopl.mixture.empirical(robust="trimmed"))


def test_weights_that_are_found_refuse_robust_ones():
    with pytest.raises(fedopl.OptionError, match="the weights of 'minimax' are found"):
        Minimax(robust="trimmed")


def test_a_study_without_robust_weights_keeps_its_hash():
    assert "robust" not in fedopl.Study(**NAMES).model_dump_json()
