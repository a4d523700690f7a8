"""What sampled releases cost: upper bounds, close to the truth, in every corner."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedopl
from fedopl.privacy.accountant import delta_at, epsilon_for, mu_for
from fedopl.privacy.subsampled import SLIP, PrivacyLosses, SampledSteps, least_noise, mu_of_sampled

# Rate, noise and number of steps, ε, and δ by dp-accounting 0.6.0: from_gaussian_mechanism(noise,
# sampling_prob=rate, value_discretization_interval=1e-4, or 2e-5 where the rate is 0.01),
# self_compose(times), get_delta_for_epsilon(ε).
BY_DP_ACCOUNTING = [
    (0.1, 5.362, 150, 0.5, 0.001707886992197906),
    (0.1, 5.362, 150, 1.0, 9.977349749685367e-07),
    (0.3, 2.533, 40, 4.0, 9.897369739356934e-07),
    (0.05, 0.743, 100, 4.0, 0.0017366307426163424),
    (0.01, 1.563, 1000, 1.0, 9.946304737399753e-07),
    (0.5, 1.0, 3, 1.0, 0.11670758767343774),
    (0.5, 1.0, 3, 4.0, 0.000755704263812111),
]


def delta(epsilon, *steps):
    return float(PrivacyLosses(steps).delta(np.array([epsilon]))[0])


@pytest.mark.parametrize(("rate", "noise", "times", "epsilon", "expected"), BY_DP_ACCOUNTING)
def test_it_says_what_dp_accounting_says_and_no_less(rate, noise, times, epsilon, expected):
    found = delta(epsilon, SampledSteps(rate, noise, times))
    assert expected * (1 - 1e-6) <= found <= expected * 1.002


def test_steps_beside_other_releases_cost_what_dp_accounting_says():
    # 150 steps at a rate of 0.1 and noise of 6, and a Gaussian release with μ = 0.075.
    found = delta(1.0, SampledSteps(0.1, 6.0, 150), SampledSteps(1.0, 1 / 0.075))
    assert 2.892017941476974e-07 * (1 - 1e-6) <= found <= 2.892017941476974e-07 * 1.002


def test_dp_accounting_agrees_where_it_is_installed():
    losses = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    theirs = losses.from_gaussian_mechanism(2.0, sampling_prob=0.2).self_compose(30)
    found = delta(2.0, SampledSteps(0.2, 2.0, 30))
    assert found == pytest.approx(theirs.get_delta_for_epsilon(2.0), rel=5e-3)


@given(mu=st.floats(0.05, 4), times=st.integers(1, 60), epsilon=st.floats(0.05, 10))
@settings(max_examples=25, deadline=None)
def test_with_all_rows_it_is_the_closed_form_never_below_and_hardly_above(mu, times, epsilon):
    exact = delta_at(epsilon, mu)
    found = delta(epsilon, SampledSteps(1.0, math.sqrt(times) / mu, times))
    assert exact <= found <= exact * 1.002 + 2e-11


@given(rate=st.floats(0.02, 0.9), noise=st.floats(0.6, 8), times=st.integers(1, 60))
@settings(max_examples=15, deadline=None)
def test_more_rows_more_steps_and_less_noise_tell_more(rate, noise, times):
    epsilons = np.array([0.2, 1.0, 3.0])
    found = PrivacyLosses([SampledSteps(rate, noise, times)]).delta(epsilons)
    assert (np.diff(found) <= 0).all()
    for more in (
        SampledSteps(min(1.05 * rate, 1.0), noise, times),
        SampledSteps(rate, noise / 1.05, times),
        SampledSteps(rate, noise, times + 1 + times // 5),
    ):
        assert (PrivacyLosses([more]).delta(epsilons) >= found).all()
    assert (found <= [delta_at(e, math.sqrt(times) / noise) * 1.01 + 2e-11 for e in epsilons]).all()


@pytest.mark.parametrize(("epsilon", "rate", "times"), [(0.5, 0.1, 150), (4, 0.3, 40), (1, 1, 15)])
def test_the_least_noise_keeps_the_promise_and_a_little_less_does_not(epsilon, rate, times):
    beside = math.sqrt(0.1) * mu_for(epsilon, 1e-6)
    noise = least_noise((epsilon, 1e-6), (rate, times), beside)
    told = SampledSteps(1.0, 1 / beside)
    assert delta(epsilon, SampledSteps(rate, noise, times), told) <= 1e-6
    assert delta(epsilon, SampledSteps(rate, noise * 0.997, times), told) > 1e-6
    assert float(f"{noise:.4g}") == noise
    if rate == 1:
        exact = math.sqrt(times / 0.9) / mu_for(epsilon, 1e-6)
        assert exact <= noise <= exact * 1.002


def test_as_a_gaussian_it_tells_no_less_also_where_studies_are_put_together():
    """The Gaussian with the same (ε, δ) would not do: further out sampled steps tell more."""
    steps, beside = (0.05, 0.743, 100), 0.4
    mu = mu_of_sampled(steps, beside)
    own = (SampledSteps(*steps), SampledSteps(1.0, 1 / beside))
    epsilons = np.linspace(0.1, 14, 40)
    for times in (1, 3):
        told = [one._replace(times=times * one.times) for one in own]
        found = PrivacyLosses(told).delta(epsilons)
        bounds = [delta_at(e, math.sqrt(times) * mu) + times * SLIP for e in epsilons.tolist()]
        assert (found <= np.array(bounds) * (1 + 1e-9)).all()
    naive = mu_for(8.0, delta(8.0, *own))
    assert naive < mu < math.sqrt(100) / 0.743
    assert delta(10.0, *own) > 1.05 * delta_at(10.0, naive)


def test_who_knows_which_rows_took_part_knows_far_more_than_is_promised():
    beside = math.sqrt(0.1) * mu_for(1.0, 1e-6)
    noise = least_noise((1.0, 1e-6), (0.2, 40), beside)
    known = epsilon_for(math.hypot(beside, math.sqrt(40) / noise), 1e-6)
    assert known == pytest.approx(5.3, abs=0.05)
    # And the owner's account has 1 % more than was promised.
    counted = epsilon_for(mu_of_sampled((0.2, noise, 40), beside), 1e-6 - SLIP)
    assert 1.0 < counted < 1.015


WRONG = {
    "rate": (lambda: PrivacyLosses([SampledSteps(1.5, 1.0)]), "rate: expected a share"),
    "noise": (lambda: PrivacyLosses([SampledSteps(0.5, -1.0)]), "noise"),
    "delta": (lambda: least_noise((1.0, 1e-12), (0.1, 9), 0.01), "at least 1e-09"),
    "beside": (lambda: least_noise((1.0, 1e-6), (0.1, 9), 0.5), "leaves nothing"),
}


@pytest.mark.parametrize(("ask", "complaint"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused_in_words(ask, complaint):
    with pytest.raises(fedopl.OptionError, match=complaint):
        ask()
