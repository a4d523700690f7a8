import tracemalloc

import numpy as np
import pytest

from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.local import local_steps
from fedopl.client.local.local_steps import examples as examples_of
from fedopl.client.local.local_steps import improve
from fedopl.client.local.local_training import Batches, rounds_per_epoch
from fedopl.client.rows.chunks import ScoredRows
from fedopl.study.plans import TrainingPlan


def drawn(n_rows=500, n_features=4, n_actions=3, seed=0):
    rng = np.random.default_rng(seed)
    contexts = rng.normal(3, 2, (n_rows, n_features))
    return contexts, rng.standard_normal((n_rows, n_actions)), rng.uniform(0.5, 2, n_rows)


def examples(contexts, scores, weights, centre, scale):
    return examples_of(ScoredRows(contexts=contexts, scores=scores, weights=weights), centre, scale)


def plainly(parameters, rows, plan, mask, picks, decay):
    """One step after the other, one row after the other: as the formula says."""
    current, steps = parameters, []
    for pick in picks:
        gradient = plan.proximal * (current - parameters)
        step = rows.curvature + rows.trace / len(pick) + plan.proximal
        for row in pick:
            error = current @ rows.features[row] - rows.scores[row]
            if rows.known is not None:
                error = np.where(rows.known[row], error, 0.0)
            weight = 1.0 if rows.weights is None else rows.weights[row]
            gradient = gradient + weight * np.outer(error, rows.features[row]) / len(pick)
        current = current - plan.rate * decay / step * gradient * (1 if mask is None else mask)
        steps.append(current)
    if plan.average == "rounds":
        return current
    forgotten = plan.rate * decay / step * (rows.trace / rows.features.shape[1] + plan.proximal)
    return np.average(steps, axis=0, weights=[min(1, forgotten)] * (len(steps) - 1) + [1])


