import math
from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.stats import norm

from fedopl.client.door import Door
from fedopl.client.limits import Limits
from fedopl.engines.in_process import InProcess
from fedopl.errors import OptionError
from fedopl.server import shifts
from fedopl.server.conversation import Conversation
from fedopl.server.journal import Journal
from fedopl.simulation.worlds import (
    action_missing,
    alike_world,
    confounded,
    covariate_shift,
    outcome_shift,
    propensity_shift,
)
from fedopl.study import NuisancePlan, Study
from fedopl.theory import discrete
from fedopl.theory.bounds import shift_bound
from fedopl.wire.agreed import axis_sizes
from fedopl.wire.vocabulary import (
    ClassifierSums,
    ClassifyContexts,
    Models,
    ModelShifts,
)
from trips import Edited

PAIR = alike_world(2, seed=1)
TRIO = alike_world(3, seed=1)


def study_of(world, propensity="logistic", **changes):
    options = {"nuisances": NuisancePlan(propensity=propensity), "diagnose": True, **changes}
    return Study(actions=world.action_names, features=world.feature_names, **options)


def doors_to(world, study, n_rows, *, draw=0, limits=None):
    rows = dict(zip(world.clients, np.broadcast_to(n_rows, len(world.clients)), strict=True))
    return {
        name: Door(
            name, world.logged(name, int(rows[name]), draw), study, limits=limits or Limits()
        )
        for name in world.clients
    }


def talk(world, n_rows=1000, *, study=None, transport=InProcess, **options):
    study = study or study_of(world)
    return Conversation(study, transport(doors_to(world, study, n_rows, **options)), Journal())


def compared(conversation):
    models = shifts.ask_for_models(conversation, conversation.transport.clients)
    return shifts.compare(conversation, models)


def parts(found):
    return {
        "propensity_kl": found.propensity_kl,
        "propensity_tv": found.propensity_tv,
        "outcome_kl": found.outcome_kl,
    }


def equally(world):
    return dict.fromkeys(world.clients, 1 / len(world.clients))


def truths(world, client, other, n_rows=20_000):
    """What the three parts are, by many contexts of the first client."""
    contexts = world.contexts(client, n_rows, np.random.default_rng(5))
    ours, theirs = (world.propensities(name, contexts) for name in (client, other))
    gaps = world.mean_rewards(client, contexts) - world.mean_rewards(other, contexts)
    ratio = (world.truths[client].reward_sd / world.truths[other].reward_sd) ** 2
    spread = len(world.action_names) * (ratio - 1 - math.log(ratio)) / 2
    scale = 2 * world.truths[other].reward_sd ** 2
    return {
        "propensity_kl": discrete.kl(ours, theirs).mean(),
        "propensity_tv": discrete.total_variation(ours, theirs).mean(),
        "outcome_kl": (gaps**2).sum(axis=1).mean() / scale + spread,
    }


# --- estimates are right, with and without a shift -----------------------------------------------


def distances(world, n_rows, n_draws):
    """(estimate − truth) / standard error and the estimates, of each part in each draw and pair."""
    first, second = world.clients[:2]
    true = {pair: truths(world, *pair) for pair in ((first, second), (second, first))}
    away, noisy = {}, {}
    for draw in range(n_draws):
        # Without limits, so that no action is too rare to be compared.
        found = parts(compared(talk(world, n_rows, draw=draw, limits=Limits.open())))
        for name, shift in found.items():
            for (client, other), truth in true.items():
                at = shift.names.index(client), shift.names.index(other)
                distance = (shift.estimates[at] - truth[name]) / shift.standard_errors[at]
                away.setdefault(name, []).append(distance)
                noisy.setdefault(name, []).append(shift.estimates[at] - truth[name])
    return {name: np.array(values) for name, values in away.items()}, noisy


