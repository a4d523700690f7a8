"""Advice is what the held-out rows say, and mostly right."""

import numpy as np
import pytest
from scipy.stats import norm
from small_worlds import alike_world, outcome_shift

from fedopl.analysis.advice import advise
from fedopl.base.estimates import Estimate
from fedopl.results.value_tables import GainTable, Row
from fedopl.theory.bounds import ValueOfInformation


def advice_for(value, error, modelled=None, **options):
    estimate = Estimate(
        value=value, standard_error=error, n_rows=200, degrees_of_freedom=199, **options
    )
    rows = (
        Row(against="local policy", client="global", estimate=estimate),
        Row(against="logging policy", client="north", estimate=estimate),
        Row(against="local policy", client="north", estimate=estimate),
    )
    (only,) = advise(GainTable(rows), None if modelled is None else {"north": modelled})
    return only


def test_an_interval_that_leaves_out_zero_decides():
    joining = advice_for(0.5, 0.1)
    assert joining.decision == "join"
    assert "worth 0.5 more" in joining.reason
    assert "200 held-out rows" in joining.reason
    staying = advice_for(-0.5, 0.1)
    assert staying.decision == "stay alone"
    assert "worth 0.5 less" in staying.reason


def test_what_is_undecided_says_how_many_rows_would_decide():
    waiting = advice_for(0.1, 0.1)
    assert waiting.decision == "undecided"
    assert "3.9 times as many" in waiting.reason
    assert "small" in advice_for(1e-5, 0.1).reason
    assert "decide alike" in advice_for(0.0, 0.0).reason


def test_the_model_is_told_and_decides_nothing():
    pays = ValueOfInformation(alone=3.0, together=1.0, shift=1.0)
    does_not = ValueOfInformation(alone=3.0, together=1.0, shift=5.0)
    assert advice_for(-0.5, 0.1, pays).decision == "stay alone"
    assert "would pay (1)" in advice_for(-0.5, 0.1, pays).reason
    assert "pays, too" in advice_for(0.5, 0.1, pays).reason
    assert advice_for(0.5, 0.1, does_not).decision == "join"
    assert "do not show that it pays (-3)" in advice_for(0.5, 0.1, does_not).reason


def test_one_row_decides_nothing():
    estimate = Estimate(value=9.0, standard_error=0.0, n_rows=1, degrees_of_freedom=0)
    row = Row(against="local policy", client="north", estimate=estimate)
    (only,) = advise(GainTable((row,)))
    assert only.decision == "undecided"
    assert "too few" in only.reason


def true_gain(world, joined, client):
    shared, own = joined.record.policy, joined.doors[client].local_policy
    return world.value(shared, client) - world.value(own, client)


@pytest.mark.parametrize(
    ("size", "n_features", "rows", "expected"),
    [(0.0, 48, 200, "join"), (1.0, 6, 1500, "stay alone")],
)
def test_advice_is_right_where_the_truth_is_large(join, size, n_features, rows, expected):
    right, power = [], []
    for draw in range(20):
        world = outcome_shift(alike_world(n_features=n_features, seed=draw), size)
        joined = join(world, (rows, rows, rows), draw, evaluation=0.5)
        for one in advise(joined.record.gains):
            true, error = true_gain(world, joined, one.client), one.gain.standard_error
            if abs(true) > 2 * error:
                right.append(one.decision == expected == ("join" if true > 0 else "stay alone"))
                power.append(norm.cdf(abs(true) / error - 1.96))
    assert len(right) >= 20
    assert np.mean(right) >= 0.9
    # As often as intervals of this width can be right.
    spread = np.sqrt(np.sum(np.array(power) * (1 - np.array(power)))) / len(power)
    assert np.mean(right) >= np.mean(power) - 3 * spread - 0.01


def test_intervals_of_the_gain_cover_the_truth(join):
    errors = []
    for draw in range(25):
        world = outcome_shift(alike_world(seed=draw), 0.3)
        joined = join(world, (300, 300, 300), draw)
        for one in advise(joined.record.gains):
            error = one.gain.value - true_gain(world, joined, one.client)
            errors.append(error / one.gain.standard_error)
    assert np.mean(np.abs(errors) < 2) >= 0.88
