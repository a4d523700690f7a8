"""The regret bounds against the truth, for policies that a federation learned.

Three clients, three contexts, two actions, outcomes of −1 and ½. A tree of depth two that may ask
between any two contexts is any of all 8 policies, so that the federation's search is the maximum
that the theorems speak of; and regrets, V, TV and χ² are sums over what can happen.
"""

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from discrete_worlds import OUTCOMES, POLICIES, World, draw_world

from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.client.table.logged_data import LoggedData
from fedopl.engines.in_process import InProcess
from fedopl.results.sums.any_mixture import solve_for
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from fedopl.study.mixture import Empirical, given, skewed
from fedopl.study.plans import EvaluationPlan
from fedopl.study.policy_plans import Tree
from fedopl.study.study import Study
from fedopl.theory import divergences
from fedopl.theory.bounds import (
    Discrepancy,
    UniversalConstants,
    chi_squared_local_regret_bound,
    discrepancy_local_regret_bound,
    global_regret_bound,
    local_regret_bound,
    oracle_regret_bound,
    outcome_local_regret_bound,
)
from fedopl.theory.entropy import finite_entropy_integral
from fedopl.theory.policy_classes import (
    envelope_second_moment,
    envelope_variance,
    score_bound,
    weighted_variance,
)
from fedopl.theory.skew import effective_sample_size, row_weights, skewness

NAMES = ("client 1", "client 2", "client 3")
DELTA = 0.05
KAPPA = finite_entropy_integral(len(POLICIES))
MODEST = UniversalConstants(entropy=1.0, confidence=1.0)
SIZES = (600, 200, 60)


@dataclass(frozen=True)
class Learned:
    """What a federation learned, and the scores it learned from."""

    world: World
    rows: dict
    weights: dict
    policy: int  # its place in POLICIES
    contexts: np.ndarray  # (n_rows,)
    scores: np.ndarray  # (n_rows, 2)
    codes: np.ndarray  # (n_rows,) the client of each row
    statistics: object

    @property
    def lam(self):
        return np.array([self.weights[name] for name in NAMES])

    @property
    def n_rows(self):
        return sum(self.rows.values())

    @property
    def skewness(self):
        return skewness(self.weights, self.rows)

    @property
    def values(self):
        """Q_λ(π), (8,)."""
        return self.lam @ self.world.values

    @property
    def regret(self):
        return self.values.max() - self.values[self.policy]

    @property
    def decisions(self):
        return POLICIES[:, self.contexts]

    @property
    def row_weights(self):
        return row_weights(self.lam, self.codes)

    @property
    def deviation(self):
        """sup |Δ_λ(π_a, π_b) − Δ̂_λ(π_a, π_b)|, which the proof of Theorem 1 bounds."""
        chosen = self.scores[np.arange(len(self.scores)), self.decisions]
        return np.ptp(chosen @ self.row_weights - self.values)

    @property
    def second_moment(self):
        """V, estimated from the scores as clients could."""
        return max(envelope_second_moment(self.scores[self.codes == c]) for c in range(3))

    def bound(self, constants, *, moment=None, skew=None, n_rows=None):
        moment = self.second_moment if moment is None else moment
        skew = self.skewness if skew is None else skew
        n_rows = n_rows or self.n_rows
        return global_regret_bound(KAPPA, moment, skew, n_rows, DELTA, *constants).total

    def under(self, weights):
        """Learned again from the same sums for other weights."""
        return replace(self, weights=weights, policy=place_of(solve_for(self.statistics, weights)))


PROOF, ONE = (), (MODEST,)


def place_of(policy):
    decided = policy.decide(np.arange(3.0)[:, None])
    return int(np.flatnonzero((decided == POLICIES).all(axis=1))[0])