WORLDS = {
    "alike": PAIR,
    "alike, logged by what gains": confounded(PAIR),
    "other contexts": covariate_shift(confounded(PAIR), 0.5),
    "other propensities": propensity_shift(PAIR, 0.4),
    "other outcomes": outcome_shift(PAIR, 0.3),
    "all at once": outcome_shift(propensity_shift(covariate_shift(PAIR, 0.4), 0.4), 0.3),
}


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS)
def test_estimates_are_within_three_standard_errors_of_the_truth(world):
    away, errors = distances(world, (400, 1200), n_draws=10)
    for name, values in away.items():
        assert (np.abs(values) < 3).mean() >= 0.9, name
        mean, error = np.mean(errors[name]), np.std(errors[name]) / math.sqrt(10)
        assert mean < 3 * error, name
        assert mean > -3 * error or name == "propensity_tv"  # which is a lower bound


def test_without_a_shift_little_is_left_of_what_noise_adds_up_to():
    # Half as many as models have numbers, over the training rows of each of the two clients.
    noise = np.array([2 * 5, 3 * 3 * 6]) / 2 * (2 / 225)
    told = []
    for draw in range(8):
        found = compared(talk(PAIR, 300, draw=draw, limits=Limits.open()))
        told.append([found.propensity_kl.estimates[0, 1], found.outcome_kl.estimates[0, 1]])
    assert (np.abs(np.mean(told, axis=0)) < noise / 2).all()


def test_noisier_rewards_are_an_outcome_shift():
    first, second = PAIR.clients
    louder = replace(PAIR.truths[second], reward_sd=1.5)
    world = replace(PAIR, truths={**PAIR.truths, second: louder})
    found = compared(talk(world, 3000)).outcome_kl
    for place, pair in enumerate(((first, second), (second, first))):
        at = (place, 1 - place)
        truth = truths(world, *pair)["outcome_kl"]
        assert abs(found.estimates[at] - truth) < 3 * found.standard_errors[at]
        assert found.estimates[at] > 3 * found.standard_errors[at]


# --- the source is named -------------------------------------------------------------------------


def sources(world, draw):
    """For each source: a divergence, and how many standard errors it is away from none."""
    conversation = talk(world, 1000, draw=draw)
    found = compared(conversation)
    contexts = shifts.tell_apart(conversation, world.clients[0], equally(world))
    told = {
        # TV² ≤ KL/2, so this is a lower bound on the divergence.
        "contexts": (
            2 * max(contexts.total_variation, 0) ** 2,
            contexts.total_variation / contexts.standard_error,
        )
    }
    for name, shift in (("propensities", found.propensity_kl), ("outcomes", found.outcome_kl)):
        estimate = shift.estimates[0, 1]
        told[name] = (estimate, estimate / shift.standard_errors[0, 1])
    return told


ONE_SOURCE = {
    "contexts": covariate_shift(confounded(PAIR), 0.5),
    "propensities": propensity_shift(PAIR, 0.4),
    "outcomes": outcome_shift(PAIR, 0.3),
}


@pytest.mark.parametrize("source", ONE_SOURCE)
def test_the_only_source_of_a_shift_is_named(source):
    named = 0
    for draw in range(20):
        told = sources(ONE_SOURCE[source], draw)
        largest = max(told, key=lambda name: told[name][0])
        seen = [name for name, (_, errors_away) in told.items() if errors_away > 3]
        named += largest == source and seen == [source]
    assert named >= 18


# --- who is not compared -------------------------------------------------------------------------


def test_a_client_from_itself_is_zero_and_bounds_take_the_rest():
    found = compared(talk(TRIO, 400))
    for shift in parts(found).values():
        assert shift.names == TRIO.clients
        assert not np.diagonal(shift.estimates).any()
        assert (shift.standard_errors[~np.eye(3, dtype=bool)] > 0).all()
    client = TRIO.clients[1]
    bound = shift_bound(
        np.full(3, 1 / 3),
        np.zeros(3),
        found.propensity_kl.divergences(client),
        found.outcome_kl.divergences(client),
    )
    assert bound.covariates == 0
    assert bound.total < 1


