"""The theory's numbers about a run: by their formulas, from what the run wrote down."""

import math
from dataclasses import replace

import numpy as np
import pytest
from small_worlds import alike_world, covariate_shift, outcome_shift

import fedopl
from fedopl.analysis.attribution import ClientShift, SourceShift, shifts_of
from fedopl.analysis.modelled_gains import (
    PLAIN,
    complexity_of,
    global_bound,
    largest_score,
    modelled,
    second_moments,
)
from fedopl.policies.basis import Basis
from fedopl.study.study import Study
from fedopl.theory.entropy import (
    finite_entropy_integral,
    linear_entropy_integral,
    tree_entropy_integral,
)
from fedopl.theory.skew import skewness

DECLARED = fedopl.Declared(reward=20, overlap=0.05)


@pytest.fixture(scope="module")
def run():
    world = outcome_shift(alike_world(n_features=3), 1.0)
    world = replace(world, known_propensities=True)
    data = {n: world.logged(n, s) for n, s in zip(world.clients, (700, 400, 300), strict=True)}
    return fedopl.learn(data, basis="linear", diagnose=True, mixture="uniform")


@pytest.mark.parametrize("constant", [0.3, 1.0])
def test_the_value_of_information_is_its_formula(run, constant):
    kappa, moments = complexity_of(run.study), second_moments(run)
    assert len({round(moment, 6) for moment in moments.values()}) == 3
    skew, n_rows = skewness(run.mixture, run.rows), sum(run.rows.values())
    assert skew > 1.05
    found = modelled(run, shifts_of(run), constant)
    assert sorted(found) == sorted(run.rows)
    for name, one in found.items():
        parts = one.information
        alone = constant * kappa * math.sqrt(moments[name] / run.rows[name])
        together = constant * kappa * math.sqrt(max(moments.values()) * skew / n_rows)
        assert parts.alone == pytest.approx(alone)
        assert parts.together == pytest.approx(together)
        assert parts.shift == run.diagnosis.discrepancies[name].regret_gap
        assert one.shift_by == "discrepancy"


def test_at_the_break_even_constant_nothing_is_gained_or_lost(run):
    found = modelled(run, shifts_of(run))
    breaking = {name: one.break_even for name, one in found.items() if one.break_even}
    assert breaking
    for name, constant in breaking.items():
        again = modelled(run, shifts_of(run), constant)[name]
        assert again.information.value == pytest.approx(0, abs=1e-9)
    for name in found.keys() - breaking.keys():
        assert found[name].information.alone <= found[name].information.together


def test_the_global_bound_is_theorem_one_with_the_largest_moment(run):
    bound = global_bound(run, PLAIN)
    scale = math.sqrt(max(second_moments(run).values()) / sum(run.rows.values()))
    expected = (complexity_of(run.study) + math.sqrt(math.log(20))) * scale
    assert bound.total == pytest.approx(expected * math.sqrt(skewness(run.mixture, run.rows)))
    assert global_bound(run).total > 40 * bound.total


def test_without_a_measured_discrepancy_declared_bounds_take_its_place(run):
    untold = replace(run.diagnosis, discrepancies={})
    without = replace(run, diagnosis=untold)
    assert modelled(without, shifts_of(without)) == {}
    declared = replace(without, study=run.study.model_copy(update={"declared": DECLARED}))
    shifts = shifts_of(declared)
    for name, one in modelled(declared, shifts).items():
        assert one.shift_by == "total variation"
        assert one.information.shift == pytest.approx(3 * 20 / 0.05 * shifts[name].joint)
    assert modelled(declared, shifts)


def test_moments_that_were_not_told_are_bounded_by_the_sums(run):
    told = second_moments(run)
    untold = second_moments(replace(run, diagnosis=None))
    for name, sums in run.statistics.sums.items():
        assert untold[name] == pytest.approx(np.sum(sums.squares))
        assert told[name] == run.diagnosis.moments[name].envelope.value < untold[name]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, linear_entropy_integral(3 * 4, 3)),
        ({"actions": ("a", "b")}, linear_entropy_integral(4, 2)),
        ({"policy": fedopl.Linear(features="blocks")}, linear_entropy_integral(3, 3)),
        ({"basis": Basis(kind="hinges", knots={"x": (0, 1)})}, linear_entropy_integral(3 * 6, 3)),
        ({"policy": fedopl.Tree(depth=1)}, tree_entropy_integral(1, 3, 3)),
        ({"policy": fedopl.Finite(candidates=("one", "two"))}, finite_entropy_integral(5)),
    ],
    ids=str,
)
def test_complexity_is_that_of_the_studys_class(options, expected):
    study = Study(**{"actions": ("a", "b", "c"), "features": ("x", "y", "z"), **options})
    assert complexity_of(study) == expected


@pytest.mark.parametrize(
    ("declared", "clip", "expected"),
    [
        ({}, 0.1, None),
        ({"reward": 2}, None, None),
        ({"reward": 2, "overlap": 0.1}, None, 60.0),
        ({"reward": 2}, 0.2, 30.0),
        ({"reward": 2, "overlap": 0.1}, 0.2, 30.0),
    ],
)
def test_the_largest_score_is_of_what_is_vouched_for(declared, clip, expected):
    options = {"declared": declared, "nuisances": {"clip": clip}}
    found = largest_score(Study(actions=("a", "b"), features=("x",), **options))
    assert found == (None if expected is None else pytest.approx(expected))


def test_a_source_is_named_only_if_it_is_more_than_chance():
    def shift(**values):
        parts = {name: SourceShift(value=v, standard_error=0.1) for name, v in values.items()}
        return ClientShift(client="c", parts=parts, joint=None)

    assert shift(covariates=0.19, outcomes=0.15).largest is None
    assert shift(covariates=0.21, outcomes=0.4, propensities=0.3).largest == "outcomes"


def test_alike_clients_have_no_sure_source_and_others_have():
    named = []
    for draw in range(6):
        world = replace(alike_world(n_features=3, seed=draw), known_propensities=True)
        for shifted in (world, covariate_shift(world, 0.6)):
            data = {n: shifted.logged(n, 400, draw) for n in shifted.clients}
            found = shifts_of(
                fedopl.learn(data, basis="linear", evaluation=fedopl.EvaluationPlan(describe=False))
            )
            named.append([one.largest for one in found.values()])
    assert sum(source is None for alike in named[::2] for source in alike) >= 16
    assert {source for apart in named[1::2] for source in apart} == {"covariates"}
