"""Mixtures that are found while a study runs, and the diagnosis with which it may end."""

from dataclasses import replace

import numpy as np
import pytest
from small_worlds import alike_world, covariate_shift, outcome_shift

import fedopl
from fedopl.base.errors import FederationError, OptionError
from fedopl.client.disclosure.limits import Limits
from fedopl.policies.linear import LinearPolicy
from fedopl.results.files.table_files import diagnosis_json, search_json
from fedopl.results.value_tables import LOCAL
from fedopl.server.exchange_counts import expected_exchanges
from fedopl.study import mixture

SIZES = (700, 400, 300)


def logged(world, sizes=SIZES, draw=0):
    world = replace(world, known_propensities=True)
    return {n: world.logged(n, size, draw) for n, size in zip(world.clients, sizes, strict=True)}


@pytest.fixture(scope="module")
def apart():
    """Clients whose best actions differ."""
    return logged(outcome_shift(alike_world(n_features=3), 1.0))


@pytest.fixture(scope="module")
def diagnosed(apart):
    return fedopl.learn(apart, basis="linear", diagnose=True)


# --- mixtures found from data --------------------------------------------------------------------


def decides(contexts):
    return (contexts[:, 0] > 0).astype(int)


OPTIONS = {
    "linear": {"policy": fedopl.Linear(precision="rows")},  # as with weights that are found
    "by rounds": {"policy": fedopl.Linear(oracle="csoaa-sgd", training={"rounds": 3})},
    "tree": {"policy": "tree"},
    "finite": {"policy": fedopl.Finite(candidates={"by x1": decides})},
}
each = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


@each
def test_the_policy_for_minimax_weights_is_that_of_the_weights_found(apart, options):
    found = fedopl.learn(
        apart, basis="linear", mixture="minimax", **{"evaluation": 0.25, **options}
    )
    assert sum(found.mixture.values()) == pytest.approx(1)
    assert found.search.trace[0].largest >= found.search.largest
    assert found.mixture == pytest.approx(found.search.weights)
    moved = max(abs(found.search.averaged[n] - found.search.trace[0].weights[n]) for n in apart)
    assert moved > 0.01
    if found.tree:  # another mixture may agree on another grid
        assert found.policy.root == found.tree.solve(found.mixture).root
        return
    same = fedopl.learn(
        apart, basis="linear", mixture=found.mixture, **{"evaluation": 0.25, **options}
    )
    assert found.chosen == same.chosen
    if isinstance(found.policy, LinearPolicy):
        np.testing.assert_allclose(found.policy.parameters, same.policy.parameters, rtol=1e-9)


def test_regrets_of_the_ascent_are_those_of_training_rows(apart):
    found = fedopl.learn(apart, basis="linear", mixture=mixture.minimax(steps=4), personal="none")
    assert 1 <= len(found.search.trace) <= 4
    trips = {latest.trip for latest in found.rounds if latest.query == "Value"}
    # Everybody's own policy, the steps, their average, and the values at the end.
    assert 1 + len(found.search.trace) + 1 + 1 <= len(trips) <= 1 + 4 + 1 + 1
    assert max(found.search.trace[0].regrets.values()) > 0


@pytest.mark.parametrize("kind", ["linear", "finite"])
def test_a_path_ends_at_the_alpha_that_helps_its_target(apart, kind):
    options = OPTIONS[kind]
    found = fedopl.learn(
        apart, basis="linear", mixture=mixture.path("client 3"), **{"evaluation": 0.25, **options}
    )
    chosen = found.search.chosen
    assert found.search.target == "client 3"
    assert [point.alpha for point in found.search.points] == [0, 0.1, 0.25, 0.5, 0.75, 1]
    rows = {name: found.rows[name] for name in sorted(found.rows)}
    assert found.mixture == pytest.approx(mixture.skewed("client 3", chosen.alpha).weights(rows))
    same = fedopl.learn(
        apart,
        basis="linear",
        mixture=mixture.skewed("client 3", chosen.alpha),
        **{"evaluation": 0.25, **options},
    )
    assert found.chosen == same.chosen
    if found.chosen == "learned":
        assert chosen.alpha > 0  # its own best actions are others
        np.testing.assert_allclose(found.policy.parameters, same.policy.parameters, rtol=1e-9)


def test_weight_that_does_not_show_to_help_stays_where_the_rows_are():
    stayed = 0
    for draw in range(8):
        data = logged(alike_world(n_features=3, seed=draw), draw=draw)
        found = fedopl.learn(data, basis="linear", mixture=mixture.path("client 3"))
        stayed += found.search.chosen.alpha == 0
    assert stayed >= 6


