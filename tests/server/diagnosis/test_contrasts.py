"""Policies for signed weights, and the discrepancy they show."""

from dataclasses import replace

import numpy as np
import pytest
from small_worlds import action_missing, alike_world, confounded, outcome_shift

from fedopl.base.errors import FederationError, OptionError
from fedopl.messages.evaluation.policy_values import Values
from fedopl.messages.message import RowSplit as Rows
from fedopl.policies.linear import NEVER
from fedopl.results.sums.any_mixture import contrast_with_mixture, negative
from fedopl.server.aggregate.evaluation import signed_estimate
from fedopl.server.diagnosis.diagnose import measure_discrepancies
from fedopl.server.mixtures.value_queries import ValueQueries
from fedopl.study.policy_plans import Linear, Tree

SIGNED = {"client 1": 0.8, "client 2": -0.5, "client 3": -0.3}
SIZES = (300, 200, 120)
CUTS = {f"x{n}": (-0.6, 0.0, 0.7) for n in (1, 2, 3)}


def brute_force_linear(joined, signed, columns=None):
    """Weighted least squares of sign(s)·Γ on everybody's rows, one action after the other."""
    parts = [(*joined.rows(name), sign) for name, sign in signed.items()]
    design = np.vstack([np.column_stack([x, np.ones(len(x))]) for x, _, _, _ in parts])
    targets = np.vstack([np.sign(sign) * scores for _, scores, _, sign in parts])
    weights = np.concatenate([abs(sign) * shares for _, _, shares, sign in parts])
    found = np.zeros((targets.shape[1], design.shape[1]))
    for action, target in enumerate(targets.T):
        known = np.isfinite(target)
        own = np.arange(design.shape[1]) if columns is None else columns[action]
        root = np.sqrt(weights[known])
        fitted = np.linalg.lstsq(design[known][:, own] * root[:, None], target[known] * root)[0]
        found[action, own] = fitted
    return found


@pytest.mark.parametrize(
    "options", [{}, {"policy": Linear(precision="clients")}, {"nuisances": {"kind": "local"}}]
)
def test_a_signed_policy_is_least_squares_with_signed_targets_on_pooled_rows(join, options):
    joined = join(outcome_shift(alike_world()), SIZES, **options)
    found = joined.statistics.solve_contrast(SIGNED)
    expected = brute_force_linear(joined, SIGNED)
    np.testing.assert_allclose(found.parameters, expected, rtol=1e-9, atol=1e-9)


def test_row_weights_and_blocks_are_as_in_learning(join, draw):
    data = {
        name: draw(
            size, seed=n, n_features=6, weights=np.random.default_rng(n).uniform(0.5, 2, size)
        )
        for n, (name, size) in enumerate(zip(SIGNED, SIZES, strict=True))
    }
    joined = join(data)
    expected = brute_force_linear(joined, SIGNED)
    found = joined.statistics.solve_contrast(SIGNED)
    np.testing.assert_allclose(found.parameters, expected, rtol=1e-9, atol=1e-9)
    joined = join(data, policy=Linear(features="blocks"))
    blocks = [np.arange(2 * action, 2 * action + 2) for action in range(3)]
    expected = brute_force_linear(joined, SIGNED, blocks)
    found = joined.statistics.solve_contrast(SIGNED)
    np.testing.assert_allclose(found.parameters, expected, rtol=1e-9, atol=1e-9)


def masked(join, **options):
    world = action_missing(outcome_shift(alike_world(n_features=3)), "client 2", "a1")
    return join(world, SIZES, nuisances={"kind": "local", "unseen": "mask"}, **options)


def test_an_action_that_somebody_has_no_score_for_is_never_taken(join):
    joined = masked(join)
    found = joined.statistics.solve_contrast(SIGNED)
    assert found.parameters[0, -1] == NEVER
    expected = brute_force_linear(joined, SIGNED)
    np.testing.assert_allclose(found.parameters[1:], expected[1:], rtol=1e-9, atol=1e-9)
    # Between the two others there is a contrast of all actions.
    among = {"client 1": 1.0, "client 3": -1.0}
    found = joined.statistics.solve_contrast(among)
    expected = brute_force_linear(joined, among)
    np.testing.assert_allclose(found.parameters, expected, rtol=1e-9, atol=1e-9)


