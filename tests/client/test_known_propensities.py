"""Known propensities that contradict how often actions were taken."""

import numpy as np
import pytest

import fedopl
from fedopl.client.scoring.propensity import _Sums, contradiction


def trial(shares, given, n_rows=600, seed=0, groups=None):
    """Rows of a trial with these shares of arms, and the propensities that are given with it."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n_rows, 3))
    actions = rng.choice(len(shares), n_rows, p=shares)
    rewards = contexts[:, 0] + actions + rng.standard_normal(n_rows)
    names = [f"arm {code}" for code in range(len(shares))]
    return fedopl.LoggedData(
        contexts, actions, rewards, given(contexts, actions), action_names=names, groups=groups
    )


def taken(shares):
    return lambda _contexts, actions: np.array(shares)[actions]


def always(number):
    return lambda _contexts, actions: np.full(len(actions), number)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.2, 0.8), (0.3, 0.3, 0.4), (0.05, 0.95)])
def test_true_propensities_pass(shares):
    assert not any(contradiction(trial(shares, taken(shares), seed=s)) for s in range(200))


@pytest.mark.parametrize(
    ("shares", "number"), [((0.3, 0.3, 0.4), 0.9), ((0.7, 0.3), 0.3), ((0.3, 0.7), 0.7)]
)
def test_one_number_for_all_arms_is_found_out_and_the_usual_mistake_named(shares, number):
    said = contradiction(trial(shares, always(number)))
    assert "not that of treatment" in said
    assert "there are 600 rows in all" in said


def test_small_propensities_that_nobody_took_are_no_contradiction():
    def steep(contexts, _actions):
        return 1 / (1 + np.exp(-3 * contexts[:, 0]))

    for seed in range(100):
        rng = np.random.default_rng(seed)
        contexts = rng.standard_normal((400, 3))
        chance = steep(contexts, None)
        actions = (rng.random(400) < chance).astype(int)
        given = np.where(actions == 1, chance, 1 - chance)
        data = fedopl.LoggedData(contexts, actions, rng.random(400), given)
        assert not contradiction(data)


@pytest.mark.parametrize("columns", [1, 2])
def test_a_chance_so_small_that_nobody_took_it_is_no_contradiction(columns):
    for seed in range(50):
        rng = np.random.default_rng(seed)
        contexts = rng.standard_normal((700, 2))
        chance = np.where(contexts[:, 0] > 0, 0.001, 0.5)
        actions = (rng.random(700) < chance).astype(int)
        both = np.column_stack([1 - chance, chance])
        known = both if columns == 2 else both[np.arange(700), actions]
        assert not contradiction(fedopl.LoggedData(contexts, actions, contexts[:, 0], known))


def test_rows_of_a_group_that_were_treated_together_are_no_contradiction():
    for seed in range(100):
        rng = np.random.default_rng(seed)
        school = np.repeat(np.arange(12), 100)
        actions = rng.integers(0, 2, 12)[school]
        data = fedopl.LoggedData(
            rng.standard_normal((1200, 2)),
            actions,
            rng.random(1200),
            np.full(1200, 0.5),
            action_names=["a", "b"],
            groups=school,
        )
        assert not contradiction(data)


def test_a_study_refuses_them_and_says_what_to_do():
    data = {"north": trial((0.3, 0.3, 0.4), always(0.9))}
    with pytest.raises(fedopl.FederationError, match=r"WRONG_PROPENSITIES.*not that of treatment"):
        fedopl.learn(data, basis="linear")


def test_a_few_rows_contradict_nothing_so_they_are_not_looked_at():
    """By Cauchy & Schwarz, a sum of n terms is at most √n of its standard errors off."""
    rng = np.random.default_rng(0)
    for place in range(300):
        n_rows = int(rng.integers(1, 36))
        shares = ((0.5, 0.5), (0.05, 0.95), (1.0, 0.0))[place % 3]
        known = rng.choice([1e-3, 0.5, 1.0], n_rows)
        data = trial(shares, lambda *_, known=known: known, n_rows=n_rows, seed=place)
        assert contradiction(data) == ""
        found = _Sums(data.n_actions, n_groups=0)
        found.add(data.actions, known, None)
        found.add_chances(data.actions, known)
        ratios, errors = found.ratios(n_rows), found.errors(n_rows)
        assert (np.abs(ratios - 1) <= np.sqrt(n_rows) * errors * (1 + 1e-9)).all()


def test_few_who_took_what_was_unlikely_excuse_sums_that_seem_far_off(monkeypatch):
    """What small propensities allow is looked at only where sums alone would contradict."""
    looked_at = []
    add_chances = _Sums.add_chances

    def noted(self, actions, known):
        looked_at.append(len(actions))
        add_chances(self, actions, known)

    monkeypatch.setattr(_Sums, "add_chances", noted)
    assert contradiction(trial((0.5, 0.5), always(0.5))) == ""
    assert not looked_at
    # One of 10,000 rows took what 1 in 1,000 should get.
    known = np.tile([0.999, 0.001], (10_000, 1))
    actions = np.zeros(10_000, np.int64)
    actions[0] = 1
    rare = fedopl.LoggedData(
        np.zeros((10_000, 1)), actions, np.zeros(10_000), known, action_names=("a", "b")
    )
    assert contradiction(rare) == ""
    assert looked_at == [10_000]