def logged(world, client, n_rows, rng):
    x = rng.choice(3, n_rows, p=world.contexts[client])
    chances = world.propensities[client, x]
    actions = (rng.random(n_rows) > chances[:, 0]).astype(int)
    drawn = (rng.random((n_rows, 1)) > world.outcomes[client].cumsum(axis=1)[x]).sum(axis=1)
    rewards = OUTCOMES[np.minimum(drawn, 3), actions]
    return LoggedData(x[:, None].astype(float), actions, rewards, chances, feature_names=("x",))


def learn(world, sizes, seed, mixture=None):
    rng = np.random.default_rng(seed)
    data = {name: logged(world, c, sizes[c], rng) for c, name in enumerate(NAMES)}
    study = Study(
        actions=data[NAMES[0]].action_names,
        features=("x",),
        policy=Tree(cuts={"x": (0.5, 1.5)}),
        mixture=mixture or Empirical(),
        evaluation=EvaluationPlan(share=0, describe=False),
    )
    doors = {
        name: Door(name, rows, study, limits=Limits.open(), secret=SEED_ALONE)
        for name, rows in data.items()
    }
    record = run_study(Conversation(study, InProcess(doors)))
    return Learned(
        world=world,
        rows=record.rows,
        weights=record.mixture,
        policy=place_of(record.policy),
        contexts=np.concatenate(
            [doors[name]._space.data.contexts[:, 0].astype(int) for name in NAMES]
        ),
        scores=np.vstack([doors[name]._space.scores for name in NAMES]),
        codes=np.repeat(np.arange(3), sizes),
        statistics=record.tree,
    )


@functools.cache
def draws():
    """80 worlds, clients near one another and far apart; n̄ and skewed mixtures."""
    found = []
    for seed in range(40):
        for spread in (0.2, 1.0):
            world = draw_world(seed, spread)
            drawn = dict(zip(NAMES, world.weights.tolist(), strict=True))
            found += [learn(world, SIZES, seed, mixture) for mixture in (None, given(drawn))]
    return found


# --- Theorem 1 -----------------------------------------------------------------------------------


def test_theorem_one_holds_with_the_proofs_constants_and_with_ones():
    """160 of 160 draws, for regrets and for the deviations that they come from; 95 % are asked for.

    With c₁ = c₂ = 1 the largest deviation is 0.98 of the bound, and 95 % are below 0.70 of it; of
    regrets, 95 % are below 0.17.
    """
    for constants in (PROOF, ONE):
        bounds = np.array([one.bound(constants) for one in draws()])
        for found in ("regret", "deviation"):
            truth = np.array([getattr(one, found) for one in draws()])
            assert np.mean(truth <= bounds) >= 1 - DELTA
    assert np.mean([one.regret > 0 for one in draws()]) > 0.3  # there is something to bound
    used = np.array([one.deviation / one.bound(ONE) for one in draws()])
    assert 0.6 < np.quantile(used, 1 - DELTA) < 0.8


def test_the_bound_is_as_tight_for_skewed_mixtures_as_for_others():
    """With constants of one, deviations are 0.34 of it in the median, for 𝔰 above 1.5 and below."""
    used = np.array([one.deviation / one.bound(ONE) for one in draws()])
    skewed_ones = np.array([one.skewness > 1.5 for one in draws()])
    medians = np.median(used[skewed_ones]), np.median(used[~skewed_ones])
    assert medians[0] == pytest.approx(medians[1], rel=0.2)


def test_the_oracle_bound_holds_and_is_tighter():
    """160 of 160 draws, with V_{λ,n} of the class and of the envelope, which are one here.

    It is 0.43 of Theorem 1 in the median. With constants of one as above, it covers 158 deviations.
    """
    tighter, by_ones = [], []
    for one in draws():
        variance = weighted_variance(one.scores, one.decisions, one.row_weights)
        assert variance == pytest.approx(envelope_variance(one.scores, one.row_weights))
        assert variance <= 4 * one.second_moment * one.skewness
        bound = oracle_regret_bound(KAPPA, variance, one.n_rows, DELTA)
        assert one.regret <= one.deviation <= bound <= one.bound(PROOF)
        tighter.append(bound / one.bound(PROOF))
        by_ones.append(
            one.deviation
            <= global_regret_bound(KAPPA, variance, 1, one.n_rows, DELTA, MODEST).total
        )
    assert np.median(tighter) < 0.5
    assert np.mean(by_ones) >= 1 - DELTA


