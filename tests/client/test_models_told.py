import numpy as np
import pytest
from scipy.special import softmax
from test_door import ask, door_to, others_models, reason, study_of, thinned

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.messages.diagnosis.classifier_sums import MOST_TARGETS, ClassifierSums, ClassifyContexts
from fedopl.messages.diagnosis.client_models import N_PARTS, Models, TellModels
from fedopl.messages.diagnosis.model_shifts import CompareModels, ModelShifts
from fedopl.messages.learning.enrolment import Enrol
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import Refusal
from fedopl.study.plans import NuisancePlan

WHOLE = N_PARTS
LOGISTIC = NuisancePlan(propensity="logistic")
FIELDS = ("propensities", "outcomes", "variances", "supported")
NUMBERS = 6 * (N_PARTS + 1)  # told of each action's rewards: five features, six times
NEEDED = Limits().rows_needed(NUMBERS)
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
        np.testing.assert_array_equal(getattr(told[0], field), getattr(told[1], field))


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
    assert chances[:, 2].mean() == pytest.approx(NEEDED / 2 / data.n_rows, rel=0.1)
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


def test_a_feature_that_one_row_of_an_action_has_is_in_no_model(draw):
    data = draw(900)
    contexts = data.contexts.copy()
    contexts[:, 0] = data.actions == 0  # and below, one row that took another action
    contexts[np.flatnonzero(data.actions == 1)[0], 0] = 1.0
    rare = fedopl.LoggedData(contexts, data.actions, data.rewards, action_names=data.action_names)
    study = diagnosed(evaluation=0.0, nuisances=NuisancePlan(propensity="marginal"))
    careless, careful = (
        ask(door_to(rare, study, limits=limits), TellModels) for limits in (Limits.open(), Limits())
    )
    assert careless.outcomes[WHOLE, 1, 0]
    assert not careful.outcomes[:, 1, 0].any()


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
        alone = ask(door, CompareModels, exchange=place, **query_about(other))
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
    assert ask(door, CompareModels, **changed).outcome_kl[1] == pytest.approx(told.outcome_kl[1])


@pytest.mark.parametrize("more", [0, 1])
def test_no_more_clients_are_compared_than_the_rows_allow(draw, more):
    door = door_to(draw(900), diagnosed(), limits=Limits(parameter_share=0.5))
    n_clients = int(0.5 * ask(door, Enrol).n_rows) // 3  # three numbers for each
    told = ask(door, CompareModels, **others_models(door.study, n_clients + more))
    if more:
        assert reason(told) == "TOO_MANY_PARAMETERS"
    else:
        assert len(told.compared) == n_clients


def jumping(door, slope):
    """Propensities that jump, the steeper the slope, at the largest x0 but one."""
    x0 = np.sort(door._space.data.contexts[door._space.training, 0])
    others = others_models(door.study)
    others["propensities"][..., 0, 0] = slope
    others["propensities"][..., 0, -1] = -slope * x0[-2:].mean()
    return others


@pytest.mark.parametrize("slope", [5.0, 1e4])
def test_propensities_that_jump_are_not_compared_for_they_count_rows(draw, slope):
    for limits in (Limits.open(), Limits()):
        door = door_to(draw(900), diagnosed(), limits=limits)
        told = ask(door, CompareModels, **jumping(door, slope))
        hidden = slope > 100 and limits == Limits()
        assert told.compared.tolist() == [not hidden]
        assert all(getattr(told, name).any() != hidden for name in DIVERGENCES)


