"""Logistic models of many rows: some are fitted, and one Newton step uses all of them."""

import numpy as np
import pytest

import fedopl
from fedopl.client.rows.chunks import Chunk, sorted_order
from fedopl.client.rows.folds import assign_folds_and_hold_out
from fedopl.client.scoring import propensity
from fedopl.client.scoring.propensity import logistic_classifier
from fedopl.client.scoring.propensity_models import one_step_models

N_ROWS, N_FOLDS = 12_000, 5


def drawn(n_actions=3, *, weighted=False, rare=0.0):
    rng = np.random.default_rng(n_actions)
    contexts = rng.standard_normal((N_ROWS, 3)) * [1, 5, 1] + [0, 20, 0]
    slopes = rng.standard_normal((n_actions, 3)) / [1, 5, 1]
    odds = np.exp(contexts @ slopes.T - 20 * slopes[:, 1])
    odds[:, 0] *= 1 - rare
    chances = odds / odds.sum(axis=1, keepdims=True)
    actions = (rng.random(N_ROWS)[:, None] > chances.cumsum(axis=1)).sum(axis=1)
    weights = rng.uniform(0.5, 2.0, N_ROWS) if weighted else None
    data = fedopl.LoggedData(
        contexts,
        actions,
        np.zeros(N_ROWS),
        weights=weights,
        action_names=[f"a{k}" for k in range(n_actions)],
    )
    chunk = Chunk(data=data, folds=assign_folds_and_hold_out(data, N_FOLDS, 0.25, seed=0))
    order = sorted_order(chunk.folds.of_row, data.actions, N_FOLDS, n_actions)
    return chunk.taken(order)


def stepped(whole):
    return one_step_models(whole.sample_of(6), whole, logistic_classifier(1.0))


class Whole(Chunk):
    def sample_of(self, step):
        return self.taken(np.arange(0, self.data.n_rows, step))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_actions", [2, 3, 4])
def test_one_step_from_a_sixth_of_the_rows_is_as_good_as_a_fit_to_all(n_actions, weighted):
    chunk = drawn(n_actions, weighted=weighted)
    whole = Whole(data=chunk.data, folds=chunk.folds)
    models = stepped(whole)
    assert len(models) == N_FOLDS + 1
    for part, model in enumerate(models):
        rows, own = whole.folds.learns_from(part), whole.folds.of_row == part
        fits = [logistic_classifier(1.0), logistic_classifier(1.0)]
        for fit, some in zip(fits, (rows, rows & (np.arange(N_ROWS) % 6 == 0)), strict=True):
            weights = whole.data.weights_of(some)
            fit.fit(
                whole.data.contexts[some],
                whole.data.actions[some],
                logisticregression__sample_weight=weights,
            )
        contexts = whole.data.contexts[own]
        every, some = (np.log(fit.predict_proba(contexts)) for fit in fits)
        found = model.predict_proba(contexts)
        np.testing.assert_allclose(found.sum(axis=1), 1)
        apart, before = (np.square(one - every).mean() for one in (np.log(found), some))
        assert apart < 0.2 * before  # where a sample says little, in the tails, as well


def test_nothing_of_a_fold_moves_its_model():
    chunk = drawn()
    moved = np.array(chunk.data.actions)
    own = chunk.folds.of_row == 1
    moved[own] = (moved[own] + 1) % 3
    data = fedopl.LoggedData(
        chunk.data.contexts, moved, chunk.data.rewards, action_names=chunk.data.action_names
    )
    before, after = (stepped(Whole(data=one, folds=chunk.folds)) for one in (chunk.data, data))
    same = [np.array_equal(a.slopes, b.slopes) for a, b in zip(before, after, strict=True)]
    assert same == [part == 1 for part in range(N_FOLDS + 1)]


def test_no_step_is_taken_where_few_took_an_action():
    chunk = drawn(rare=0.99)
    assert stepped(Whole(data=chunk.data, folds=chunk.folds)) is None


def test_a_study_of_many_rows_uses_it(monkeypatch):
    monkeypatch.setattr(propensity, "MOST_STARTED", 3_000)
    asked = []

    def one_step(*given):
        asked.append(len(given[0].data.actions))
        return one_step_models(*given)

    monkeypatch.setattr(propensity, "one_step_models", one_step)
    chunk = drawn()
    plan = fedopl.NuisancePlan(propensity="logistic")
    run = fedopl.learn({"a": chunk.data}, basis="linear", nuisances=plan)
    assert asked == [3_000]
    assert np.isfinite(run.values.of(run.chosen).value)