@pytest.mark.slow_law
def test_regret_falls_with_rows_and_grows_with_skewness_at_least_as_the_theorem_says():
    """n^−0.86 (standard error 0.07) and 𝔰^0.75 (0.10), where all clients are alike.

    Theorem 1 says ½ for both at the slowest, and that only 𝔰/n matters: the exponents cancel.
    """
    alphas, sizes = (0.0, 0.5, 0.9), (320, 1280, 5120)
    found = np.zeros((80, len(sizes), len(alphas)))
    design = np.zeros((len(sizes), len(alphas), 3))
    for world in range(len(found)):
        for size, n_rows in enumerate(sizes):
            parts = (7 * n_rows // 10, 2 * n_rows // 10, n_rows // 10)
            one = learn(draw_world(world, 0.0), parts, world)
            for place, alpha in enumerate(alphas):
                skew = one.under(skewed("client 3", alpha).weights(one.rows))
                found[world, size, place] = skew.regret
                design[size, place] = (1, math.log(n_rows), math.log(skew.skewness))

    def exponents(worlds):
        means = np.log(found[worlds].mean(axis=0)).ravel()
        return np.linalg.lstsq(design.reshape(-1, 3), means, rcond=None)[0][1:]

    rng = np.random.default_rng(0)
    again = np.array([exponents(rng.integers(0, 80, 80)) for _ in range(200)])
    by_rows, by_skew = exponents(slice(None))
    row_error, skew_error = again.std(axis=0)
    assert by_rows + 2 * row_error < -0.5
    assert by_skew - 2 * skew_error > 0.5
    assert abs(by_rows + by_skew) < 3 * again.sum(axis=1).std()


def test_no_faster_rate_holds_in_every_world():
    """Two arms that differ by √(V·𝔰/n): regret stays the same share of it, for every n and λ.

    The share is 0.24 everywhere, within 10 %; without the factor √𝔰 it grows to 5 times that.
    """
    rng = np.random.default_rng(0)
    shares, without = [], []
    for n_rows in (100, 1000):
        rows = {"a": 9 * n_rows // 10, "b": n_rows // 10}
        codes = np.repeat([0, 1], list(rows.values()))
        for alpha in (0.0, 0.5, 1.0):
            weights = skewed("b", alpha).weights(rows)
            scale = 1 / math.sqrt(effective_sample_size(weights, rows))  # V = 1
            noise = rng.standard_normal((4000, n_rows)) @ row_weights(list(weights.values()), codes)
            regret = scale * np.mean(scale + math.sqrt(2) * noise < 0)
            shares.append(regret / math.sqrt(skewness(weights, rows) / n_rows))
            without.append(regret / math.sqrt(1 / n_rows))
    assert max(shares) < 1.1 * min(shares)
    assert max(without) > 3 * min(without)


def test_without_the_skewness_the_bound_is_false():
    """A client of 30 rows has nearly all weight, beside others of 6,000.

    Constants of one fail without 𝔰 in 13 of 40 draws, and with 𝔰 in none. If it has all weight,
    others' rows change nothing, however many: with 10⁹ the proof's constants fail in 25.
    """
    fails, fails_without, fails_in_the_end = [], [], []
    for seed in range(40):
        one = learn(draw_world(seed, 0.2), (30, 6000, 6000), seed)
        one = one.under({"client 1": 0.98, "client 2": 0.01, "client 3": 0.01})
        fails.append(one.regret > one.bound(ONE))
        fails_without.append(one.regret > one.bound(ONE, skew=1))
        alone = one.under({"client 1": 1.0, "client 2": 0.0, "client 3": 0.0})
        fails_in_the_end.append(alone.regret > alone.bound(PROOF, skew=1, n_rows=10**9))
    assert np.mean(fails) <= DELTA
    assert np.mean(fails_without) > 4 * DELTA
    assert np.mean(fails_in_the_end) > 4 * DELTA


def test_without_the_square_the_bound_is_false():
    """sup_π |E[Γ(π(X))]| for V, as two proofs print it, is of another unit than regret squared.

    So rewards counted in millionths break it with the proof's constants, in 56 of 160 draws. As
    they are, 76 deviations break it with constants of one.
    """
    unit, fails, fails_without, fails_by_ones = 1e6, [], [], []
    for one in draws():
        moment, printed = one.second_moment, np.abs(one.world.values).max()
        bound = one.bound(PROOF, moment=unit**2 * moment)
        assert bound == pytest.approx(unit * one.bound(PROOF))
        fails.append(unit * one.regret > bound)
        fails_without.append(unit * one.regret > one.bound(PROOF, moment=unit * printed))
        fails_by_ones.append(one.deviation > one.bound(ONE, moment=printed))
    assert not any(fails)
    assert np.mean(fails_without) > 4 * DELTA
    assert np.mean(fails_by_ones) > 4 * DELTA


# --- Theorem 2 -----------------------------------------------------------------------------------


@functools.cache
def local_bounds():
    """Of every client in every draw: its regret, its discrepancy, and the four bounds."""
    found = []
    for one in draws():
        world, lam, values = one.world, one.lam, one.world.values
        bounded = score_bound(1.0, float(world.propensities.min()))
        for c in range(3):
            tv, bare = (
                float(divergences.total_variation(law[c], lam @ law))
                for law in (world.joint, world.without_actions)
            )
            chi = float(divergences.chi_squared(world.joint[c], lam @ world.joint))
            gaps = values[c] - one.values
            gap = Discrepancy(above=gaps.max(), below=(-gaps).max())
            bounds = (
                discrepancy_local_regret_bound(one.regret, gap),
                outcome_local_regret_bound(one.regret, bare, 1.0),
                chi_squared_local_regret_bound(one.regret, chi, world.second_moment),
                local_regret_bound(one.regret, tv, bounded),
            )
            found.append((values[c].max() - values[c, one.policy], gap, bounds))
    return found


def test_theorem_two_holds_in_all_its_forms_and_the_discrepancy_is_the_tightest():
    """480 of 480 clients, by every form.

    The discrepancy is 0.04 of U·TV in the median, 0.11 of the χ² term and 0.25 of 4B·TV.
    """
    shifts = []
    for regret, _, bounds in local_bounds():
        assert all(regret <= bound.total + 1e-12 for bound in bounds)
        shifts.append([bound.shift for bound in bounds])
    tightest, by_outcomes, by_chi, printed = np.array(shifts).T
    for other in (by_outcomes, by_chi, printed):
        assert (tightest <= other + 1e-12).all()
    assert (by_outcomes <= printed + 1e-12).all()
    assert 0.02 < np.median(tightest / printed) < 0.08
    assert 0.05 < np.median(tightest / by_chi) < 0.2
    assert 0.15 < np.median(tightest / by_outcomes) < 0.4


def test_both_sides_of_the_discrepancy_are_needed():
    """One side alone is exceeded by every fifth client, the larger alone by 3 %, the sum by none.

    Some client's regret comes within a thousandth of the sum.
    """
    one_side, larger, used = [], [], []
    for regret, gap, (bound, *_) in local_bounds():
        excess = regret - bound.global_regret
        one_side.append((excess > gap.above + 1e-12, excess > gap.below + 1e-12))
        larger.append(excess > gap.largest + 1e-12)
        used.append(excess / gap.regret_gap)
    assert (np.mean(one_side, axis=0) > 0.1).all()
    assert np.mean(larger) > 0.01
    assert 0.99 < max(used) <= 1 + 1e-9
