"""Whether models fit: what is told is what a loop finds, and none of it rests on a few rows."""

from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.client.rows.chunks import Chunk
from fedopl.client.rows.folds import assign_folds
from fedopl.client.scoring.cross_fit import cross_fit
from fedopl.client.scoring.fit_check import check_fit
from fedopl.client.scoring.fit_numbers import FittedRows, fit_numbers, sampled_rows
from fedopl.messages.evaluation.model_fit import FIT_NUMBERS, TellFit


def client(n_rows=600, seed=0, *, bent=False, outlier=0.0, chance=0.5):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, 3))
    odds = 1.5 * (x[:, 0] ** 2 - 1) if bent else np.zeros(n_rows)
    taken = rng.random(n_rows) < 1 / (1 + np.exp(-odds)) * 2 * chance
    rewards = x[:, 1] + bent * x[:, 0] ** 2 + taken * x[:, 2] + rng.standard_normal(n_rows)
    rewards[0] += outlier
    return fedopl.LoggedData(x, taken.astype(int), rewards, action_names=["usual", "new"])


def numbers_of(data, **options):
    nuisances = cross_fit(data, propensity="marginal", **options)
    return FittedRows.of(data, nuisances, slice(None)), nuisances


def told(data, **options):
    plan = fedopl.NuisancePlan(propensity="marginal")
    run = fedopl.learn({"only": data}, basis="linear", nuisances=plan, **options)
    return run.fitted["only"]


def test_balance_is_what_a_loop_finds():
    data = client(bent=True)
    rows, nuisances = numbers_of(data)
    found = fit_numbers(rows).imbalance
    for action in (0, 1):
        took = data.actions == action
        weights = took / nuisances.propensities[:, action]
        for place, columns in enumerate((data.contexts, data.contexts**2)):
            # Values beyond four deviations are moved there, and there are none.
            about = np.mean(data.contexts, axis=0)
            columns = (data.contexts - about) ** (place + 1)
            apart = (weights @ columns) / weights.sum() - columns.mean(axis=0)
            np.testing.assert_allclose(
                found[place, action, :-1], apart / columns.std(axis=0), atol=0.02
            )
        assert found[0, action, -1] == pytest.approx(weights.sum() / data.n_rows - 1)


def test_influence_and_weights_are_those_of_the_row_that_has_most():
    data = client(outlier=300.0)
    rows, nuisances = numbers_of(data)
    found = fit_numbers(rows)
    action = int(data.actions[0])
    scores = fedopl.aipw_scores(data, nuisances).values[:, action]
    apart = np.abs(scores - scores.mean())
    expected = apart.max() / np.sqrt((apart**2).sum())
    assert found.of("largest_influences")[action] == pytest.approx(expected)
    assert expected > 0.8
    inverse = (data.actions == action) / nuisances.propensities[:, action]
    largest = inverse.max() / inverse.sum()
    assert found.of("largest_weights")[action] == pytest.approx(largest)


def test_where_propensities_are_right_a_richer_model_changes_nothing_but_by_chance():
    shifts = [fit_numbers(numbers_of(client(seed=seed))[0]) for seed in range(6)]
    z = [one.of("moved") / np.sqrt(one.of("moved_variances")) for one in shifts]
    assert np.abs(z).max() < 4
    bent = fit_numbers(numbers_of(client(bent=True))[0])
    assert (np.abs(bent.of("moved")) > 5 * np.sqrt(bent.of("moved_variances"))).all()
    assert bent.of("explained").max() > 0.3


def test_many_rows_are_thinned_alike_however_they_come():
    data = client(50_000)
    nuisances = cross_fit(data, propensity="marginal")
    chunk = Chunk(data=data, folds=assign_folds(data, 5, 0))
    (every,) = sampled_rows([chunk.training.stop])
    found = fit_numbers(FittedRows.of(data, nuisances, every))
    assert np.isfinite(found.numbers).all()
    assert found.of("effective_rows").max() < 20_000


def test_of_many_chunks_as_many_rows_are_taken_and_as_far_apart():
    counts = [3000, 0, 2999, 1, *[2700] * 40]
    taken = [range(count)[own] for own, count in zip(sampled_rows(counts), counts, strict=True)]
    assert 5_000 < sum(map(len, taken)) <= 20_000
    (step,) = {own.step for own in taken}
    assert all(len(own) >= count // step for own, count in zip(taken, counts, strict=True))
    assert sampled_rows([10, 20]) == [slice(0, 10, 1), slice(0, 20, 1)]


def test_what_is_told_is_exact():
    data = client(bent=True)
    every, some = told(data), told(data, limits=Limits())
    np.testing.assert_array_equal(every.numbers, some.numbers)


def test_an_action_that_few_took_is_not_told_about():
    found = told(client(400, chance=0.01), limits=Limits())
    assert (found.of("effective_rows") > 0).tolist() == [True, False]
    for numbers in (found.numbers, found.imbalance, found.imbalance_of_squares):
        assert not numbers[1].any()


def test_held_out_rows_change_nothing():
    data = client()
    plan = fedopl.NuisancePlan(propensity="marginal")
    runs = []
    for shift in (0.0, 1_000.0):
        run = fedopl.learn({"only": data}, basis="linear", nuisances=plan, evaluation=0.25)
        runs.append(run.fitted["only"].of("moved"))
        held_out = run.gains.over("logging policy", "only").n_rows
        assert held_out == 150
        rewards = np.array(data.rewards)
        rewards[_held_out(data, run.study)] += shift or 1_000.0
        data = fedopl.LoggedData(
            data.contexts, data.actions, rewards, action_names=data.action_names
        )
    np.testing.assert_array_equal(*runs)


def _held_out(data, study):
    from fedopl.client.rows.folds import assign_folds_and_hold_out

    return assign_folds_and_hold_out(data, 5, 0.25, study.seed).held_out


FAULTS = {
    "fewer rows than none": ("effective_rows", -0.5),
    "a negative variance": ("moved_variances", -1.0),
    "a row with more than all": ("largest_weights", 2.0),
    "more than all explained": ("explained", 1.5),
}


@pytest.mark.parametrize(("name", "false"), FAULTS.values(), ids=FAULTS)
def test_numbers_that_cannot_be_are_rejected(name, false):
    honest = told(client())
    study = fedopl.Study(actions=("usual", "new"), features=("x0", "x1", "x2"))
    assert TellFit().fault_in(honest, study, 450) is None
    numbers = np.array(honest.numbers)
    numbers[0, FIT_NUMBERS.index(name)] = false
    assert TellFit().fault_in(replace(honest, numbers=numbers), study, 450)


def test_check_names_models_that_are_too_simple_with_losses_beside():
    data = client(2_000, bent=True)
    found = check_fit(data, cross_fit(data, propensity="marginal"))
    text = "\n".join(found.cautions)
    assert "the models are too simple" in text
    assert "propensities do not balance" in text
    assert "values rest on models that are too simple" in text
    assert set(found.losses) == {"outcome", "richer outcome", "propensity"}
    assert "a flexible one fitted for comparison" in found.table()


def test_check_says_nothing_of_models_that_fit():
    data = client(2_000)
    assert not check_fit(data, cross_fit(data)).cautions


def test_rows_with_the_same_propensity_are_in_one_bin_whatever_their_order():
    data = client()
    sorted_by_action = data.taken(np.argsort(data.actions, kind="stable"))
    for rows in (data, sorted_by_action):
        found = check_fit(rows, cross_fit(rows, propensity="marginal"))
        assert not any(one.is_off for one in found.calibration)