def test_a_comparison_that_rests_on_one_row_is_left_out(draw):
    data = draw(900)
    contexts = data.contexts.copy()
    contexts[7, 0] = 1e6  # whatever differs in this feature differs most here
    outlying = fedopl.LoggedData(
        contexts, data.actions, data.rewards, action_names=["a0", "a1", "a2"]
    )
    marginal = NuisancePlan(propensity="marginal")
    # Without the dominance rule, by which nothing is told of such rows.
    for limits in (Limits.open(), Limits(model_queries=2, dominance=1)):
        door = door_to(outlying, diagnosed(evaluation=0.0, nuisances=marginal), limits=limits)
        others = query_about(ask(door, TellModels))
        for slope, hidden in ((0.0, False), (1.0, limits.minimum_cell > 0)):
            others["outcomes"] = others["outcomes"].copy()
            others["outcomes"][..., 0] += slope
            told = ask(door, CompareModels, **others)
            assert told.compared.tolist() == [not hidden]
            assert told.outcome_kl.any() != hidden
    guarded = door_to(outlying, diagnosed(evaluation=0.0, nuisances=marginal), limits=Limits())
    assert reason(ask(guarded, TellModels)) == "DOMINATED"


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


def test_models_are_told_once_and_compared_once(draw):
    door = door_to(draw(900), diagnosed(), limits=Limits())
    assert isinstance(ask(door, TellModels, exchange=1), Models)
    assert isinstance(ask(door, TellModels, exchange=1), Models)
    assert reason(ask(door, TellModels, exchange=2)) == "BUDGET_SPENT"
    assert isinstance(ask(door, CompareModels, exchange=2), ModelShifts)
    changed = others_models(door.study, variance=2.0)
    assert reason(ask(door, CompareModels, exchange=3, **changed)) == "BUDGET_SPENT"


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
    assert told.released.tolist() == [1, 1]
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
    assert told.released.tolist() == [1, 1]
    for field in ("loss", "pulls", "hessian"):
        assert not getattr(told, field).any()


def test_a_share_has_noise_and_its_variance_follows_from_it(draw):
    data = draw(400)
    door = door_to(data, diagnosed(), limits=Limits())
    contexts = door._space.data.contexts[door._space.folds.held_out]
    errors, by_share = [], {}
    for turn in range(40):  # a door each, as shares are released once
        door = door_to(data, diagnosed(), limits=Limits())
        angles = (turn + np.arange(10) / 10) / 20
        every = [[np.cos(angle), np.sin(angle), 0, 0, 0, angle - 1] for angle in angles]
        told = classified(door, *every, split=RowSplit.EVALUATION)
        for place, parameters in enumerate(np.array(every)):
            count = told.target_share[place] * len(contexts)
            assert count == pytest.approx(round(count), abs=1e-9)
            exact = int((contexts @ parameters[:-1] + parameters[-1] > 0).sum())
            errors.append(count - exact)
            by_share.setdefault(told.target_share[place], set()).add(
                told.target_share_variance[place]
            )
    # Two-sided geometric of scale 5/2, so the standard deviation is 3.5.
    assert np.std(errors) == pytest.approx(3.5, rel=0.2)
    assert abs(np.mean(errors)) < 4 * 3.5 / np.sqrt(len(errors))
    assert all(len(variances) == 1 for variances in by_share.values())
    for share, (variance,) in by_share.items():
        assert variance > share * (1 - share) / len(contexts) + 12 / len(contexts) ** 2


def test_shares_are_released_of_the_classifiers_that_were_asked_about_first(draw):
    # Over many of them the noise would be averaged out.
    door = door_to(draw(400), diagnosed(), limits=Limits())
    first = classified(door, [1.0, 0, 0, 0, 0, 0], split=RowSplit.EVALUATION)
    again = classified(door, [1.0, 0, 0, 0, 0, 0], split=RowSplit.EVALUATION)
    assert again.target_share == first.target_share
    other = classified(door, [2.0, 0, 0, 0, 0, 0], split=RowSplit.EVALUATION)
    assert other.reason.name == "BUDGET_SPENT"


def steep_classifier(door):
    """Undecided about one training row, and sure of all others."""
    x0 = door._space.data.contexts[door._space.training, 0]
    return 1e6 * np.array([1.0, 0, 0, 0, 0, -x0[0]])


