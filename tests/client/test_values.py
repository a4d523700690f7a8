import numpy as np
import pytest

import fedopl
from fedopl.client.scoring.scores import Scores
from fedopl.client.scoring.values import joint_estimate


def scores_of(values, weights=None, groups=None):
    values = np.asarray(values, float)
    return Scores(
        values=values,
        kind="test",
        action_names=tuple("abcdefgh"[: values.shape[1]]),
        clipped_rows=np.zeros(values.shape[1], int),
        weights=None if weights is None else np.asarray(weights, float),
        groups=groups,
    )


def test_a_value_is_a_mean_with_its_standard_error():
    values = np.random.default_rng(0).standard_normal((50, 2))
    estimate = fedopl.estimate_value(scores_of(values), "b")
    assert estimate.value == pytest.approx(values[:, 1].mean())
    assert estimate.standard_error == pytest.approx(values[:, 1].std(ddof=1) / np.sqrt(50))
    assert (estimate.n_rows, estimate.degrees_of_freedom) == (50, 49)


def test_decisions_choose_the_scores():
    estimate = fedopl.estimate_value(scores_of([[1, 10], [2, 20], [3, 30]]), [0, 1, 0])
    assert estimate.value == pytest.approx((1 + 20 + 3) / 3)


def test_whole_weights_count_rows_as_often():
    values = np.random.default_rng(1).standard_normal((6, 1)) @ np.ones((1, 2))
    weights = [1, 2, 3, 1, 2, 1]
    repeated = np.repeat(values, weights, axis=0)
    weighted = fedopl.estimate_value(scores_of(values, weights), "a")
    assert weighted.value == pytest.approx(repeated[:, 0].mean())


def test_groups_of_one_are_no_groups():
    values = np.random.default_rng(2).standard_normal((30, 2))
    alone = fedopl.estimate_value(scores_of(values, groups=np.arange(30)), "a")
    assert alone == fedopl.estimate_value(scores_of(values), "a")


def test_doubling_every_row_within_its_group_adds_no_certainty():
    values = np.random.default_rng(3).standard_normal((40, 2))
    once = fedopl.estimate_value(scores_of(values), "a")
    twice = scores_of(np.repeat(values, 2, axis=0), groups=np.repeat(np.arange(40), 2))
    assert fedopl.estimate_value(twice, "a").standard_error == pytest.approx(once.standard_error)


def test_rows_without_a_score_are_left_out_and_counted():
    estimate = fedopl.estimate_value(scores_of([[1, 0], [np.nan, 0], [3, 0]]), "a")
    assert (estimate.value, estimate.n_rows) == (2, 2)


def test_one_row_has_no_certainty():
    estimate = fedopl.estimate_value(scores_of([[1.0, 2.0]]), "a")
    assert estimate.interval() == (-np.inf, np.inf)


def test_an_estimate_reads_well():
    estimate = fedopl.Estimate(value=2, standard_error=0.5, n_rows=1000, degrees_of_freedom=999)
    assert str(estimate) == "2 (95 % interval 1.019 to 2.981, 1,000 rows)"


@pytest.mark.parametrize(
    ("decisions", "message"),
    [
        ("z", "'z' is not an action; there are 'a', 'b'"),
        ([0, 2, 0], "expected codes 0 to 1, came 0 to 2"),
        ([0, -1, 0], "came -1 to 0"),
        ([0, 1], "decisions: expected 3 rows"),
        ([0.0, 1.0, 0.0], "expected action codes"),
        (["a", "b", "a"], "expected action codes"),
    ],
)
def test_bad_decisions_are_refused(decisions, message):
    with pytest.raises(fedopl.DataError, match=message):
        fedopl.estimate_value(scores_of(np.ones((3, 2))), decisions)


@pytest.mark.parametrize("grouped", [False, True])
def test_bits_of_a_column_do_not_depend_on_what_stands_beside_it(grouped):
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=(5_003, 40)), rng.random(5_003)
    groups = rng.integers(0, 60, 5_003) if grouped else None
    alone = [joint_estimate(values[:, [place]], weights, groups) for place in range(40)]
    for width in (2, 9, 17, 33, 40):  # wide ones take other kernels of BLAS
        found = joint_estimate(values[:, :width], weights, groups)
        for place in range(width):
            assert found.means[place] == alone[place].means[0]
            assert found.covariances[place, place] == alone[place].covariances[0, 0]
