"""Values of held-out rows where features act together, and neither model sees it.

Models of the study say 0 of every outcome, and propensities are shares: all is left to the client.
"""

from dataclasses import replace

import numpy as np
import pytest
from lying_server import ACTIONS, N_FEATURES, LyingServer, study_with

import fedopl
from fedopl.client.answers.asked_policies import deciders, policies_in
from fedopl.client.answers.valuing.estimate_values import estimate
from fedopl.client.scoring import corrected_scores
from fedopl.client.scoring.corrected_scores import find_products
from fedopl.messages.evaluation.policy_values import Value
from fedopl.messages.message import RowSplit
from parquet_rows import write_rows

TRUTH = 0.0  # what any action is worth to everybody


def confounded(seed, n_rows=600, *, known=False, size=1.0):
    """Who lies on the same side of two thresholds does better, and more often gets the pill."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, N_FEATURES))
    same = np.where((x[:, 0] > 0) == (x[:, 1] > 0), 1.0, -1.0)
    chances = np.where(same[:, None] > 0, [0.2, 0.6, 0.2], [0.4, 0.2, 0.4])
    actions = (rng.random(n_rows)[:, None] > np.cumsum(chances, axis=1)).sum(axis=1)
    rewards = size * same + rng.standard_normal(n_rows)
    given = {"propensities": chances} if known else {}
    return fedopl.LoggedData(x, actions, rewards, action_names=ACTIONS, **given)


def scored(data, **changes):
    server = LyingServer(data, study_with(**changes), limits=fedopl.Limits.open()).score()
    return server.door._space


def value_of_pill(space):
    """The estimate and its standard error, on held-out rows."""
    server = LyingServer(space.study_rows.given, space.study)
    pill = server.half_space(np.zeros(N_FEATURES), -1.0, 1, 0)
    query = Value(split=RowSplit.EVALUATION, **server.policies(pill))
    found = estimate(space, query.split, [deciders(space, policies_in(query))])
    return found.means[0], np.sqrt(found.covariances[0, 0])


def test_what_both_models_miss_is_put_right_for_the_most_part(monkeypatch):
    found = np.array([value_of_pill(scored(confounded(seed))) for seed in range(10)])
    with monkeypatch.context() as without:
        without.setattr("fedopl.client.scoring.study_scores.find_products", lambda *_: None)
        before = np.array([value_of_pill(scored(confounded(seed))) for seed in range(10)])
    assert before[:, 0].mean() > 0.3
    assert abs(found[:, 0].mean()) < 0.3 * before[:, 0].mean()
    held, held_before = (np.abs(one[:, 0] - TRUTH) < 1.96 * one[:, 1] for one in (found, before))
    assert held.mean() >= 0.9
    assert held_before.mean() < 0.6


def test_values_are_the_more_unsure_the_more_they_move(monkeypatch):
    space = scored(confounded(0))
    value, error = value_of_pill(space)
    changes = space.scored.changes[space.rows(RowSplit.EVALUATION)]
    moved = changes[:, 1].mean()
    monkeypatch.setattr(corrected_scores, "_BY_SQUARES", 0.0)
    same, narrower = value_of_pill(scored(confounded(0)))
    assert value == same
    assert abs(moved) > 0.2
    assert error**2 == pytest.approx(narrower**2 + 3 * moved**2)


def test_held_out_outcomes_have_no_say(monkeypatch):
    """All that is found is found in training rows."""
    looked_at = []

    def listening(rows, allowed):
        looked_at.append(rows)
        return find_products(rows, allowed)

    monkeypatch.setattr("fedopl.client.scoring.study_scores.find_products", listening)
    space = scored(confounded(0))
    assert space.scored.changes.any()
    (rows,) = looked_at
    np.testing.assert_array_equal(rows.rewards, space.data.rewards[space.training])
    assert len(rows.rewards) < space.data.n_rows


def test_a_changed_score_is_that_of_the_better_outcome_model(monkeypatch):
    """With h added to the model's mean m: m + h + 1{A = a}·(Y − m − h)/ê."""
    found = []

    def keeping(rows, allowed):
        found.append(find_products(rows, allowed))
        return found[-1]

    monkeypatch.setattr("fedopl.client.scoring.study_scores.find_products", keeping)
    space = scored(confounded(0))
    rows = space.rows(RowSplit.EVALUATION)
    added = found[0].products.of(space.data.contexts[rows])
    took = np.eye(len(ACTIONS))[space.data.actions[rows]]
    chances = space.propensities.of(space.whole)[rows]
    changes = space.scored.changes[rows]
    np.testing.assert_allclose(changes, added - took * added / chances, atol=1e-12)