def test_positive_weights_are_ordinary_learning(join):
    joined = join(outcome_shift(alike_world()), SIZES, policy=Linear(precision="rows"))
    learned = joined.statistics.solve_contrast(joined.weights)
    np.testing.assert_allclose(learned.parameters, joined.record.policy.parameters, rtol=1e-9)


def best_contrast(joined, signed, actions):
    """The largest Σ s_c·Q̂_c(π) of any tree: for each first question, the best of both answers."""
    grid = joined.statistics.grid
    x = np.vstack([joined.rows(name)[0] for name in signed])
    parts = [(*joined.rows(name)[1:], sign) for name, sign in signed.items()]
    gains = np.vstack([sign * shares[:, None] * scores for scores, shares, sign in parts])
    splits = [x[:, column] <= cut for column, cuts in enumerate(grid.cuts) for cut in cuts]

    def leaf(rows):
        return max(gains[rows, action].sum() for action in actions)

    def half(rows):
        return max(leaf(rows), *(leaf(rows & yes) + leaf(rows & ~yes) for yes in splits))

    everybody = np.ones(len(x), bool)
    return max(leaf(everybody), *(half(yes) + half(~yes) for yes in splits))


@pytest.mark.parametrize("sign", [1, -1])
def test_a_signed_tree_is_the_best_of_all_trees(join, sign):
    world = outcome_shift(alike_world(n_features=3), 1.0)
    joined = join(world, SIZES, policy=Tree(cuts=CUTS, split_cost=10.0))
    signed = {name: sign * weight for name, weight in SIGNED.items()}
    found = joined.statistics.solve_contrast(signed)
    value = sum(weight * joined.value(name, found) for name, weight in signed.items())
    assert value == pytest.approx(best_contrast(joined, signed, range(3)), abs=1e-9)
    assert found.depth == 2


def test_a_signed_tree_keeps_to_actions_that_everybody_has_scores_for(join):
    joined = masked(join, policy=Tree(cuts=CUTS))
    found = joined.statistics.solve_contrast(SIGNED)
    assert not any(leaf.action == 0 for leaf in found.leaves())
    value = sum(weight * joined.value(name, found) for name, weight in SIGNED.items())
    assert value == pytest.approx(best_contrast(joined, SIGNED, [1, 2]), abs=1e-9)


def test_signed_trees_where_clients_lack_different_actions(join):
    world = outcome_shift(alike_world(n_features=3, n_actions=4), 1.0)
    world = action_missing(action_missing(world, "client 2", "a1"), "client 1", "a2")
    nuisances = {"kind": "local", "unseen": "mask"}
    for options in ({}, {"policy": Tree(cuts=CUTS)}):
        joined = join(world, SIZES, nuisances=nuisances, **options)
        for signed in (SIGNED, {name: -sign for name, sign in SIGNED.items()}):
            found = joined.statistics.solve_contrast(signed)
            assert set(found.decide(joined.rows("client 3")[0])) <= {2, 3}
            if options:
                value = sum(sign * joined.value(name, found) for name, sign in signed.items())
                assert value == pytest.approx(best_contrast(joined, signed, [2, 3]), abs=1e-9)
    world = action_missing(action_missing(world, "client 2", "a3"), "client 1", "a4")
    with pytest.raises(FederationError, match="no action has scores of all"):
        join(world, SIZES, nuisances=nuisances).statistics.solve_contrast(SIGNED)


def test_a_deeper_study_still_has_contrasts_of_depth_two(join):
    world = outcome_shift(alike_world(n_features=3), 1.0)
    joined = join(world, SIZES, policy=Tree(cuts=CUTS, depth=3))
    found = joined.statistics.solve_contrast(SIGNED)
    value = sum(weight * joined.value(name, found) for name, weight in SIGNED.items())
    assert value == pytest.approx(best_contrast(joined, SIGNED, range(3)), abs=1e-9)


def test_contrasts_of_nobody_and_of_strangers_are_refused(join):
    joined = join(alike_world(), SIZES)
    with pytest.raises(OptionError, match="not 0"):
        joined.statistics.solve_contrast({"client 1": 0.0})
    with pytest.raises(OptionError, match="client 9"):
        joined.statistics.solve_contrast({"client 9": 1.0})
    with pytest.raises(OptionError, match="client 9"):
        contrast_with_mixture(joined.weights, "client 9")


