import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedopl
from fedopl.study.mixture import (
    BestSkew,
    Given,
    Minimax,
    agreed_weights,
    as_mixture,
    capped,
    renormalised,
)
from fedopl.theory.skew import skewness

ROWS = {"north": 600, "south": 300, "west": 100}


def test_empirical_counts_rows():
    assert fedopl.mixture.empirical().weights(ROWS) == {"north": 0.6, "south": 0.3, "west": 0.1}


def test_uniform_counts_clients():
    assert set(fedopl.mixture.uniform().weights(ROWS).values()) == {1 / 3}


def test_skewed_is_the_papers_formula():
    weights = fedopl.mixture.skewed("west", 0.2).weights(ROWS)
    expected = {"north": 0.6 - 0.2 * 0.6, "south": 0.3 - 0.2 * 0.3, "west": 0.1 + 0.2 * (1 - 0.1)}
    assert weights == pytest.approx(expected)


def test_no_skew_is_empirical_and_full_skew_is_the_target_alone():
    assert fedopl.mixture.skewed("west", 0).weights(ROWS) == fedopl.mixture.empirical().weights(
        ROWS
    )
    assert fedopl.mixture.skewed("west", 1).weights(ROWS) == {"north": 0, "south": 0, "west": 1}


@given(
    st.dictionaries(st.text("abc", min_size=1), st.integers(1, 10**6), min_size=1),
    st.floats(0, 1),
)
def test_every_mixture_adds_up_to_one(rows, alpha):
    skewed = fedopl.mixture.skewed(next(iter(rows)), alpha)
    for mixture in (fedopl.mixture.empirical(), fedopl.mixture.uniform(), skewed):
        weights = mixture.weights(rows)
        assert math.fsum(weights.values()) == pytest.approx(1)
        assert min(weights.values()) >= 0
        assert list(weights) == sorted(rows)


def test_names_and_shares_are_mixtures():
    assert as_mixture("uniform") == fedopl.mixture.uniform()
    assert as_mixture({"a": 0.25, "b": 0.75}) == fedopl.mixture.given({"a": 0.25, "b": 0.75})


def test_those_who_are_left_share_the_weight():
    assert renormalised({"a": 0.5, "b": 0.3, "c": 0.2}, {"b", "c"}) == pytest.approx(
        {"b": 0.6, "c": 0.4}
    )
    assert renormalised({"a": 1.0, "b": 0.0, "c": 0.0}, {"b", "c"}) == {"b": 0.5, "c": 0.5}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fedopl.mixture.given({"a": 0.5, "b": 0.6}), "they add up to 1.1"),
        (
            lambda: fedopl.mixture.given({"a": -0.5, "b": 1.5}),
            "from 0 to 1; not so for a, b",
        ),
        (lambda: fedopl.mixture.skewed("a", 1.5), "alpha: .* less than or equal to 1, came 1.5"),
        (lambda: as_mixture("empirial"), "expected 'empirical', 'uniform'"),
        (
            lambda: fedopl.mixture.skewed("east", 0.1).weights(ROWS),
            "'east', but the clients",
        ),
        (lambda: fedopl.mixture.given({"a": 1.0}).weights(ROWS), "shares for a, but the clients"),
    ],
)
def test_what_is_no_distribution_is_refused(make, message):
    with pytest.raises(fedopl.OptionError, match=message):
        make()


def test_skewness_is_one_for_the_empirical_mixture_and_the_papers_formula_otherwise():
    assert skewness(fedopl.mixture.empirical().weights(ROWS), ROWS) == pytest.approx(1)
    weights = fedopl.mixture.uniform().weights(ROWS)
    chi_squared = sum((w - ROWS[c] / 1000) ** 2 / (ROWS[c] / 1000) for c, w in weights.items())
    assert skewness(weights, ROWS) == pytest.approx(1 + chi_squared)


def test_all_weight_on_one_client_is_worth_that_clients_rows():
    weights = fedopl.mixture.skewed("west", 1).weights(ROWS)
    assert 1000 / skewness(weights, ROWS) == pytest.approx(ROWS["west"])


@given(
    weights=st.lists(st.floats(0.001, 1000), min_size=2, max_size=9),
    spare=st.floats(0, 0.9),
)
def test_no_client_counts_for_more_than_the_largest_share(weights, spare):
    rows = {f"c{place}": weight for place, weight in enumerate(weights)}
    agreed = renormalised(rows, rows.keys())
    largest = 1 / len(rows) + spare * (1 - 1 / len(rows))
    cut = capped(agreed, largest)
    assert sum(cut.values()) == pytest.approx(1)
    assert max(cut.values()) <= largest * (1 + 1e-12)
    below = [name for name in rows if cut[name] < largest * (1 - 1e-9)]
    for name in below:  # they keep their proportions, and lose nothing
        assert cut[name] >= agreed[name] * (1 - 1e-12)
        assert cut[name] / cut[below[0]] == pytest.approx(agreed[name] / agreed[below[0]])


def test_weights_below_the_largest_share_stay_as_they_are():
    mixture = fedopl.mixture.empirical(largest_share=0.9)
    assert agreed_weights(mixture, ROWS) == agreed_weights(fedopl.mixture.empirical(), ROWS)


def test_a_largest_share_that_nobody_can_keep_is_an_error_that_says_which_would_do():
    with pytest.raises(fedopl.FederationError, match=r"agree on 0\.333 or more"):
        agreed_weights(fedopl.mixture.empirical(largest_share=0.3), dict.fromkeys("abc", 10))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Minimax(largest_share=0.5), "largest_share: the weights of 'minimax' are found"),
        (lambda: BestSkew(toward="a", largest_share=0.5), "the weights of 'path' are found"),
        (
            lambda: Given(shares={"a": 0.8, "b": 0.2}, largest_share=0.5),
            "a share of 0.8 is given, which is more than 0.5",
        ),
        (lambda: fedopl.mixture.empirical(largest_share=1.5), "less than or equal to 1"),
    ],
)
def test_a_largest_share_that_contradicts_the_mixture_is_refused(make, message):
    with pytest.raises(fedopl.OptionError, match=message):
        make()
