import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from scipy.stats import norm
from test_shifts import TRIO, edited, equally, of, spoiled, study_of, talk

from fedopl.base.errors import OptionError
from fedopl.client.disclosure.limits import Limits
from fedopl.messages.about_differences import (
    MOST_ROUNDS,
    ClassifierSums,
    ClassifyContexts,
)
from fedopl.results.diagnosis import Classifier
from fedopl.server.diagnosis import context_classifier
from fedopl.server.diagnosis.context_classifier import fit_classifiers


def of_one(conversation, target, weights):
    return fit_classifiers(conversation, [target], weights)[target]


def rounds_of(conversation):
    return [r for r in conversation.rounds if r.query == ClassifyContexts.__name__]


# --- bad answers ---------------------------------------------------------------------------------

BAD_SUMS = {
    "NaN": (of(ClassifierSums, pulls=spoiled), "pulls: not all numbers are finite"),
    "slopes of less weight": (of(ClassifierSums, pulls=lambda a: 0.9 * a), "mean curvature"),
    "scaled slopes": (of(ClassifierSums, pulls=lambda a: 3 * a), "the mean chance"),
    "of the other label": (of(ClassifierSums, pulls=lambda a: -a), "the mean chance"),
    "scaled curvature": (of(ClassifierSums, hessian=lambda a: 3 * a), "the mean curvature"),
    "a negative square": (of(ClassifierSums, hessian=lambda a: -a), "a square is negative"),
    "a negative loss": (of(ClassifierSums, loss=lambda a: -a - 1), "the mean chance"),
    "too large a share": (of(ClassifierSums, target_share=lambda a: a + 3), "a share of rows"),
    "a negative share": (of(ClassifierSums, target_share=lambda a: a - 3), "a share of rows"),
    "a negative variance": (
        of(ClassifierSums, target_share_variance=lambda a: a - 1),
        "a share of rows",
    ),
    "a scaled half": (
        of(ClassifierSums, pulls=lambda a: 0.9 * a, hessian=lambda a: 0.9 * a),
        "the mean of one half is not one half",
    ),
    "a target too many": (
        of(ClassifierSums, loss=lambda a: np.append(a, 1.0)),
        "answers for other classifiers than 1",
    ),
}


@pytest.mark.parametrize(("change", "why"), BAD_SUMS.values(), ids=BAD_SUMS)
def test_classifier_sums_that_cannot_be_are_rejected_by_name(change, why):
    target, bad, other = TRIO.clients
    conversation = edited(TRIO, change)
    found = of_one(conversation, target, equally(TRIO))
    rejected = [latest.rejected for latest in conversation.rounds if latest.rejected]
    assert rejected
    assert all(why in named[bad] and list(named) == [bad] for named in rejected)
    alone = of_one(talk(TRIO, 400), target, {target: 0.5, other: 0.5})
    np.testing.assert_allclose(found.parameters, alone.parameters, rtol=1e-9)
    assert found.total_variation == pytest.approx(alone.total_variation)
    assert found.standard_error == pytest.approx(alone.standard_error)


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
        found = of_one(conversation, first, equally(TRIO))
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
    found = of_one(conversation, world.clients[0], weights)
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
    slope = context_classifier.RIDGE / 4 * variances * np.array(found.parameters)
    for rows, share, label in zip(features, shares, (1, 0, 0), strict=True):
        chances = 1 / (1 + np.exp(-rows @ np.array(found.parameters)))
        slope += share * (chances - label) @ (rows - means) / len(rows)
        slope[-1] += share * (chances - label).mean()
    np.testing.assert_allclose(slope, 0, atol=1e-4)


def test_contexts_that_are_told_apart_with_certainty_end_it_without_an_error():
    conversation = talk(moved(TRIO, 30.0), 400)
    found = of_one(conversation, TRIO.clients[0], equally(TRIO))
    assert found.total_variation > 0.8
    assert np.isfinite(found.parameters).all()


def test_a_study_has_enough_questions_for_all_targets():
    conversation = talk(moved(TRIO, 30.0), 400)
    fit_classifiers(conversation, TRIO.clients, equally(TRIO))
    asked = rounds_of(conversation)
    assert len(asked) <= MOST_ROUNDS + 1
    assert "ASKED_ALREADY" not in {why for r in asked for why in r.refused.values()}


def test_targets_together_are_what_each_is_alone():
    world = moved(TRIO, 1.0)
    weights = dict(zip(world.clients, (0.2, 0.5, 0.3), strict=True))
    conversation = talk(world, 600)
    together = fit_classifiers(conversation, world.clients, weights)
    assert list(together) == list(world.clients)
    for name in world.clients:
        alone = of_one(talk(world, 600), name, weights)
        assert together[name].converged
        np.testing.assert_allclose(together[name].parameters, alone.parameters, rtol=1e-9)
        assert together[name].n_steps == alone.n_steps
        assert together[name].total_variation == pytest.approx(alone.total_variation)
        assert together[name].standard_error == pytest.approx(alone.standard_error)


def test_everybody_is_asked_the_same_in_one_exchange_for_each_step():
    conversation = talk(moved(TRIO, 1.0), 600)
    found = fit_classifiers(conversation, TRIO.clients, equally(TRIO))
    asked = rounds_of(conversation)
    assert len(asked) == max(one.n_steps for one in found.values()) + 2
    assert all(latest.asked == TRIO.clients for latest in asked)


def test_classifiers_are_plain():
    found = of_one(talk(TRIO, 400), TRIO.clients[0], equally(TRIO))
    plain = json.loads(json.dumps(asdict(found)))
    assert Classifier(**{**plain, "parameters": (*plain["parameters"],)}) == found


def test_without_rows_set_apart_there_is_a_classifier_and_no_bound():
    study = study_of(TRIO, evaluation=0.0)
    found = of_one(talk(TRIO, 400, study=study), TRIO.clients[0], equally(TRIO))
    assert found.converged
    assert found.total_variation is found.standard_error is None


def test_a_target_that_refuses_has_no_bound_and_the_others_have():
    conversation = talk(TRIO, (20, 400, 400))
    refused, *others = fit_classifiers(conversation, TRIO.clients, equally(TRIO)).values()
    assert not refused.converged
    assert refused.total_variation is refused.standard_error is None
    assert not any(refused.parameters)
    assert all(one.converged and one.total_variation is not None for one in others)


@pytest.mark.parametrize(
    "weights", [{"client 1": 1.0}, {"client 2": 1.0}, {"nobody": 1.0}], ids=str
)
def test_a_target_needs_somebody_to_be_told_from(weights):
    with pytest.raises(OptionError, match="another client with weight"):
        of_one(talk(TRIO, 400), "client 1", weights)