def test_a_client_that_does_not_compare_is_unknown_and_still_compared_with():
    study = study_of(TRIO)
    doors = doors_to(TRIO, study, 400)
    silent = TRIO.clients[2]
    doors[silent].limits = Limits(model_queries=1)
    conversation = Conversation(study, InProcess(doors), Journal())
    models = shifts.ask_for_models(conversation, TRIO.clients)
    doors[silent].limits = Limits(minimum_rows=10_000)
    found = shifts.compare(conversation, models)
    for shift in parts(found).values():
        assert np.isnan(shift.estimates[2, :2]).all()
        assert np.isfinite(shift.estimates[:2]).all()
        assert np.isnan(shift.divergences(silent)[:2]).all()
    assert conversation.rounds[-1].refused == {silent: "TOO_FEW_ROWS"}


def test_a_client_with_few_rows_tells_no_models_and_the_others_go_on():
    conversation = talk(TRIO, (400, 90, 400))
    found = compared(conversation)
    assert found.names == (TRIO.clients[0], TRIO.clients[2])
    assert conversation.rounds[0].refused == {TRIO.clients[1]: "SMALL_CELLS"}


def test_an_action_that_one_client_never_took_is_a_shift_of_propensities():
    _, second = PAIR.clients
    found = compared(talk(action_missing(PAIR, second, PAIR.action_names[0]), 1000))
    kl, outcome = found.propensity_kl, found.outcome_kl
    assert kl.estimates[0, 1] > 5 * kl.standard_errors[0, 1]
    assert kl.estimates[0, 1] > 0.4
    assert abs(outcome.estimates[0, 1]) < 3 * outcome.standard_errors[0, 1]  # of the other two


def test_clients_without_a_common_action_have_no_outcome_shift_to_tell():
    world = PAIR
    for action in world.action_names[1:]:
        world = action_missing(world, world.clients[0], action)
    world = action_missing(world, world.clients[1], world.action_names[0])
    found = compared(talk(world, 1000))
    assert np.isnan(found.outcome_kl.estimates[0, 1])
    assert found.propensity_kl.estimates[0, 1] > 1


def test_one_client_cannot_be_compared():
    conversation = talk(alike_world(1), 400)
    with pytest.raises(OptionError, match="expected those of 2 to 1,000 clients"):
        compared(conversation)


# --- bad answers ---------------------------------------------------------------------------------


def edited(world, change):
    """A conversation in which the second client changes what it says, field by field."""
    study, bad = study_of(world), world.clients[1]

    def edit(message):
        own = {field.name: getattr(message, field.name) for field in fields(message)}
        changes = change(message)
        return type(message)(**{**own, **{n: np.asarray(v, float) for n, v in changes.items()}})

    def transport(doors):
        return Edited(doors, study, bad, edit)

    return talk(world, 400, study=study, transport=transport)


def of(kind, **changes):
    """Changes to messages of one kind; each is a function of what the field holds."""
    return lambda message: (
        {name: change(getattr(message, name)) for name, change in changes.items()}
        if isinstance(message, kind)
        else {}
    )


def spoiled(array, value=np.nan):
    array = np.array(array)
    array.reshape(-1)[0] = value
    return array


BAD_MODELS = {
    "NaN": (of(Models, outcomes=spoiled), "outcomes: not all numbers are finite"),
    "infinite": (of(Models, propensities=lambda a: spoiled(a, np.inf)), "not all numbers"),
    "huge": (of(Models, outcomes=lambda a: spoiled(a, 1e200)), "cannot be added up"),
    "a repeat too few": (of(Models, outcomes=lambda a: a[1:]), "5 repeats are not what"),
    "an action too many": (of(Models, supported=lambda a: np.ones(4)), "4 actions are not what"),
    "a negative variance": (of(Models, variances=lambda a: -a), "a variance is not above 0"),
    "no variance": (of(Models, variances=lambda a: 0 * a), "a variance is not above 0"),
    "nothing supported": (of(Models, supported=lambda a: 0 * a), "supports no action"),
    "half supported": (of(Models, supported=lambda a: a / 2), "supports no action"),
}
BAD_SHIFTS = {
    "NaN": (of(ModelShifts, propensity_kl=spoiled), "propensity_kl: not all numbers are finite"),
    "a client too few": (of(ModelShifts, outcome_kl=lambda a: a[1:]), "compared other models"),
    "a negative variance": (
        of(ModelShifts, outcome_kl_variance=lambda a: spoiled(a, -1.0)),
        "a variance is negative",
    ),
    "half compared": (of(ModelShifts, compared=lambda a: a / 2), "compared a part of a model"),
}