def test_sums_of_a_steep_classifier_would_tell_a_row_and_are_left_out(draw):
    careless, careful = (
        door_to(draw(300), diagnosed(), limits=limits) for limits in (Limits.open(), Limits())
    )
    told = classified(careless, steep_classifier(careless)).hessian[0]
    row = careless._space.data.contexts[careless._space.training][0]
    np.testing.assert_allclose(told[-1, :-1] / told[-1, -1], row)
    # Nearly all, or nearly none, are taken for the target's: the slope is that of the few others.
    nearly_all, nearly_none = [8.0, 0, 0, 0, 0, 20.0], [8.0, 0, 0, 0, 0, -20.0]
    gentle = [1.0, 0, 0, 0, 0, 0]
    told = classified(careful, steep_classifier(careful), nearly_all, nearly_none, gentle)
    assert told.released.tolist() == [0, 0, 0, 1]
    for field in ("loss", "pulls", "hessian"):
        assert [of_one.any() for of_one in getattr(told, field)] == [False] * 3 + [True]


def with_outliers(data, n_outliers):
    """The data, in which the first feature is 0 in all training rows but so many."""
    contexts = data.contexts.copy()
    contexts[:, 0] = 0.0
    apart = door_to(data, diagnosed())._space.study_rows.folds_as_given.held_out
    contexts[np.flatnonzero(~apart)[:n_outliers], 0] = 1.0
    return fedopl.LoggedData(contexts, data.actions, data.rewards, action_names=data.action_names)


@pytest.mark.parametrize("n_outliers", [6, 14])
@pytest.mark.parametrize("sign", [1, -1], ids=["not pulled", "pulled"])
def test_a_few_rows_that_alone_are_pulled_or_are_not_are_not_told(draw, sign, n_outliers):
    # Curvature is about the same in all rows. By the mean context the rest of the pulls is told.
    door = door_to(with_outliers(draw(900), n_outliers), diagnosed(), limits=Limits())
    told = classified(door, sign * np.array([-14.0, 0, 0, 0, 0, 7.0]))
    assert told.released.tolist() == [n_outliers > 12]


@pytest.mark.parametrize("more", [0, 1])
def test_rows_needed_grow_with_the_targets(draw, more):
    study = diagnosed(evaluation=0.25)
    n_rows = door_to(draw(300), study)._space.n_training
    share = 3 * 6 / (n_rows + more - 0.5)  # three targets need as many rows, or one more
    for n_targets in (2, 3):
        door = door_to(draw(300), study, limits=Limits(parameter_share=share))
        for split in (RowSplit.TRAINING, RowSplit.EVALUATION):
            told = classified(door, *np.zeros((n_targets, 6)), split=split)
            if n_targets == 3 and more:
                assert reason(told) == "TOO_MANY_PARAMETERS"
            else:
                assert told.released.tolist() == [1] * n_targets


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
    assert reason(classified(door, np.zeros(6), split=RowSplit.EVALUATION)) == "NOTHING_TO_SAY"


@pytest.mark.parametrize("more", [0, 1])
def test_shares_of_few_rows_are_not_told(draw, more):
    study = diagnosed(evaluation=0.05)
    n_apart = int(door_to(draw(300), study)._space.folds.held_out.sum())
    door = door_to(draw(300), study, limits=Limits(minimum_cell=n_apart + more))
    told = classified(door, np.zeros(6), split=RowSplit.EVALUATION)
    assert isinstance(told, Refusal) == bool(more)
    if more:
        assert reason(told) == "TOO_FEW_ROWS"


def test_a_group_is_in_one_part_so_that_errors_allow_for_it(draw):
    data, groups = draw(600), np.arange(600) // 4
    grouped = fedopl.LoggedData(
        data.contexts, data.actions, data.rewards, action_names=data.action_names, groups=groups
    )
    parts = dealt_to_parts(grouped).reshape(-1, 4)
    assert (parts == parts[:, :1]).all()
    assert len(np.unique(parts)) == N_PARTS + 1  # and the rows set apart
