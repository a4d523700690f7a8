import json
import math
from dataclasses import asdict, dataclass, fields, replace

import numpy as np
import pytest
from small_worlds import (
    action_missing,
    alike_world,
    confounded,
    covariate_shift,
    outcome_shift,
    propensity_shift,
)

from fedopl.base.errors import OptionError
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.messages.about_differences import Models, ModelShifts
from fedopl.messages.derived_sizes import axis_sizes
from fedopl.results.diagnosis import Shift
from fedopl.server.diagnosis import diagnose
from fedopl.server.diagnosis.context_classifier import fit_classifiers
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.exchange.journal import Journal
from fedopl.study.plans import NuisancePlan
from fedopl.study.study import Study
from fedopl.theory import divergences
from fedopl.theory.bounds import shift_bound
from trips import Edited

PAIR = alike_world(2, seed=1)
TRIO = alike_world(3, seed=1)


def study_of(world, propensity="logistic", **changes):
    options = {"nuisances": NuisancePlan(propensity=propensity), "joining": True}
    options |= {"evaluation": 0.25, **changes}
    return Study(actions=world.action_names, features=world.feature_names, **options)


def doors_to(world, study, n_rows, *, draw=0, limits=None):
    rows = dict(zip(world.clients, np.broadcast_to(n_rows, len(world.clients)), strict=True))
    return {
        name: Door(
            name,
            world.logged(name, int(rows[name]), draw),
            study,
            limits=limits or Limits(),
            secret=SEED_ALONE,
        )
        for name in world.clients
    }


def talk(world, n_rows=1000, *, study=None, transport=InProcess, **options):
    study = study or study_of(world)
    return Conversation(study, transport(doors_to(world, study, n_rows, **options)), Journal())


def compared(conversation):
    models = diagnose.ask_for_models(conversation, conversation.transport.clients)
    return diagnose.compare_models(conversation, models)


@dataclass(frozen=True)
class Numbers:
    """A shift as arrays, NaN where nobody told."""

    shift: Shift

    @property
    def estimates(self):
        return np.array(self.shift.estimates, float)

    @property
    def standard_errors(self):
        return np.array(self.shift.standard_errors, float)


def parts(found):
    names = ("propensity_kl", "propensity_tv", "outcome_kl")
    return {name: Numbers(getattr(found, name)) for name in names}


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
        "propensity_kl": divergences.kl(ours, theirs).mean(),
        "propensity_tv": divergences.total_variation(ours, theirs).mean(),
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
                at = world.clients.index(client), world.clients.index(other)
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
        told.append([found.propensity_kl.estimates[0][1], found.outcome_kl.estimates[0][1]])
    assert (np.abs(np.mean(told, axis=0)) < noise / 2).all()


def test_noisier_rewards_are_an_outcome_shift():
    first, second = PAIR.clients
    louder = replace(PAIR.truths[second], reward_sd=1.5)
    world = replace(PAIR, truths={**PAIR.truths, second: louder})
    found = parts(compared(talk(world, 3000)))["outcome_kl"]
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
    first = world.clients[0]
    contexts = fit_classifiers(conversation, [first], equally(world))[first]
    told = {
        # TV² ≤ KL/2, so this is a lower bound on the divergence.
        "contexts": (
            2 * max(contexts.total_variation, 0) ** 2,
            contexts.total_variation / contexts.standard_error,
        )
    }
    for name, shift in (("propensities", found.propensity_kl), ("outcomes", found.outcome_kl)):
        estimate = shift.estimates[0][1]
        told[name] = (estimate, estimate / shift.standard_errors[0][1])
    return told


ONE_SOURCE = {
    "contexts": covariate_shift(confounded(PAIR), 0.5),
    "propensities": propensity_shift(PAIR, 0.4),
    "outcomes": outcome_shift(PAIR, 0.3),
}


@pytest.mark.parametrize("source", ONE_SOURCE)
def test_the_only_source_of_a_shift_is_named(source):
    named = 0
    for draw in range(10):
        told = sources(ONE_SOURCE[source], draw)
        largest = max(told, key=lambda name: told[name][0])
        seen = [name for name, (_, errors_away) in told.items() if errors_away > 3]
        named += largest == source and seen == [source]
    assert named >= 9


# --- who is not compared -------------------------------------------------------------------------


def test_a_client_from_itself_is_zero_and_bounds_take_the_rest():
    found = compared(talk(TRIO, 400))
    for shift in parts(found).values():
        assert shift.shift.names == TRIO.clients
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
    conversation = Conversation(study, InProcess(doors), Journal())
    models = diagnose.ask_for_models(conversation, TRIO.clients)
    doors[silent].limits = Limits(minimum_rows=10_000)
    found = diagnose.compare_models(conversation, models)
    for shift in parts(found).values():
        assert np.isnan(shift.estimates[2, :2]).all()
        assert np.isfinite(shift.estimates[:2]).all()
        assert np.isnan(shift.shift.divergences(silent)[:2]).all()
        assert shift.shift.estimates[2] == (None, None, 0.0)
    assert conversation.rounds[-1].refused == {silent: "TOO_FEW_ROWS"}


def test_a_client_with_few_rows_tells_no_models_and_the_others_go_on():
    conversation = talk(TRIO, (400, 40, 400))
    found = compared(conversation)
    assert found.names == (TRIO.clients[0], TRIO.clients[2])
    assert conversation.rounds[0].refused == {TRIO.clients[1]: "SMALL_CELLS"}


def test_an_action_that_one_client_never_took_is_a_shift_of_propensities():
    _, second = PAIR.clients
    found = parts(compared(talk(action_missing(PAIR, second, PAIR.action_names[0]), 1000)))
    kl, outcome = found["propensity_kl"], found["outcome_kl"]
    assert kl.estimates[0, 1] > 5 * kl.standard_errors[0, 1]
    assert kl.estimates[0, 1] > 0.4
    assert abs(outcome.estimates[0, 1]) < 3 * outcome.standard_errors[0, 1]  # of the other two


def test_clients_without_a_common_action_have_no_outcome_shift_to_tell():
    world = PAIR
    for action in world.action_names[1:]:
        world = action_missing(world, world.clients[0], action)
    world = action_missing(world, world.clients[1], world.action_names[0])
    found = compared(talk(world, 1000))
    assert found.outcome_kl.estimates[0][1] is None
    assert found.propensity_kl.estimates[0][1] > 1


def test_shifts_are_plain_and_divergences_are_not_below_zero():
    shift = Shift(
        names=("a", "b", "c"),
        estimates=((0.0, -0.2, None), (0.3, 0.0, None), (None, None, 0.0)),
        standard_errors=((0.0, 0.1, None), (0.1, 0.0, None), (None, None, 0.0)),
    )
    np.testing.assert_array_equal(shift.divergences("a"), [0.0, 0.0, np.nan])
    np.testing.assert_array_equal(shift.divergences("b"), [0.3, 0.0, np.nan])
    found = compared(talk(PAIR, 400))
    plain = asdict(found)
    assert json.loads(json.dumps(plain))["outcome_kl"]["estimates"][0] == list(
        found.outcome_kl.estimates[0]
    )


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


def test_every_size_is_one_that_the_study_agrees_on():
    sizes = axis_sizes(study_of(TRIO))
    assert {
        axis.value: max(sizes[axis]) for axis in sizes if axis.value in ("clients", "repeats")
    } == {
        "clients": 1000,
        "repeats": 6,
    }
