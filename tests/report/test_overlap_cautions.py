"""What the past does not say is said: groups that hardly got an action, and values of guesses."""

import html

import numpy as np
import pytest

import fedopl
from fedopl.report.cautions import cautions
from fedopl.report.explain.support_levels import (
    hardly_tried,
    not_identified,
    overlap_cautions,
    value_bounds,
)
from fedopl.report.page import render

pytestmark = pytest.mark.usefixtures("without_figures")

MOST = 6.0


def trial(chance, seed, n_rows=800):
    """The new drug was given with this chance where x0 > 0, and does harm there."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, 3))
    chances = np.where(x[:, 0] > 0, chance, 0.5)
    actions = (rng.random(n_rows) < chances).astype(int)
    rewards = x[:, 1] + actions * effect(x) + rng.standard_normal(n_rows)
    return fedopl.LoggedData(
        x,
        actions,
        np.clip(rewards, -MOST, MOST),
        np.column_stack([1 - chances, chances]),
        action_names=["usual", "new"],
    )


def effect(x):
    return 0.5 + x[:, 2] - 3 * (x[:, 0] > 0)


def learned(chance, policy="linear", **options):
    clients = {name: trial(chance, seed) for seed, name in enumerate("abc")}
    return clients, fedopl.learn(clients, policy=policy, basis="linear", **options)


@pytest.fixture(scope="module")
def harmful():
    return learned(0.005, declared=fedopl.Declared(reward=MOST))


def test_groups_that_hardly_got_an_action_are_named_with_what_is_decided(harmful):
    _, run = harmful
    found = hardly_tried(run)
    assert {(one.action, one.feature) for one in found} == {("new", "x0")}
    assert {one.group for one in found} == {"above 0 to 0.5", "above 0.5"}
    said = {one.title: one for one in cautions(run)}
    assert "'new' where x0 is above 0.5" in said["Decided where it was hardly tried"].what
    assert "Nobody, or next to nobody, got 'new' where x0 is above" in html.unescape(render(run))


def test_the_share_that_is_not_identified_is_within_its_bounds(harmful):
    clients, run = harmful
    contexts = np.vstack([data.contexts for data in clients.values()])
    share = np.mean((run.policy.decide(contexts) == 1) & (contexts[:, 0] > 0))
    found = not_identified(run)
    assert share > 0.1
    assert found.at_least <= share <= found.at_most


def test_a_value_of_guesses_has_bounds_that_hold(harmful):
    _, run = harmful
    x = np.random.default_rng(9).standard_normal((100_000, 3))
    true = float(np.mean(run.policy.decide(x) * effect(x)))
    estimate = run.values.of(run.chosen)
    # The interval is of what models say, and they have not seen the harm.
    assert estimate.interval()[0] > true
    low, high = value_bounds(run, not_identified(run))
    assert low < true < high
    (caution,) = [one for one in cautions(run) if one.title == "Not identified for some rows"]
    assert "whatever it is worth to them" in caution.advice


def test_nothing_is_said_where_everybody_had_a_chance():
    _, run = learned(0.3)
    assert not list(overlap_cautions(run))
    assert not hardly_tried(run)
    assert not_identified(run).at_most == 0


def test_without_a_declared_range_there_are_no_bounds_and_it_says_how_to_have_them():
    _, run = learned(0.005, policy=fedopl.Finite())
    found = not_identified(run)
    assert value_bounds(run, found) is None
    if run.chosen == "everybody gets new":
        assert found.at_least == pytest.approx(found.at_most) == pytest.approx(0.5, abs=0.05)
    (caution,) = [one for one in cautions(run) if one.title == "Not identified for some rows"]
    assert "declared.reward" in caution.advice


def test_with_caution_nothing_is_recommended_where_hardly_anybody_got_it():
    """The new drug is good everywhere, and hardly anybody above 0.5 got it."""
    clients = {name: _good_and_rare(seed) for seed, name in enumerate("abc")}
    plain = fedopl.learn(clients, basis="linear")
    assert plain.recommendation.policy in ("learned", "everybody gets new")
    careful = fedopl.learn(clients, policy=fedopl.Linear(caution=0.1), basis="linear")
    decided = careful.policy.decide(np.array([[2.0, 0.0]]))
    assert decided == [1]  # what it looks like is better by more than the doubt
    assert careful.recommendation.policy == "logging policy"
    tree = fedopl.learn(clients, policy=fedopl.Tree(bins=8, caution=0.1))
    assert tree.recommendation.policy == careful.recommendation.policy
    said = careful.recommendation.sentence
    assert "but gives 'new' where x0 is above 0.5" in said
    assert "in a study with caution that is not recommended" in said
    assert "so it is not recommended" in html.unescape(render(careful))


def _good_and_rare(seed, n_rows=1_200):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_rows, 2))
    chances = np.where(x[:, 0] > 0.5, 0.007, 0.5)
    actions = (rng.random(n_rows) < chances).astype(int)
    rewards = 3 * actions + 0.3 * rng.standard_normal(n_rows)
    known = np.column_stack([1 - chances, chances])
    return fedopl.LoggedData(x, actions, rewards, known, action_names=["usual", "new"])
