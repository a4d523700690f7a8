import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedopl.base.errors import OptionError
from fedopl.theory.bounds import participation, regret_scale, value_of_information

TERM = st.floats(0.01, 10)


def test_like_clients_gain_from_more_rows():
    alone, together = regret_scale(1.5, 2.0, 100), regret_scale(1.5, 2.0, 1000)
    value = value_of_information(alone, together, skewness=1.0, shift=0.0)
    assert value.value == pytest.approx(48 * 1.5 * math.sqrt(2) * (0.1 - math.sqrt(0.001)))
    assert value.value > 0


def test_a_client_that_brings_all_the_weight_gains_nothing():
    # λ on the client alone: 𝔰 = n/n_c, no shift, and both bounds are the same.
    alone, together = regret_scale(1.5, 2.0, 100), regret_scale(1.5, 2.0, 1000)
    value = value_of_information(alone, together, skewness=10.0, shift=0.0)
    assert value.value == pytest.approx(0, abs=1e-12)


def test_a_client_far_from_the_others_loses():
    alone, together = regret_scale(1.5, 2.0, 100), regret_scale(1.5, 2.0, 1000)
    assert value_of_information(alone, together, skewness=1.0, shift=2 * alone).value < 0


def test_variance_elsewhere_can_outweigh_rows():
    alone = regret_scale(1.0, 1.0, 100)
    noisy = regret_scale(1.0, 20.0, 1000)
    assert value_of_information(alone, noisy, skewness=1.0, shift=0.0).value < 0


@given(TERM, TERM, st.floats(1, 20), st.floats(0, 5))
def test_participation_pays_exactly_where_the_value_is_positive(alone, together, skew, shift):
    value = value_of_information(alone, together, skew, shift).value
    assume(abs(value) > 1e-9)
    condition = participation(alone, together, skew, shift)
    assert condition.pays == (value > 0)
    assert condition.slack == pytest.approx(value / alone)
    some_pair_holds = any(condition.holds_at(k / 200, 1 - k / 200) for k in range(201))
    if some_pair_holds:
        assert value > 0
    if condition.witness is not None:
        assert condition.holds_at(*condition.witness)
        assert sum(condition.witness) == pytest.approx(1)
    else:
        assert not some_pair_holds


def test_the_condition_is_the_papers_in_its_own_symbols():
    r_c, r, skew, bound, tv = 2.0, 0.5, 4.0, 6.0, 0.1
    condition = participation(r_c, r, skew, bound * tv)
    for alpha, beta in ((0.35, 0.65), (0.29, 0.71), (0.5, 0.5), (0.45, 0.55)):
        expected = tv < alpha * r_c / bound and skew < beta**2 * r_c**2 / r**2
        assert condition.holds_at(alpha, beta) == expected


def test_a_client_without_regret_has_nothing_to_gain():
    condition = participation(0.0, 1.0, 1.0, 0.0)
    assert not condition.pays
    assert condition.witness is None


def test_nonsense_is_refused():
    with pytest.raises(OptionError):
        regret_scale(1.0, -1.0, 10)
    with pytest.raises(OptionError):
        regret_scale(1.0, 1.0, 0)
    with pytest.raises(OptionError):
        value_of_information(1.0, 1.0, 1.0, -0.1)
    with pytest.raises(OptionError):
        participation(1.0, 0.1, 1.0, 0.1).holds_at(0.8, 0.8)
