import numpy as np
import pytest
from scipy.special import softmax
from test_door import ask, door_to, others_models, reason, study_of, thinned

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.messages.about_differences import (
    MOST_TARGETS,
    N_PARTS,
    ClassifierSums,
    ClassifyContexts,
    CompareModels,
    ModelShifts,
    TellModels,
)
from fedopl.messages.message import RowSplit
from fedopl.study.plans import NuisancePlan

WHOLE = N_PARTS
LOGISTIC = NuisancePlan(propensity="logistic")
FIELDS = ("propensities", "outcomes", "variances", "supported")
NEEDED = N_PARTS * Limits().minimum_cell  # rows of an action with models
DIVERGENCES = ("propensity_kl", "propensity_tv", "outcome_kl")


def diagnosed(**changes):
    return study_of(TellModels, **{"nuisances": LOGISTIC, **changes})


def weighted(draw, n_rows=300, **options):
    weights = np.random.default_rng(5).uniform(0.5, 2.0, n_rows)
    return draw(n_rows, weights=weights, confounded=True, **options)


def dealt_to_parts(data):
    """The part of each row as it was given."""
    space = door_to(data, diagnosed())._space
    parts = np.empty(data.n_rows, int)
    parts[space.study_rows.order] = parts_of(space)
    return parts


def parts_of(space):
    ((_, parts),) = space.study_rows.chunks_and_parts()
    return parts.of_row


def rows_without(door, part):
    """The training rows that a model is made from."""
    space = door._space
    return ~space.folds.held_out & (parts_of(space) != part)


def with_one(contexts):
    return np.column_stack([contexts, np.ones(len(contexts))])


# --- models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("part", [0, 3, WHOLE])
def test_outcome_models_are_least_squares_of_each_actions_rows(draw, part, is_weighted):
    data = weighted(draw) if is_weighted else draw(300)
    door = door_to(data, diagnosed())
    data = door._space.data
    told = ask(door, TellModels)
    weights = data.weights if is_weighted else np.ones(data.n_rows)
    for action in range(3):
        rows = rows_without(door, part) & (data.actions == action)
        root = np.sqrt(weights[rows])
        features, rewards = with_one(data.contexts[rows]), data.rewards[rows]
        expected, *_ = np.linalg.lstsq(features * root[:, None], rewards * root, rcond=None)
        np.testing.assert_allclose(told.outcomes[part, action], expected, rtol=1e-8)
        errors = (rewards - features @ expected) ** 2
        n_effective = weights[rows].sum() ** 2 / (weights[rows] ** 2).sum()
        variance = np.average(errors, weights=weights[rows]) * n_effective / (n_effective - 6)
        assert told.variances[part, action] == pytest.approx(variance)


