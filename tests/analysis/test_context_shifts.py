"""Contexts told apart by their moments."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from small_worlds import action_missing, alike_world, covariate_shift

import fedopl
from fedopl.analysis.attribution import (
    Moments,
    context_moments,
    context_shift,
    estimated_kl,
    kl_by_chance,
    mixture_moments,
    shifts_from_mixture,
    shifts_of,
    why_unknown,
)
from fedopl.base.errors import OptionError
from fedopl.theory.divergences import (
    Gaussian,
    gaussian_chi_squared,
    gaussian_kl,
    gaussian_tv_interval,
)

SIZES = (300, 200, 120)


def test_moments_are_those_of_the_training_rows(join):
    joined = join(covariate_shift(alike_world()), SIZES)
    moments = context_moments(joined.statistics)
    for name, found in moments.items():
        x = joined.rows(name)[0]
        np.testing.assert_allclose(found.mean, x.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(found.covariance, np.cov(x.T, ddof=0), atol=1e-12)
    together = np.vstack([joined.rows(name)[0] for name in moments])
    mixed = mixture_moments(moments, joined.weights)
    np.testing.assert_allclose(mixed.mean, together.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(mixed.covariance, np.cov(together.T, ddof=0), atol=1e-12)


def test_terms_of_a_basis_are_no_further_directions():
    """Clients differ in whom they see, however many terms are made of that."""
    rng = np.random.default_rng(0)
    clients = {}
    for place, name in enumerate("ab"):
        x, actions = rng.standard_normal((600, 3)) + 0.2 * place, rng.integers(0, 2, 600)
        rewards = x[:, 0] ** 2 * actions + rng.standard_normal(600)
        clients[name] = fedopl.LoggedData(x, actions, rewards, 0.5, action_names=("no", "yes"))
    bent, straight = (
        fedopl.learn(clients, basis=basis, evaluation=0).statistics for basis in ("auto", None)
    )
    for name, found in context_moments(bent).items():
        expected = context_moments(straight)[name]
        np.testing.assert_allclose(found.mean, expected.mean, atol=1e-9)
        np.testing.assert_allclose(found.covariance, expected.covariance, atol=1e-9)


def random_moments(rng, n_features=4):
    root = rng.standard_normal((n_features, 2 * n_features))
    return Moments(mean=rng.standard_normal(n_features), covariance=root @ root.T)


@pytest.mark.parametrize("seed", range(5))
def test_divergences_are_those_of_the_theory(seed):
    rng = np.random.default_rng(seed)
    own, other = random_moments(rng), random_moments(rng)
    found = context_shift(own, other)
    p, q = (Gaussian(mean=m.mean, covariance=m.covariance) for m in (own, other))
    assert found.kl == pytest.approx(gaussian_kl(p, q), rel=1e-9)
    assert found.chi_squared == pytest.approx(gaussian_chi_squared(p, q), rel=1e-9)
    interval = gaussian_tv_interval(p, q)
    assert found.total_variation.lower == pytest.approx(interval.lower, rel=1e-9)
    assert found.total_variation.upper == pytest.approx(interval.upper, rel=1e-9)
    assert (found.n_directions, found.n_left_out) == (4, 0)


def spoiled(contexts, client, rng):
    """With a constant, a sum of others, a constant for each client, and one that hardly varies."""
    n_rows = len(contexts)
    extra = [
        np.full(n_rows, 1e6 / 3),
        contexts @ [1.0, 2.0, -1.0, 0.5] * 1e3 + 2020,
        np.full(n_rows, float(client)),
        np.full(n_rows, 1.0) + 1e-9 * rng.standard_normal(n_rows),
    ]
    return np.column_stack([contexts, *extra])


def test_features_that_do_not_vary_or_say_nothing_new_change_nothing(join):
    world = covariate_shift(alike_world(), 0.5)
    rng = np.random.default_rng(0)
    data = {}
    for number, (name, size) in enumerate(zip(world.clients, SIZES, strict=True)):
        rows = world.logged(name, size)
        contexts = spoiled(rows.contexts, number, rng)
        data[name] = fedopl.LoggedData(contexts, rows.actions, rows.rewards)
    moments = context_moments(join(data).statistics)
    plain = {
        name: Moments(mean=m.mean[:4], covariance=m.covariance[:4, :4])
        for name, m in moments.items()
    }
    for name, other in permutations(moments, 2):
        shift = context_shift(moments[name], moments[other])
        expected = context_shift(plain[name], plain[other])
        assert shift.kl == pytest.approx(expected.kl, rel=1e-6)
        assert shift.chi_squared == pytest.approx(expected.chi_squared, rel=1e-6)
        assert (shift.n_directions, shift.n_left_out) == (4, 4)


def test_a_direction_in_which_one_client_does_not_vary_is_left_out():
    own = Moments(mean=np.array([1.0, 0.0]), covariance=np.diag([1.0, 4.0]))
    other = Moments(mean=np.array([0.0, 7.0]), covariance=np.diag([1.0, 0.0]))
    for p, q in ((own, other), (other, own)):
        found = context_shift(p, q)
        assert found.kl == pytest.approx(0.5)
        assert (found.n_directions, found.n_left_out) == (1, 1)
    nothing = Moments(mean=np.zeros(2), covariance=np.zeros((2, 2)))
    assert context_shift(nothing, own).kl == 0
    assert context_shift(nothing, nothing).n_left_out == 2


def test_units_of_features_make_no_difference():
    rng = np.random.default_rng(3)
    own, other = random_moments(rng), random_moments(rng)
    change = np.diag([1e5, 1e-5, 1.0, 30.0]) @ (np.eye(4) + 0.3 * np.ones((4, 4)))

    def changed(moments):
        return Moments(
            mean=change @ moments.mean, covariance=change @ moments.covariance @ change.T
        )

    expected, found = context_shift(own, other), context_shift(changed(own), changed(other))
    assert found.kl == pytest.approx(expected.kl, rel=1e-6)


def test_what_cannot_be_told_is_said(join):
    blocks = join(alike_world(n_features=6), SIZES, policy=fedopl.Linear(features="blocks"))
    assert "own features" in why_unknown(blocks.statistics)
    with pytest.raises(OptionError, match="own features"):
        context_moments(blocks.statistics)
    assert why_unknown(join(alike_world(), SIZES).statistics) is None


def test_one_action_that_all_rows_have_a_score_for_is_enough(join):
    world = action_missing(alike_world(), "client 2", "a1")
    joined = join(world, SIZES, nuisances={"kind": "local", "unseen": "mask"})
    sums = joined.statistics.sums["client 2"]
    assert len(sums.grams) == 3
    found = context_moments(joined.statistics)["client 2"]
    np.testing.assert_allclose(found.mean, joined.rows("client 2")[0].mean(axis=0), atol=1e-12)
    fewer = {**joined.statistics.sums, "client 2": replace(sums, shares=np.array([0, 0.9, 0.9]))}
    assert "client 2" in why_unknown(replace(joined.statistics, sums=fewer))


def test_the_covariate_part_of_theorem_3_is_the_mean_root(join):
    joined = join(covariate_shift(alike_world()), SIZES)
    moments, rows = context_moments(joined.statistics), joined.record.rows
    for name, found in shifts_of(joined.record).items():
        kl = {o: estimated_kl(moments[name], moments[o], rows[name], rows[o])[0] for o in moments}
        expected = sum(joined.weights[o] * np.sqrt(kl[o]) for o in kl if o != name)
        assert found.parts["covariates"].value == pytest.approx(expected)


def test_shifts_estimate_the_truth():
    world = covariate_shift(alike_world(), 0.5)
    rng = np.random.default_rng(0)
    moments = {}
    for name in world.clients:
        x = world.contexts(name, 40_000, rng)
        moments[name] = Moments(mean=x.mean(axis=0), covariance=np.cov(x.T))
    means = {name: truth.context_mean for name, truth in world.truths.items()}
    for name, other in permutations(moments, 2):
        true = 0.5 * ((means[name] - means[other]) ** 2).sum()
        assert context_shift(moments[name], moments[other]).kl == pytest.approx(
            true, rel=0.06, abs=0.002
        )
    uniform = dict.fromkeys(means, 1 / 3)
    centre = sum(means.values()) / 3
    spread = np.eye(4) + np.cov(np.stack(list(means.values())).T, ddof=0)
    for name, found in shifts_from_mixture(moments, uniform).items():
        p = Gaussian(mean=means[name], covariance=np.eye(4))
        true = gaussian_kl(p, Gaussian(mean=centre, covariance=spread))
        assert found.kl == pytest.approx(true, rel=0.06, abs=0.002)


def test_chance_alone_shows_as_much_divergence_as_is_said():
    rng = np.random.default_rng(0)
    shown = []
    for _ in range(300):
        p, q = rng.standard_normal((200, 3)), rng.standard_normal((400, 3))
        own, other = (Moments(mean=x.mean(axis=0), covariance=np.cov(x.T)) for x in (p, q))
        shown.append(context_shift(own, other).kl)
    assert np.mean(shown) == pytest.approx(kl_by_chance(3, 200, 400), rel=0.12)


@pytest.mark.parametrize("shift", [0.0, 0.4])
def test_estimated_divergences_are_right_on_average_and_so_are_their_errors(shift):
    """Over 300 draws; without a shift the error is a little too large, which errs on our side."""
    rng, scale = np.random.default_rng(1), 1 + shift
    truth = gaussian_kl(
        Gaussian(mean=np.full(4, shift), covariance=scale**2 * np.eye(4)),
        Gaussian(mean=np.zeros(4), covariance=np.eye(4)),
    )
    found = []
    for _ in range(300):
        samples = scale * rng.normal(size=(400, 4)) + shift, rng.normal(size=(700, 4))
        first, second = (
            Moments(mean=x.mean(axis=0), covariance=np.cov(x.T, bias=True)) for x in samples
        )
        found.append(estimated_kl(first, second, 400, 700))
    kl, errors = np.array(found).T
    spread = kl.std(ddof=1)
    assert kl.mean() == pytest.approx(truth, abs=0.01 + 3 * spread / np.sqrt(300))
    assert 0.9 * spread < errors.mean() < (1.15 if shift else 4) * spread