@pytest.mark.parametrize("average", ["steps", "rounds"])
@pytest.mark.parametrize("proximal", [0.0, 0.3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("at_once", [1, 50, 10_000])
def test_steps_are_those_of_the_formula(
    monkeypatch, at_once, weighted, missing, masked, proximal, average
):
    monkeypatch.setattr(local_steps, "ROWS_STEPPED_AT_ONCE", at_once)
    contexts, scores, weights = drawn(60)
    if missing:
        scores[::3, 1] = np.nan
    rows = examples(contexts, scores, weights if weighted else None, np.full(5, 3), np.full(5, 2))
    rng = np.random.default_rng(1)
    mask = rng.integers(0, 2, (3, 5)).astype(float) if masked else None
    start, picks = rng.standard_normal((3, 5)), rng.integers(0, 60, (7, 8))
    plan = TrainingPlan(local_steps=7, batch_size=8, proximal=proximal, average=average)
    found = improve(start, rows, plan, picks, 0.8, mask)
    np.testing.assert_allclose(found, plainly(start, rows, plan, mask, picks, 0.8), rtol=1e-10)
    every = np.tile(np.arange(60), (7, 1))
    found = improve(start, rows, plan, None, 0.8, mask)
    np.testing.assert_allclose(found, plainly(start, rows, plan, mask, every, 0.8), rtol=1e-10)


@pytest.mark.parametrize("rate", [0.1, 0.5, 1.0])
def test_every_batch_of_a_round_has_the_same_say(rate):
    """Scores are one in one batch and zero elsewhere: the level found is the say of that batch."""
    plan = TrainingPlan(local_steps=6, batch_size=4, rate=rate)
    picks = np.arange(24).reshape(6, 4)
    found = []
    for pick in picks:
        scores = np.zeros((24, 1))
        scores[pick] = 1.0
        rows = examples(np.empty((24, 0)), scores, None, np.zeros(1), np.ones(1))
        found.append(improve(np.zeros((1, 1)), rows, plan, picks, 1.0).item())
    np.testing.assert_allclose(found, found[0])


def test_the_start_is_as_it_was():
    contexts, scores, _ = drawn(60)
    rows = examples(contexts, scores, None, np.full(5, 3), np.full(5, 2))
    start = np.ones((3, 5))
    start.setflags(write=False)
    assert (improve(start, rows, TrainingPlan(), None, 1.0) != start).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("at_once", [7, 10_000])
def test_examples_are_the_rows_with_a_score_standardised(monkeypatch, at_once, weighted):
    monkeypatch.setattr(local_steps, "ROWS_STEPPED_AT_ONCE", at_once)
    contexts, scores, weights = drawn(100)
    scores[5, 0] = np.nan
    centre, scale = np.array([1.0, 2, 3, 4, 0]), np.array([2.0, 3, 4, 5, 1])
    rows = np.array([3, 5, 8, 13, 21, 34, 55, 89])
    scores[np.setdiff1d(np.arange(100), rows)] = np.nan
    made = examples(contexts, scores, weights if weighted else None, centre, scale)
    expected = np.column_stack([(contexts[rows] - centre[:-1]) / scale[:-1], np.ones(8)])
    shares = weights[rows] / weights[rows].mean() if weighted else np.ones(8)
    gram = (expected * shares[:, None]).T @ expected / 8
    np.testing.assert_array_equal(made.features, expected)
    np.testing.assert_array_equal(made.scores, np.nan_to_num(scores[rows]))
    np.testing.assert_array_equal(made.known, np.isfinite(scores[rows]))
    assert made.curvature == pytest.approx(np.linalg.eigvalsh(gram)[-1])
    assert made.trace == pytest.approx(np.trace(gram))
    examples(contexts, scores, None, centre, scale)
    assert np.isnan(scores[5, 0])  # the caller's scores are as they were


def test_examples_take_the_memory_of_one_copy():
    contexts, scores, weights = drawn(50_000, 20)
    tracemalloc.start()
    made = examples(contexts, scores, weights, np.zeros(21), np.ones(21))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.6 * made.features.nbytes


def rounds(n_rows, n_rounds, plan, seed=0, client="north", secret="hush"):
    batches = Batches(PrivateDraws(seed, client, secret))
    return [batches.of_round(turn, n_rows, plan) for turn in range(n_rounds)]


@pytest.mark.parametrize("n_rows", [40, 80, 100, 119, 1000])
def test_an_epoch_takes_each_row_once_and_leaves_out_none_or_a_round(n_rows):
    plan = TrainingPlan(local_steps=4, batch_size=10)
    n_rounds = rounds_per_epoch(n_rows, 40)
    every = rounds(n_rows, 2 * n_rounds, plan)
    assert all(picks.shape == (4, 10) for picks in every)
    for epoch in (every[:n_rounds], every[n_rounds:]):
        dealt = np.concatenate(epoch).ravel()
        assert len(np.unique(dealt)) == len(dealt) == 40 * n_rounds
        left_out = n_rows - len(dealt)
        assert left_out == 0 or 40 <= left_out < 80
    assert not np.array_equal(every[0], every[n_rounds])


def test_few_rows_are_drawn_anew_for_every_batch():
    plan = TrainingPlan(local_steps=4, batch_size=10)
    every = rounds(79, 50, plan)  # 39 rows would be left out, fewer than a round takes
    assert all(picks.shape == (4, 10) for picks in every)
    assert any(len(np.unique(picks)) < 40 for picks in every)
    assert set(np.unique(every)) == set(range(79))
    assert rounds(10, 1, plan) == [None]


@pytest.mark.parametrize("n_rows", [60, 1000])
def test_rounds_are_the_same_in_any_order_and_others_for_others(n_rows):
    plan = TrainingPlan(local_steps=4, batch_size=10)
    forwards = rounds(n_rows, 60, plan)
    batches = Batches(PrivateDraws(0, "north", "hush"))
    for turn in reversed(range(60)):
        np.testing.assert_array_equal(batches.of_round(turn, n_rows, plan), forwards[turn])
    for other in ({"seed": 1}, {"client": "south"}, {"secret": "known"}):
        assert not np.array_equal(rounds(n_rows, 1, plan, **other)[0], forwards[0])


def test_one_pass_comes_closer_than_draws_with_repeats():
    """An epoch meets every row; as many draws miss a third of them."""
    contexts, scores, _ = drawn(4000, 10, 2)
    rows = examples(contexts, scores, None, np.full(11, 3.0), np.full(11, 2.0))
    exact = np.linalg.lstsq(rows.features, rows.scores)[0].T
    plan, lost = TrainingPlan(local_steps=5, batch_size=8), {"dealt": 0.0, "drawn": 0.0}
    for seed in range(20):
        batches, rng = Batches(PrivateDraws(seed, "north", "")), np.random.default_rng(seed)
        for name in lost:
            current, total = np.zeros((2, 11)), np.zeros((2, 11))
            for turn in range(100):
                dealt = batches.of_round(turn, 4000, plan)
                picks = dealt if name == "dealt" else rng.integers(0, 4000, dealt.shape)
                current = improve(current, rows, plan, picks, 1 / np.sqrt(1 + turn / 4))
                total += current if turn >= 50 else 0
            lost[name] += float(((total / 50 - exact) ** 2).sum())
    assert lost["dealt"] < 0.8 * lost["drawn"]