@pytest.fixture(scope="module")
def honest():
    return compared(talk(TRIO, 400))


@pytest.mark.parametrize(("change", "why"), BAD_MODELS.values(), ids=BAD_MODELS)
def test_models_that_cannot_be_are_rejected_by_name(change, why, honest):
    conversation = edited(TRIO, change)
    found = compared(conversation)
    assert why in conversation.rounds[0].rejected[TRIO.clients[1]]
    assert found.names == (TRIO.clients[0], TRIO.clients[2])
    for shift, expected in zip(parts(found).values(), parts(honest).values(), strict=True):
        np.testing.assert_array_equal(shift.estimates, expected.estimates[::2, ::2])


@pytest.mark.parametrize(("change", "why"), BAD_SHIFTS.values(), ids=BAD_SHIFTS)
def test_shifts_that_cannot_be_are_rejected_by_name(change, why, honest):
    conversation = edited(TRIO, change)
    found = compared(conversation)
    assert why in conversation.rounds[1].rejected[TRIO.clients[1]]
    for shift, expected in zip(parts(found).values(), parts(honest).values(), strict=True):
        assert np.isnan(shift.estimates[1, ::2]).all()
        np.testing.assert_array_equal(shift.estimates[::2], expected.estimates[::2])


BAD_SUMS = {
    "NaN": (of(ClassifierSums, gradient=spoiled), "gradient: not all numbers are finite"),
    "scaled slopes": (of(ClassifierSums, gradient=lambda a: 3 * a), "the mean error"),
    "of the other label": (of(ClassifierSums, gradient=lambda a: -a), "the mean error"),
    "scaled curvature": (of(ClassifierSums, hessian=lambda a: 3 * a), "the mean curvature"),
    "not symmetric": (of(ClassifierSums, hessian=lambda a: np.triu(a)), "not symmetric"),
    "a negative square": (of(ClassifierSums, hessian=lambda a: -a), "a square is negative"),
    "a negative loss": (of(ClassifierSums, loss=lambda a: -a - 1), "the mean error"),
    "too large a share": (of(ClassifierSums, target_share=lambda a: a + 3), "a share of rows"),
    "a negative share": (of(ClassifierSums, target_share=lambda a: a - 3), "a share of rows"),
    "a negative variance": (
        of(ClassifierSums, target_share_variance=lambda a: a - 1),
        "a share of rows",
    ),
}


@pytest.mark.parametrize(("change", "why"), BAD_SUMS.values(), ids=BAD_SUMS)
def test_classifier_sums_that_cannot_be_are_rejected_by_name(change, why):
    target, bad, other = TRIO.clients
    conversation = edited(TRIO, change)
    found = shifts.tell_apart(conversation, target, equally(TRIO))
    rejected = [latest.rejected for latest in conversation.rounds if latest.rejected]
    assert rejected
    assert all(why in named[bad] and list(named) == [bad] for named in rejected)
    alone = shifts.tell_apart(talk(TRIO, 400), target, {target: 0.5, other: 0.5})
    np.testing.assert_allclose(found.parameters, alone.parameters, rtol=1e-9)
    assert found.total_variation == pytest.approx(alone.total_variation)


# --- contexts ------------------------------------------------------------------------------------


def moved(world, by, client=0):
    """The world, in which one client's contexts are moved along the first feature."""
    name = world.clients[client]
    mean = world.truths[name].context_mean.copy()
    mean[0] += by
    return replace(
        world, truths={**world.truths, name: replace(world.truths[name], context_mean=mean)}
    )