@pytest.mark.parametrize("is_weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("n_actions", [2, 3])
def test_propensities_solve_the_equations_of_logistic_regression(draw, n_actions, is_weighted):
    make = weighted if is_weighted else lambda draw, **o: draw(300, confounded=True, **o)
    data = make(draw, n_actions=n_actions)
    study = diagnosed(actions=tuple(f"a{a}" for a in range(n_actions)))
    door = door_to(data, study)
    data = door._space.data
    told = ask(door, TellModels)
    for part in (1, WHOLE):
        rows = rows_without(door, part)
        contexts, parameters = data.contexts[rows], told.propensities[part]
        weights = data.weights[rows] if is_weighted else np.ones(int(rows.sum()))
        chances = softmax(with_one(contexts) @ parameters.T, axis=1)
        misses = weights[:, None] * (np.eye(n_actions)[data.actions[rows]] - chances)
        np.testing.assert_allclose(misses.sum(axis=0), 0, atol=1e-3)
        scale = contexts.std(axis=0)
        standardised = (contexts - contexts.mean(axis=0)) / scale
        slopes = parameters[:, :-1] * scale  # the penalty is ½ of their squares
        slopes = slopes - slopes[:1] if n_actions == 2 else slopes
        pulls = misses.T @ standardised
        np.testing.assert_allclose(pulls[1:], slopes[1:], atol=1e-3)


def test_marginal_propensities_are_shares(draw):
    data = draw(300)
    door = door_to(data, diagnosed(nuisances=NuisancePlan(propensity="marginal")))
    data = door._space.data
    told = ask(door, TellModels)
    assert not told.propensities[..., :-1].any()
    counts = np.bincount(data.actions[rows_without(door, 2)])
    shares = softmax(told.propensities[2, :, -1])
    np.testing.assert_allclose(shares, counts / counts.sum())


def test_known_propensities_change_no_model(draw):
    told = [ask(door_to(draw(300, known=known), diagnosed()), TellModels) for known in (0, 1)]
    for field in FIELDS:
        np.testing.assert_allclose(getattr(told[0], field), getattr(told[1], field), rtol=1e-9)


def test_a_model_without_a_part_does_not_depend_on_its_rewards(draw):
    data = draw(300)
    door = door_to(data, diagnosed())
    moved = data.rewards + 5.0 * (dealt_to_parts(data) == 2)
    other = fedopl.LoggedData(data.contexts, data.actions, moved, action_names=data.action_names)
    before, after = ask(door, TellModels), ask(door_to(other, diagnosed()), TellModels)
    np.testing.assert_allclose(before.outcomes[2], after.outcomes[2], rtol=1e-9, atol=1e-9)
    assert (np.abs(before.outcomes - after.outcomes).max(axis=(1, 2)) > 0.1).sum() == N_PARTS


@pytest.mark.parametrize("less", [0, 1])
def test_an_action_has_models_if_enough_rows_took_it(draw, less):
    data = thinned(draw(900), 2, NEEDED - less)
    door = door_to(data, diagnosed(evaluation=0.0), limits=Limits())
    told = ask(door, TellModels)
    assert told.supported.tolist() == [1, 1, 1 - less]
    assert (told.variances[:, 2] > 0).all() == (not less)
    assert told.outcomes[:, 2].any() == (not less)


@pytest.mark.parametrize("n_rare", [0, 1, 5, 20])
def test_how_many_took_a_rare_action_is_not_told(draw, n_rare):
    data = thinned(draw(900), 2, n_rare)
    door = door_to(data, diagnosed(evaluation=0.0), limits=Limits())
    told = ask(door, TellModels)
    assert told.supported.tolist() == [1, 1, 0]
    assert not told.propensities[:, 2, :-1].any()
    chances = softmax(with_one(data.contexts) @ told.propensities[WHOLE].T, axis=1)
    assert chances[:, 2].mean() == pytest.approx(2.5 / data.n_rows, rel=0.1)
    # Those who took it are in no model of how the others were chosen either.
    shares = chances[:, :2].sum(axis=0) / chances[:, :2].sum()
    expected = np.bincount(data.actions)[:2] / np.bincount(data.actions)[:2].sum()
    np.testing.assert_allclose(shares, expected, atol=2e-3)


def test_an_action_needs_rows_in_every_part(draw):
    data = draw(900)
    groups = np.where(data.actions == 2, 1000, np.arange(900))  # all in one part
    grouped = fedopl.LoggedData(
        data.contexts, data.actions, data.rewards, action_names=data.action_names, groups=groups
    )
    study = diagnosed(evaluation=0.0)
    for limits in (Limits(), Limits.open()):
        assert ask(door_to(grouped, study, limits=limits), TellModels).supported.tolist() == [
            1,
            1,
            0,
        ]


def test_rewards_that_do_not_vary_have_no_model(draw):
    data = draw(300)
    rewards = np.where(data.actions == 1, 3.0, data.rewards)
    constant = fedopl.LoggedData(
        data.contexts, data.actions, rewards, action_names=data.action_names
    )
    assert ask(door_to(constant, diagnosed()), TellModels).supported.tolist() == [1, 0, 1]


# --- comparisons ---------------------------------------------------------------------------------


def query_about(*answers):
    """The fields of a query about these clients' models."""
    return {name: np.stack([getattr(answer, name) for answer in answers]) for name in FIELDS}


def naive_divergences(data, rows, weights, own, theirs):
    """Mean KL of propensities and of rewards, one row and one action after the other."""
    kl = outcome = 0.0
    (e_c, m_c, v_c), (e_k, m_k, v_k) = own, theirs
    for row in np.flatnonzero(rows):
        x = np.append(data.contexts[row], 1.0)
        p, q = softmax(e_c @ x), softmax(e_k @ x)
        kl += weights[row] * sum(p[a] * np.log(p[a] / q[a]) for a in range(3))
        for a in range(3):
            gap = (m_c[a] - m_k[a]) @ x
            spread = v_c[a] / v_k[a] - 1 - np.log(v_c[a] / v_k[a])
            outcome += weights[row] * (spread + gap**2 / v_k[a]) / 2
    return np.array([kl, outcome]) / weights[rows].sum()


@pytest.mark.parametrize("is_weighted", [False, True], ids=["plain", "weighted"])
def test_divergences_are_means_over_training_rows_less_what_parts_tell_of_noise(draw, is_weighted):
    data = weighted(draw) if is_weighted else draw(300)
    weights = data.weights if is_weighted else np.ones(300)
    door = door_to(data, diagnosed())
    other = ask(door_to(draw(250, seed=3, confounded=True), diagnosed()), TellModels)
    own = ask(door, TellModels)
    told = ask(door, CompareModels, **query_about(other))
    ours, theirs = (
        [(m.propensities[r], m.outcomes[r], m.variances[r]) for r in range(N_PARTS + 1)]
        for m in (own, other)
    )
    data, training = door._space.data, ~door._space.folds.held_out
    weights = np.ones(data.n_rows) if data.weights is None else data.weights
    whole = naive_divergences(data, training, weights, ours[WHOLE], theirs[WHOLE])
    less_ours = [
        naive_divergences(data, rows_without(door, r), weights, ours[r], theirs[WHOLE])
        for r in range(N_PARTS)
    ]
    less_theirs = [
        naive_divergences(data, training, weights, ours[WHOLE], theirs[r]) for r in range(N_PARTS)
    ]
    noise = 4 * (np.mean(less_ours, axis=0) + np.mean(less_theirs, axis=0) - 2 * whole)
    variance = 4 * (np.var(less_ours, axis=0) + np.var(less_theirs, axis=0))
    for place, name in enumerate(("propensity_kl", "outcome_kl")):
        assert getattr(told, name)[0] == pytest.approx((whole - noise)[place])
        assert getattr(told, f"{name}_noise")[0] == pytest.approx(noise[place])
        assert getattr(told, f"{name}_variance")[0] == pytest.approx(variance[place])


def test_each_client_is_compared_by_itself(draw):
    door = door_to(draw(300), diagnosed())
    others = [ask(door_to(draw(250, seed=s), diagnosed()), TellModels) for s in (1, 2, 3)]
    together = ask(door, CompareModels, **query_about(*others))
    for place, other in enumerate(others):
        alone = ask(door_to(draw(300), diagnosed()), CompareModels, **query_about(other))
        for name in DIVERGENCES:
            assert getattr(alone, name)[0] == pytest.approx(getattr(together, name)[place])


def test_only_actions_that_both_have_models_of_are_compared_in_rewards(draw):
    door = door_to(draw(300), diagnosed())
    others = others_models(door.study, n_clients=2)
    others["supported"][1, 2] = others["supported"][0] = 0
    told = ask(door, CompareModels, **others)
    assert told.outcome_kl[0] == told.outcome_kl_variance[0] == 0
    changed = {**others, "outcomes": others["outcomes"].copy()}
    changed["outcomes"][1, :, 2] = 7.0
    door = door_to(draw(300), diagnosed())
    assert ask(door, CompareModels, **changed).outcome_kl[1] == pytest.approx(told.outcome_kl[1])


@pytest.mark.parametrize("field", FIELDS)
def test_models_of_different_numbers_of_clients_are_malformed(draw, field):
    door = door_to(draw(300), diagnosed())
    others = others_models(door.study, n_clients=2)
    others[field] = others[field][:1]
    assert reason(ask(door, CompareModels, **others)) == "MALFORMED"


def test_models_without_a_variance_are_malformed(draw):
    door = door_to(draw(300), diagnosed())
    others = others_models(door.study, variance=0.0)
    assert reason(ask(door, CompareModels, **others)) == "MALFORMED"
    others["supported"][:] = 0
    assert isinstance(ask(door, CompareModels, **others), ModelShifts)


# --- contexts ------------------------------------------------------------------------------------


def classified(door, *parameters, split=RowSplit.TRAINING, **changes):
    """What is told of the classifiers with these parameters."""
    fields = {"parameters": np.array(parameters, float), "split": split}
    return ask(door, ClassifyContexts, **fields, **changes)


SOME = np.array([0.3, -0.2, 0.1, 0.0, 0.5, -0.4])


@pytest.mark.parametrize("is_weighted", [False, True], ids=["plain", "weighted"])
def test_loss_pulls_and_hessian_are_those_of_a_loop_over_training_rows(draw, is_weighted):
    data = weighted(draw) if is_weighted else draw(300)
    door = door_to(data, diagnosed())
    data = door._space.data
    told = classified(door, SOME, np.zeros(6))
    weights = data.weights if is_weighted else np.ones(300)
    loss, pulls, hessian, mean, total = 0.0, np.zeros(6), np.zeros((6, 6)), np.zeros(6), 0.0
    for row in range(door._space.n_training):
        x = np.append(data.contexts[row], 1.0)
        chance = 1 / (1 + np.exp(-SOME @ x))
        loss -= weights[row] * np.log(1 - chance)
        pulls += weights[row] * chance * x
        hessian += weights[row] * chance * (1 - chance) * np.outer(x, x)
        mean += weights[row] * x
        total += weights[row]
    np.testing.assert_allclose(told.loss, [loss / total, np.log(2)])
    np.testing.assert_allclose(told.pulls, [pulls / total, mean / total / 2])
    np.testing.assert_allclose(told.hessian[0], hessian / total)
    assert not told.target_share.any()
    assert not told.target_share_variance.any()


def test_shares_are_of_rows_set_apart(draw):
    data = weighted(draw)
    door = door_to(data, diagnosed())
    told = classified(door, [1.0, 0, 0, 0, 0, -0.3], np.zeros(6), split=RowSplit.EVALUATION)
    apart = door._space.study_rows.folds_as_given.held_out
    weights = data.weights[apart] / data.weights[apart].sum()
    beyond = data.contexts[apart, 0] > 0.3
    share = weights @ beyond
    np.testing.assert_allclose(told.target_share, [share, 0.0])
    n_rows = apart.sum()
    variance = n_rows / (n_rows - 1) * (weights**2 @ (beyond - share) ** 2)
    np.testing.assert_allclose(told.target_share_variance, [variance, 0.0])
    for field in ("loss", "pulls", "hessian"):
        assert not getattr(told, field).any()


@pytest.mark.parametrize("split", [RowSplit.FITTING, RowSplit.VALIDATION], ids=lambda s: s.name)
def test_other_rows_are_malformed(draw, split):
    assert reason(classified(door_to(draw(300), diagnosed()), SOME, split=split)) == "MALFORMED"


def test_there_is_a_target_and_there_are_not_too_many(draw):
    door = door_to(draw(300), diagnosed())
    assert isinstance(classified(door, *np.zeros((MOST_TARGETS, 6))), ClassifierSums)
    for n_targets in (0, MOST_TARGETS + 1):
        told = ask(door, ClassifyContexts, parameters=np.zeros((n_targets, 6)))
        assert reason(told) == "MALFORMED"


def test_without_rows_set_apart_there_is_no_share(draw):
    door = door_to(draw(300), diagnosed(evaluation=0.0))
    assert reason(classified(door, np.zeros(6), split=RowSplit.EVALUATION)) == "ONLY_LEARNS"


def test_a_group_is_in_one_part_so_that_errors_allow_for_it(draw):
    data, groups = draw(600), np.arange(600) // 4
    grouped = fedopl.LoggedData(
        data.contexts, data.actions, data.rewards, action_names=data.action_names, groups=groups
    )
    parts = dealt_to_parts(grouped).reshape(-1, 4)
    assert (parts == parts[:, :1]).all()
    assert len(np.unique(parts)) == N_PARTS + 1  # and the rows set apart