# --- estimates -----------------------------------------------------------------------------------


def told(means, variances, freedom):
    return Values(
        n_rows=freedom + 1,
        of_rows=freedom + 1,
        degrees_of_freedom=freedom,
        means=np.array(means),
        covariances=np.diag(variances),
    )


def test_a_signed_estimate_adds_up_with_signs_and_squares():
    answers = {"a": told([1.0, 2.0], [0.04, 0.09], 9), "b": told([5.0, 3.0], [0.01, 0.16], 24)}
    found = signed_estimate(answers, {"a": 1.0, "b": -0.5}, np.array([0.0, 1.0]))
    assert found.value == pytest.approx(2.0 - 1.5)
    assert found.standard_error == pytest.approx(np.sqrt(0.09 + 0.25 * 0.16))
    assert found.n_rows == 35
    assert found.degrees_of_freedom == int(0.13**2 / (0.09**2 / 9 + 0.04**2 / 24))


def test_a_client_of_one_row_leaves_no_freedom_and_one_that_is_silent_is_an_error():
    answers = {"a": told([1.0], [0.04], 9), "b": told([5.0], [0.0], 0)}
    found = signed_estimate(answers, {"a": 1.0, "b": -1.0}, np.ones(1))
    assert found.interval() == (-np.inf, np.inf)
    assert np.isfinite(signed_estimate(answers, {"a": 1.0, "b": 0.0}, np.ones(1)).interval()).all()
    with pytest.raises(FederationError, match="'c'"):
        signed_estimate(answers, {"c": 1.0}, np.ones(1))


def test_estimates_are_those_of_the_rows_themselves(join):
    joined = join(outcome_shift(alike_world()), SIZES)
    signed = contrast_with_mixture(joined.weights, "client 2")
    policies = [joined.statistics.solve_contrast(signed), joined.record.policy]
    ((first, second),) = ValueQueries(joined.ask(), joined.most).value([policies])
    value = variance = gain = gain_variance = 0.0
    for name, sign in signed.items():
        x, scores, _ = joined.rows(name, Rows.EVALUATION)
        chosen = [scores[np.arange(len(x)), policy.decide(x)] for policy in policies]
        value += sign * chosen[0].mean()
        variance += sign**2 * chosen[0].var(ddof=1) / len(x)
        gain += sign * (chosen[0] - chosen[1]).mean()
        gain_variance += sign**2 * (chosen[0] - chosen[1]).var(ddof=1) / len(x)
    assert first.value(signed).value == pytest.approx(value)
    assert first.value(signed).standard_error == pytest.approx(np.sqrt(variance))
    assert first.gain(signed, second.place).value == pytest.approx(gain)
    assert first.gain(signed, second.place).standard_error == pytest.approx(np.sqrt(gain_variance))


@pytest.mark.parametrize(("most", "n_queries"), [(2, 3), (3, 3), (4, 2), (6, 1)])
def test_groups_stay_together_and_batches_keep_to_their_size(join, most, n_queries):
    joined = join(outcome_shift(alike_world()), SIZES)
    contrasts = [contrast_with_mixture(joined.weights, name) for name in joined.doors]
    pairs = [
        [joined.statistics.solve_contrast(s), joined.statistics.solve_contrast(joined.weights)]
        for s in contrasts
    ]
    sizes = []

    def ask(policies):
        sizes.append(len(policies))
        return joined.ask()(policies) if len(policies) <= joined.most else wide(policies)

    def wide(policies):
        parts = [joined.ask()(policies[:3]), joined.ask()(policies[3:])]
        means = {n: np.append(parts[0][n].means[:3], parts[1][n].means) for n in parts[0]}
        return {n: told(m, np.ones(len(m)), 9) for n, m in means.items()}

    valued = ValueQueries(ask, most).value([*pairs, pairs[0]])
    assert len(sizes) == n_queries
    assert max(sizes) <= most
    for pair, found in zip(pairs, valued, strict=False):
        for policy, one in zip(pair, found, strict=True):
            expected = joined.value("client 1", policy, Rows.EVALUATION)
            assert one.value({"client 1": 1.0}).value == pytest.approx(expected)
    with pytest.raises(OptionError, match="valued in one query of"):
        ValueQueries(ask, 1).value(pairs)