@pytest.mark.parametrize("limits", [Limits.open(), Limits()], ids=["open", "guarded"])
@pytest.mark.parametrize("by", [0.0, 0.5, 2.0])
def test_the_bound_is_the_total_variation_where_a_linear_classifier_is_the_best(by, limits):
    away, first = [], TRIO.clients[0]
    for draw in range(4):
        conversation = talk(moved(TRIO, by), 1000, draw=draw, limits=limits)
        found = shifts.tell_apart(conversation, first, equally(TRIO))
        assert found.converged
        truth = 2 * norm.cdf(by / 2) - 1
        away.append((found.total_variation - truth) / found.standard_error)
    assert np.abs(away).max() < 3


@pytest.mark.parametrize("far", [0.0, 1000.0])
def test_parameters_are_where_the_loss_of_all_rows_is_least(far):
    world = moved(TRIO, 1.0)
    for name, truth in world.truths.items():
        elsewhere = replace(truth, context_mean=truth.context_mean + far)
        world = replace(world, truths={**world.truths, name: elsewhere})
    conversation = talk(world, 600)
    weights = dict(zip(world.clients, (0.2, 0.5, 0.3), strict=True))
    found = shifts.tell_apart(conversation, world.clients[0], weights)
    assert found.converged
    shares = (0.5, 0.5 * 0.5 / 0.8, 0.5 * 0.3 / 0.8)
    features = []
    for name in world.clients:
        space = conversation.transport.doors[name]._space
        features.append(np.column_stack([space.data.contexts, np.ones(600)])[space.training])
    means = sum(s * f.mean(axis=0) for s, f in zip(shares, features, strict=True))
    variances = sum(
        s * ((f - means) ** 2).mean(axis=0) for s, f in zip(shares, features, strict=True)
    )
    slope = shifts.RIDGE / 4 * variances * found.parameters
    for rows, share, label in zip(features, shares, (1, 0, 0), strict=True):
        chances = 1 / (1 + np.exp(-rows @ found.parameters))
        slope += share * (chances - label) @ (rows - means) / len(rows)
        slope[-1] += share * (chances - label).mean()
    np.testing.assert_allclose(slope, 0, atol=1e-4)


def test_contexts_that_are_told_apart_with_certainty_end_it_without_an_error():
    conversation = talk(moved(TRIO, 30.0), 400)
    found = shifts.tell_apart(conversation, TRIO.clients[0], equally(TRIO))
    assert found.total_variation > 0.8
    assert np.isfinite(found.parameters).all()


def test_the_default_limits_are_enough_for_one_target():
    conversation = talk(moved(TRIO, 30.0), 400)
    shifts.tell_apart(conversation, TRIO.clients[0], equally(TRIO))
    asked = [r for r in conversation.rounds if r.query == ClassifyContexts.__name__]
    assert len(asked) <= 2 * Limits().classifier_queries
    assert "BUDGET_SPENT" not in {why for r in asked for why in r.refused.values()}


def test_without_rows_set_apart_there_is_a_classifier_and_no_bound():
    study = study_of(TRIO, evaluation_share=0.0)
    found = shifts.tell_apart(talk(TRIO, 400, study=study), TRIO.clients[0], equally(TRIO))
    assert found.converged
    assert math.isnan(found.total_variation)


def test_a_target_that_refuses_has_no_bound():
    conversation = talk(TRIO, (40, 400, 400))
    found = shifts.tell_apart(conversation, TRIO.clients[0], equally(TRIO))
    assert not found.converged
    assert math.isnan(found.total_variation)
    assert not found.parameters.any()


@pytest.mark.parametrize(
    "weights", [{"client 1": 1.0}, {"client 2": 1.0}, {"nobody": 1.0}], ids=str
)
def test_a_target_needs_somebody_to_be_told_from(weights):
    with pytest.raises(OptionError, match="another client with weight"):
        shifts.tell_apart(talk(TRIO, 400), "client 1", weights)


def test_every_size_is_one_that_the_study_agrees_on():
    sizes = axis_sizes(study_of(TRIO))
    assert {
        axis.value: max(sizes[axis]) for axis in sizes if axis.value in ("clients", "repeats")
    } == {
        "clients": 1000,
        "repeats": 6,
    }