def test_scores_to_learn_from_stay_as_they_are(monkeypatch):
    space = scored(confounded(0))
    monkeypatch.setattr("fedopl.client.scoring.study_scores.find_products", lambda *_: None)
    before, rows = scored(confounded(0)), space.rows(RowSplit.TRAINING)
    np.testing.assert_array_equal(space.scores[rows], before.scores[rows])
    held_out = space.rows(RowSplit.EVALUATION)
    np.testing.assert_allclose(
        space.scores[held_out] - before.scores[held_out],
        space.scored.changes[held_out],
        atol=1e-12,
    )
    # To value what was not learned, all rows change.
    valued, valued_before = (
        next(iter(one.scored.evaluated(one.unscored_chunks()))).scores for one in (space, before)
    )
    np.testing.assert_allclose(valued - valued_before, space.scored.changes, atol=1e-12)
    assert np.abs(space.scored.changes[rows]).max() > 0.1


def test_where_all_rows_are_valued_each_is_corrected_by_what_other_folds_show(monkeypatch):
    found = []

    def keeping(rows, allowed):
        found.append((rows, allowed, find_products(rows, allowed)))
        return found[-1][-1]

    where = "fedopl.client.scoring.study_scores.find_products"
    monkeypatch.setattr(where, keeping)
    space = scored(confounded(0), evaluation="cross-fitted")
    rows, allowed, products = found[0]
    data, chances = space.data, space.propensities.of(space.whole)
    added = np.zeros((data.n_rows, len(ACTIONS)))
    for fold, own in enumerate(space.whole.fold_slices):
        added[own] = products.by_fold[fold].of(data.contexts[own])
        # Whatever the outcomes in this fold are, the same is found without it.
        noise = np.random.default_rng(fold).standard_normal(len(rows.rewards))
        other = replace(rows, rewards=rows.rewards + noise * (rows.folds == fold))
        again = find_products(other, allowed).by_fold[fold].products
        n_both = min(len(again), len(products.by_fold[fold].products))
        assert again[:n_both] == products.by_fold[fold].products[:n_both]
    changes = added * (1 - np.eye(len(ACTIONS))[data.actions] / chances)
    np.testing.assert_allclose(space.scored.changes, changes, atol=1e-12)
    assert np.abs(changes).max() > 0.1
    # They are learned from as they were, and valued as they are now.
    monkeypatch.setattr(where, lambda *_: None)
    before = scored(confounded(0), evaluation="cross-fitted")
    np.testing.assert_array_equal(space.scores, before.scores)
    valued, valued_before = (
        next(iter(one.scored.evaluated(one.unscored_chunks()))).scores for one in (space, before)
    )
    np.testing.assert_allclose(valued - valued_before, changes, atol=1e-12)


CERTAIN = {
    "known propensities": (
        confounded(0, known=True),
        {"nuisances": fedopl.NuisancePlan(propensity="known")},
    ),
    "nothing to find": (confounded(0, size=0.0), {}),
}


@pytest.mark.parametrize(("data", "changes"), CERTAIN.values(), ids=CERTAIN)
def test_nothing_is_changed_where_it_need_not_or_cannot_be(data, changes):
    assert not scored(data, **changes).scored.changes.size


@pytest.fixture
def on_disk(tmp_path):
    data = confounded(0)
    path, done = tmp_path / "rows.parquet", np.array(ACTIONS)[data.actions]
    schema = write_rows(path, data.contexts, done, data.rewards, actions=ACTIONS)
    return fedopl.read_logged(path, schema, on_disk=tmp_path / "rows")


def test_rows_on_disk_are_scored_by_the_models_alone(on_disk):
    space = scored(on_disk)
    assert on_disk.is_on_disk
    assert not space.scored.changes.size