# --- the discrepancy -----------------------------------------------------------------------------


def true_suprema(world, weights, client):
    """sup over all policies of Q_c − Q_λ and of Q_λ − Q_c, where contexts do not differ."""
    x = world.contexts(client, 20_000, np.random.default_rng(1))
    mixed = sum(weights[name] * world.mean_rewards(name, x) for name in weights)
    gaps = world.mean_rewards(client, x) - mixed
    return gaps.max(axis=1).mean(), (-gaps).max(axis=1).mean()


def test_discrepancies_are_true_of_their_policies_and_below_the_supremum(join):
    errors, shares = [], []
    for draw in range(12):
        world = outcome_shift(confounded(alike_world(seed=draw), known_propensities=True), 0.5)
        joined = join(world, (800, 600, 400), draw)
        found = measure_discrepancies(
            joined.statistics, joined.weights, ValueQueries(joined.ask(), joined.most)
        )
        assert sorted(found) == sorted(world.clients)
        for client, one in found.items():
            signed = contrast_with_mixture(joined.weights, client)
            tops = true_suprema(world, joined.weights, client)
            for estimate, sign, top in zip((one.above, one.below), (1, -1), tops, strict=True):
                contrast = signed if sign > 0 else negative(signed)
                policy = joined.statistics.solve_contrast(contrast)
                true = sign * sum(signed[n] * world.value(policy, n) for n in signed)
                assert true <= top + 0.05
                errors.append((estimate.value - true) / estimate.standard_error)
                shares.append(true / top)
            assert one.gap.value == pytest.approx(one.above.value + one.below.value)
            assert one.regret_gap == max(one.gap.value, 0)
    assert np.mean(np.abs(errors) < 3) >= 0.97
    assert np.std(errors) == pytest.approx(1, abs=0.25)
    assert np.mean(shares) > 0.8  # so that the bound is worth something


def test_higher_rewards_whatever_is_done_are_no_discrepancy_of_policies(join):
    world = alike_world()
    first = world.truths["client 1"]
    richer = first.slopes + np.append(np.zeros(4), 5.0)
    world = replace(world, truths={**world.truths, "client 1": replace(first, slopes=richer)})
    joined = join(world, (900, 900, 900))
    found = measure_discrepancies(joined.statistics, joined.weights, ValueQueries(joined.ask(), 5))
    one = found["client 1"]
    assert one.above.value == pytest.approx(5 * 2 / 3, abs=4 * one.above.standard_error)
    assert one.below.value == pytest.approx(-5 * 2 / 3, abs=4 * one.below.standard_error)
    assert not one.is_sure
    assert 0 <= one.regret_gap <= 3 * one.gap.standard_error


def test_nothing_is_claimed_where_the_held_out_rows_say_the_contrary(join):
    joined = join(outcome_shift(alike_world(), 1.0), SIZES)
    found = measure_discrepancies(joined.statistics, joined.weights, ValueQueries(joined.ask(), 5))
    for one in found.values():
        wrong = replace(
            one,
            above=replace(one.below, value=-abs(one.below.value)),
            below=replace(one.above, value=-abs(one.above.value)),
            gap=replace(one.gap, value=-abs(one.gap.value)),
        )
        assert wrong.regret_gap == 0
        assert not wrong.is_sure


def test_trees_show_discrepancies_too_and_who_is_all_of_the_mixture_has_none(join):
    world = outcome_shift(alike_world(n_features=3), 1.0)
    joined = join(world, (900, 700, 500), policy=Tree(cuts=CUTS))
    found = measure_discrepancies(joined.statistics, joined.weights, ValueQueries(joined.ask(), 5))
    assert all(one.is_sure for one in found.values())
    alone = {"client 1": 1.0, "client 2": 0.0, "client 3": 0.0}
    found = measure_discrepancies(joined.statistics, alone, ValueQueries(joined.ask(), 5))
    assert sorted(found) == ["client 2", "client 3"]