def test_a_path_is_chosen_on_rows_that_its_policies_were_not_fitted_to(apart):
    found = fedopl.learn(apart, basis="linear", mixture=mixture.path("client 3"), evaluation=0)
    folds = found.study.nuisances.folds
    for point in found.search.points:
        assert point.at_target.n_rows == pytest.approx(found.rows["client 3"] / folds, abs=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "tree", "mixture": mixture.path("client 1")}, "path works with linear"),
        ({"policy": fedopl.Tree(depth=3), "mixture": "minimax"}, "depth 2 at most"),
        ({"mixture": mixture.path("nobody")}, "nobody"),
        ({"diagnose": True, "evaluation": 0}, "held-out rows"),
        ({"mixture": "fair"}, "'minimax'"),
    ],
)
def test_what_cannot_be_found_is_refused_before_anything_runs(apart, options, message):
    with pytest.raises(OptionError, match=message):
        fedopl.learn(apart, basis="linear", **options)


def test_a_mixture_that_is_found_cannot_be_resolved_without_asking(diagnosed):
    for wanted in ("minimax", mixture.path("client 1")):
        with pytest.raises(OptionError, match="found by asking"):
            diagnosed.resolve(wanted)


def test_one_client_alone_has_nobody_to_weigh_against(apart):
    one = {"client 1": apart["client 1"]}
    found = fedopl.learn(one, basis="linear", mixture="minimax", diagnose=True)
    assert found.mixture == {"client 1": 1.0}
    assert found.search is None
    assert "no others to join" in found.diagnosis.unknown["everything"]


def test_minimax_needs_everybodys_values(apart):
    shy = Limits.open().model_copy(update={"values": False})
    with pytest.raises(FederationError, match="values"):
        fedopl.learn(apart, basis="linear", mixture="minimax", limits=shy)


# --- the diagnosis -------------------------------------------------------------------------------


def test_everything_is_told_where_nobody_minds(diagnosed):
    found = diagnosed.diagnosis
    names = sorted(diagnosed.rows)
    assert found.unknown == {}
    assert sorted(found.discrepancies) == sorted(found.paths) == sorted(found.moments) == names
    assert len(found.coalitions.compared) == 4
    assert sorted(found.classifiers) == names
    assert found.models.names == tuple(names)


@each
def test_every_kind_of_policy_can_be_diagnosed(apart, options):
    found = fedopl.learn(apart, basis="linear", diagnose=True, **options).diagnosis
    assert found.unknown == {}
    assert len(found.coalitions.compared) == 4


def test_trees_that_grow_by_asking_say_what_cannot_be_told(apart):
    found = fedopl.learn(
        apart, basis="linear", policy=fedopl.Tree(depth=3), diagnose=True
    ).diagnosis
    assert "depth 1 and 2" in found.unknown["coalitions"]
    assert "depth 1 and 2" in found.unknown["paths"]
    assert found.models is not None


def test_the_grand_coalition_gains_what_the_run_says(diagnosed):
    for name, gain in diagnosed.diagnosis.coalitions.grand.gains.items():
        told = diagnosed.gains.over(LOCAL, name)
        assert gain.value == pytest.approx(told.value, abs=1e-9)
        assert gain.standard_error == pytest.approx(told.standard_error, rel=1e-6)


def test_with_other_weights_paths_still_begin_at_the_rows(apart):
    found = fedopl.learn(apart, basis="linear", diagnose=True, mixture="uniform")
    rows = {name: found.rows[name] for name in sorted(found.rows)}
    diagnosis = found.diagnosis
    assert diagnosis.paths["client 1"].points[0].weights == pytest.approx(
        mixture.empirical().weights(rows)
    )
    assert diagnosis.from_rows["client 1"].gap != diagnosis.discrepancies["client 1"].gap


def test_guarded_clients_tell_it_too(apart):
    found = fedopl.learn(apart, basis="linear", diagnose=True, limits="guarded").diagnosis
    assert {"paths", "coalitions", "discrepancies"}.isdisjoint(found.unknown)


def test_it_is_saved_and_loaded(diagnosed, apart, tmp_path):
    diagnosed.save(tmp_path / "run")
    again = fedopl.load_run(tmp_path / "run")
    assert diagnosis_json(again.diagnosis) == diagnosis_json(diagnosed.diagnosis)
    for name, wanted in (("ascent", "minimax"), ("path", mixture.path("client 2"))):
        run = fedopl.learn(apart, basis="linear", mixture=wanted)
        run.save(tmp_path / name)
        assert search_json(fedopl.load_run(tmp_path / name).search) == search_json(run.search)


@pytest.mark.parametrize("n_clients", [2, 3, 6])
@pytest.mark.parametrize("mixed", ["empirical", "minimax", mixture.path("client 1")])
def test_exchanges_are_at_most_those_expected(n_clients, mixed):
    world = covariate_shift(alike_world(n_clients, n_features=2))
    data = logged(world, [600] * n_clients)  # held-out rows for 64 policies and more in a query
    run = fedopl.learn(data, basis="linear", diagnose=True, mixture=mixed)
    assert len(run.rounds) <= expected_exchanges(run.study, n_clients)
