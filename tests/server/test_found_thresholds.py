"""Where outcomes jump is found, and policies may jump there; where they do not, nothing is."""

import numpy as np
import pytest

import fedopl
from fedopl.messages.learning.term_screening import MOST_JUMPS_TOLD
from fedopl.policies.basis import Basis, candidate_cuts
from fedopl.report.page import render
from fedopl.server.exchange_counts import expected_exchanges, expected_trips
from fedopl.server.screening import strongest_thresholds
from fedopl.simulation.named_worlds import shaped_world

pytestmark = pytest.mark.usefixtures("without_figures")

QUICK = fedopl.NuisancePlan(propensity="logistic")
NOT_DESCRIBED = fedopl.EvaluationPlan(share=0.25, describe=False)


def learned(kind, n_rows=1_000, **options):
    world = shaped_world(kind, seed=3)
    run = fedopl.learn(world.all_logged(n_rows), nuisances=QUICK, **{"evaluation": 0.25, **options})
    return run, world.regret(run.policy)


@pytest.fixture(scope="module")
def xor():
    return learned("xor", evaluation=NOT_DESCRIBED)


def test_a_corner_is_found_where_it_is_and_used(xor):
    run, regret = xor
    (corner, *others) = run.study.basis.found_thresholds
    assert [name for name, _ in corner] == ["x1", "x2"]
    # The world's own are at -0.248 and -0.129.
    assert np.abs(np.array([cut for _, cut in corner]) - [-0.248, -0.129]).max() < 0.03
    assert {len(one) for one in others} <= {1}
    assert (
        f"{corner[0][0]} > {corner[0][1]:g} and {corner[1][0]} > {corner[1][1]:g}"
        in (run.policy.terms.names[: run.policy.n_used])
    )
    knots = run.study.basis.knots
    smooth = Basis(knots=knots, products=run.study.basis.products)
    without, regret_without = learned("xor", evaluation=NOT_DESCRIBED, basis=smooth)
    assert without.study.basis.found_thresholds is None
    assert regret < 0.25 * regret_without


def test_it_takes_one_trip_more(xor):
    run, _ = xor
    assert run.rounds[-1].trip + 1 == expected_trips(run.study, 3) == 4
    assert len(run.rounds) == expected_exchanges(run.study, 3)
    asked = [latest.query for latest in run.rounds][:3]
    assert asked == ["Enrol", "ScreenJumps", "TakeFound"]


def test_a_run_and_its_policy_are_saved_and_valued_again(xor, tmp_path):
    run, _ = xor
    run.save(tmp_path / "run")
    again = fedopl.load_run(tmp_path / "run")
    assert again.study == run.study
    contexts = np.random.default_rng(0).standard_normal((200, 6))
    assert np.array_equal(again.policy.decide(contexts), run.policy.decide(contexts))


def test_the_report_says_where_outcomes_jump(xor):
    run, _ = xor
    (corner, *_) = run.study.basis.found_thresholds
    named = " and ".join(f"{name} > {cut:g}" for name, cut in corner)
    said = f"more sharply than bends can describe, and found both {named}".replace(">", "&gt;")
    page = render(run)
    assert said in page
    # Where the corner is, is not where the means are.
    assert "x1 and x2 act together: they favour" in page
    assert "x1 above average" not in page


def test_nothing_is_found_where_rewards_are_linear():
    run, _ = learned("linear")
    assert run.study.basis.found_thresholds == ()


def study_of():
    knots = {"x0": (-1.0, 0.0, 1.0), "x1": (-1.0, 0.0, 1.0)}
    basis = Basis(knots=knots, products=("x0", "x1"), screened_thresholds=3)
    return fedopl.Study(actions=("a", "b"), features=("x0", "x1"), basis=basis)


def told(*lines):
    found = np.zeros((2, MOST_JUMPS_TOLD, 6))
    found[0, : len(lines)] = lines
    return found


def test_clients_add_up_and_the_median_says_where():
    study, rows = study_of(), {name: np.array([400.0, 400.0]) for name in "abc"}
    lines = {
        "a": told((0, 30, 1, 40, 6, 3)),
        "b": told((0, 31, 1, 39, 5, 3)),
        "c": told((0, 35, 1, 41, 5, 3)),
    }
    (corner,) = strongest_thresholds(study, study.basis, lines, rows)
    # Of 30, 31 and 35, and of 40, 39 and 41.
    grid = candidate_cuts(study.basis.knots["x0"])
    assert corner == (("x0", grid[31]), ("x1", grid[40]))
    alone = strongest_thresholds(study, study.basis, {"a": lines["a"]}, rows)
    assert alone == ()
    opposed = {**lines, "b": told((0, 31, 1, 39, -5, -3))}
    assert strongest_thresholds(study, study.basis, opposed, rows) == ()
    in_any_order = dict(reversed(lines.items()))
    assert strongest_thresholds(study, study.basis, in_any_order, rows) == (corner,)


def test_a_client_that_tells_of_one_place_thrice_counts_once():
    """Lines of neighbouring parts of the grid may end up at places in the same part."""
    study, rows = study_of(), {"a": np.array([400.0, 400.0])}
    lines = told((0, 30, 1, 40, 6, 3), (0, 31, 1, 40, 6, 3), (0, 31, 1, 41, 6, 3))
    assert strongest_thresholds(study, study.basis, {"a": lines}, rows) == ()
    strong = told((0, 30, 1, 40, 6, 3), (0, 31, 1, 40, 6, 6))
    assert len(strongest_thresholds(study, study.basis, {"a": strong}, rows)) == 1
