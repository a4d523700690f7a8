"""Privacy accounting: exact numbers, both ways, in every corner."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedopl
from fedopl.privacy.accountant import (
    delta_at,
    epsilon_for,
    mu_for,
    mu_of_several,
    noise_for,
    split_mu,
)

# μ and σ/Δ of one release, at δ = 1e-6. The third column is ε of three releases with .55, .05 and
# .40 of μ² (μ to six digits) by dp-accounting 0.6.0: from_gaussian_mechanism(1/√(share)/μ,
# value_discretization_interval=1e-5, or 1e-4 from ε = 4), composed, get_epsilon_for_delta(1e-6).
AT_1E_6 = {
    0.5: (0.124106, 8.0576, 0.499999358),
    1: (0.236704, 4.2247, 0.999998267),
    2: (0.448335, 2.2305, 2.000001268),
    4: (0.837859, 1.1935, 4.000001316),
    8: (1.531545, 0.6529, 7.999999284),
}
SHARES = (0.55, 0.05, 0.40)

# δ in 60 digits by mpmath 1.4.1: erfc(-z/√2)/2 for Φ(z), in the formula of `delta_at`.
IN_SIXTY_DIGITS = {
    (1e-6, 1e-6): 8.33155122454254e-8,
    (1, 0.05): 1.12903322709772e-91,
    (1, 0.236704): 9.99966892543128e-7,
    (8, 1.5): 5.33676340024652e-7,
    (100, 5): 1.58478023266863e-69,
}

EPSILONS = st.floats(1e-6, 100)
MUS = st.floats(math.log(1e-6), math.log(50)).map(math.exp)
DELTAS = st.floats(math.log(1e-12), math.log(0.5)).map(math.exp)


@pytest.mark.parametrize("epsilon", AT_1E_6)
def test_mu_and_noise_of_one_release_are_those_of_the_table(epsilon):
    mu, noise, _ = AT_1E_6[epsilon]
    assert mu_for(epsilon, 1e-6) == pytest.approx(mu, abs=5.1e-7)
    assert noise_for(1, mu_for(epsilon, 1e-6)) == pytest.approx(noise, abs=5.1e-5)


@pytest.mark.parametrize("epsilon", AT_1E_6)
def test_several_releases_cost_what_the_distribution_of_losses_says(epsilon):
    mu, _, by_losses = AT_1E_6[epsilon]
    several = mu_of_several(split_mu(mu, SHARES))
    assert epsilon_for(several, 1e-6) == pytest.approx(by_losses, abs=1e-6)


def test_dp_accounting_agrees():
    losses = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    mus = split_mu(mu_for(1, 1e-6), SHARES)
    first, *others = [
        losses.from_gaussian_mechanism(1 / mu, value_discretization_interval=1e-5) for mu in mus
    ]
    for other in others:
        first = first.compose(other)
    assert first.get_epsilon_for_delta(1e-6) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(("epsilon", "mu"), IN_SIXTY_DIGITS)
def test_delta_has_as_many_digits_as_floats_allow(epsilon, mu):
    digits = 1e-8 if mu < 1e-3 else 1e-12
    assert delta_at(epsilon, mu) == pytest.approx(IN_SIXTY_DIGITS[epsilon, mu], rel=digits)


def test_the_noise_of_a_design_is_that_of_its_plan():
    """R = 3, clips 4 and 10, ε = 1, the first release with 40 % and two steps with 30 %."""
    first, step, _ = split_mu(mu_for(1, 1e-6), (0.4, 0.3, 0.3))
    sigma = noise_for(math.hypot(3**2 + 1, 4), first)
    assert sigma == pytest.approx(71.9437, abs=5e-5)
    assert sigma / math.sqrt(2) == pytest.approx(50.87, abs=5e-3)
    assert noise_for(10, step) == pytest.approx(77.13, abs=5e-3)


@given(EPSILONS, MUS)
def test_delta_is_a_probability_and_falls_with_epsilon_and_rises_with_mu(epsilon, mu):
    delta = delta_at(epsilon, mu)
    assert 0 <= delta <= 1
    slack = 1 + 1e-7
    assert delta_at(epsilon * 1.01, mu) <= delta * slack
    assert delta_at(epsilon, mu * 1.01) * slack >= delta


@given(EPSILONS, DELTAS)
def test_mu_is_the_largest_that_keeps_the_promise(epsilon, delta):
    mu = mu_for(epsilon, delta)
    assert delta_at(epsilon, mu) <= delta < delta_at(epsilon, mu * (1 + 1e-6))
    assert epsilon_for(mu, delta) == pytest.approx(epsilon, rel=1e-6, abs=1e-9)


@given(MUS, DELTAS)
def test_epsilon_is_the_least_that_is_promised(mu, delta):
    epsilon = epsilon_for(mu, delta)
    if epsilon > 1e-9:
        assert delta_at(epsilon, mu) <= delta < delta_at(epsilon * (1 - 1e-6), mu)
        assert mu_for(epsilon, delta) == pytest.approx(mu, rel=1e-6)
    else:
        assert delta_at(1e-9, mu) <= delta


@given(st.lists(MUS, min_size=1, max_size=5), MUS)
def test_releases_add_up_in_squares_and_shares_give_them_back(mus, mu):
    together = mu_of_several(mus)
    assert together == pytest.approx(math.sqrt(np.square(mus).sum()))
    shares = np.square(mus) / np.square(mus).sum()
    assert mu_of_several(split_mu(mu, shares)) == pytest.approx(mu)


def test_the_room_loads_no_heavy_package():
    rooms = "accountant, exact_noise"
    code = f"import sys; from fedopl.privacy import {rooms}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"scipy", "pydantic", "pyarrow"} & set(done.stdout.split())


def test_nothing_released_costs_nothing():
    assert mu_of_several([]) == 0
    assert delta_at(1, 0) == epsilon_for(0, 1e-6) == 0


def test_extreme_settings_overflow_nowhere():
    assert delta_at(100, 1e-6) == 0
    assert delta_at(100, 50) == pytest.approx(1)
    assert delta_at(1e300, 1e-300) == 0
    assert delta_at(1e300, 1e100) == 0
    assert delta_at(1e-300, 1e300) == 1
    assert delta_at(100, epsilon_for(50, 1e-6)) == 1
    assert 1e-7 < mu_for(1e-6, 1e-12) < 1e-6


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, "1", None, 10**400])
def test_epsilon_has_to_be_above_zero(epsilon):
    for call in (delta_at, mu_for):
        with pytest.raises(fedopl.OptionError, match=r"^epsilon: expected a number above 0, came"):
            call(epsilon, 0.1)


@pytest.mark.parametrize("delta", [0, 1, -0.1, 1.5, math.nan, "1e-6", None])
def test_delta_has_to_be_between_zero_and_one(delta):
    for call in (epsilon_for, mu_for):
        with pytest.raises(fedopl.OptionError, match=r"^delta: expected a number between 0 and 1"):
            call(1, delta)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("mu", lambda: delta_at(1, -1)),
        ("mu", lambda: epsilon_for(math.nan, 0.1)),
        ("mu", lambda: mu_of_several([1, -1])),
        ("mu", lambda: noise_for(1, 0)),
        ("sensitivity", lambda: noise_for(0, 1)),
        ("shares", lambda: split_mu(1, (0.5, 0.6))),
        ("shares", lambda: split_mu(1, (1.5, -0.5))),
        ("shares", lambda: split_mu(1, ())),
    ],
)
def test_other_settings_out_of_range_are_named(name, call):
    with pytest.raises(fedopl.OptionError, match=f"^{name}: expected"):
        call()
