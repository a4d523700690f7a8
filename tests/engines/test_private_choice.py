"""The best of candidates with differential privacy: what is chosen, what may be moved, refusals."""

import re
from dataclasses import replace

import numpy as np
import pytest

import fedopl
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import PrivateDraws
from fedopl.client.door import Door
from fedopl.client.private.private_answers import sum_candidates
from fedopl.client.private.private_workspace import Noise, PrivateWorkspace
from fedopl.engines.privacy_price import noise_table, prices
from fedopl.messages.private.noised_scores import NoisedScores, SumCandidates
from fedopl.messages.private.noised_sums import NoisedSums
from fedopl.messages.sensitivity import declared_moves
from fedopl.messages.vocabulary import queries_of
from fedopl.policies.kinds import packed
from fedopl.policies.linear import LinearPolicy, constant_policy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Branch, Leaf
from fedopl.privacy.exact_noise import FINE
from fedopl.report.page import render
from fedopl.study.private.private_setting import PrivateSetting

pytestmark = pytest.mark.usefixtures("without_figures")

FEATURES, ACTIONS = ("x0", "x1"), ("a", "b", "c")
PLAN = fedopl.PrivacyPlan(epsilon=4, outcome=(-4, 4), ranges=dict.fromkeys(FEATURES, (-2.0, 2.0)))
DECLARED = fedopl.Declared(overlap=1 / 3)
TREE = TreePolicy(Branch(0, 0.0, Leaf(0), Leaf(1)), ACTIONS, FEATURES)
FLAT = LinearPolicy(np.array([[0.0, 1, 0], [0, -1, 0], [0, 0, -9]]), ACTIONS, FEATURES)


def trial(n_rows, seed, best="tree", **changed):
    """Three arms; the action that the tree, the linear policy or an arm takes is worth 1 more."""
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(n_rows, 2))
    actions = rng.integers(3, size=n_rows)
    right = {"tree": TREE, "flat": FLAT, "arm": constant_policy("b", ACTIONS, FEATURES)}[best]
    rows = {
        "contexts": contexts,
        "actions": actions,
        "rewards": (actions == right.decide(contexts)) + rng.normal(size=n_rows),
        "propensities": np.full(n_rows, 1 / 3),
    }
    for name, (place, value) in changed.items():
        rows[name][place] = value
    return fedopl.LoggedData(**rows, action_names=ACTIONS, feature_names=FEATURES)


def chosen(best="tree", names="xyz", **candidates):
    return fedopl.learn(
        {name: trial(1500, place, best) for place, name in enumerate(names)},
        policy=fedopl.Finite(candidates=candidates or {"tree": TREE, "flat": FLAT}),
        privacy=PLAN,
        declared=DECLARED,
        running=fedopl.Running(secret="of candidates"),
    )


@pytest.mark.parametrize("best", ["tree", "flat", "arm"])
def test_the_best_is_chosen_through_the_noise_and_valued(best, tmp_path):
    run = chosen(best)
    assert run.chosen == {"arm": "everybody gets b"}.get(best, best)
    low, high = run.values.of(run.chosen).interval()
    assert low <= 1 <= high
    compared = {row.policy for row in run.values.rows}
    assert len(compared) == 4  # itself, an arm or the next best, what was done, the client's own
    assert f"everybody gets {run.best_arm}" in compared
    run.save(tmp_path / "run")
    assert str(fedopl.load_run(tmp_path / "run")) == str(run)
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", render(run)))
    assert "was chosen, by sums with noise" in page
    assert "Sums of candidates&#39; scores" in page
    contexts = np.random.default_rng(5).normal(size=(50, 2))
    right = {"tree": TREE, "flat": FLAT}.get(best) or constant_policy("b", ACTIONS, FEATURES)
    np.testing.assert_array_equal(run.policy.decide(contexts), right.decide(contexts))


def test_a_function_is_refused_as_it_may_look_at_many_rows():
    with pytest.raises(fedopl.OptionError, match="'rule' is a function, and may look at many rows"):
        chosen(rule=lambda contexts: np.zeros(len(contexts), int))


def test_numbers_that_no_rows_can_have_are_rejected(monkeypatch):
    honest = Door._computed

    def lying(door, query):
        found = honest(door, query)
        if door.name == "w" and isinstance(found, NoisedScores):
            return replace(found, sums=1e9 * np.arange(5.0))
        return found

    monkeypatch.setattr(Door, "_computed", lying)
    run = chosen(names="wxyz")
    rejected = {name: why for one in run.rounds for name, why in one.rejected.items()}
    assert "more than its rows can have" in rejected["w"]
    assert run.chosen == "tree"


def test_no_row_moves_scores_further_than_noise_is_for(monkeypatch):
    study = chosen().study
    setting, rng, furthest = PrivateSetting(study), np.random.default_rng(0), 0.0
    names = {query.__name__ for query in queries_of(study)}
    assert names == {"Enrol", "SumPrivately", "SumCandidates", "ValuePrivately"}
    monkeypatch.setattr(Noise, "added", lambda _self, sums, *_: sums / FINE)

    def space(data):
        return PrivateWorkspace(data, study, Limits.open(), PrivateDraws(0, "one", "s" * 32))

    row = 0
    arms = [constant_policy(action, ACTIONS, FEATURES) for action in ("a", "a", "b", "b")]
    query = SumCandidates(models=np.zeros((3, 3)), **packed([*arms, TREE], study))
    fewer = SumCandidates(models=np.zeros((3, 3)), **packed(arms, study))
    assert query.is_plausible(study)
    assert not fewer.is_plausible(study)  # noise is for all of them
    for seed in range(150):
        data = trial(
            40,
            seed,
            contexts=(row, rng.normal(size=2)),
            rewards=(row, 10.0 ** rng.integers(5) * rng.normal()),
            propensities=(row, rng.choice([1e-9, 1.0])),
        )
        query = replace(query, models=rng.choice([0.0, 3.0]) * rng.normal(size=(3, 3)))
        with_it, without = space(data), space(data)
        without.rows.__dict__["_is_used"] = np.arange(40) != row
        moved = sum_candidates(with_it, query).sums - sum_candidates(without, query).sums
        furthest = max(furthest, float(np.linalg.norm(moved)))
    most = declared_moves(NoisedScores)["sums"].at_most(study)
    assert 0.8 * most < furthest <= most * (1 + 1e-9)
    fields = {"squares": NoisedSums, "products": NoisedSums}
    spent = (most / setting.deviation("scores")) ** 2 + sum(
        (declared_moves(answer)[name].at_most(study) / setting.deviation(name)) ** 2
        for name, answer in fields.items()
    )
    assert spent <= PLAN.mu**2 * (1 + 1e-9)


def test_the_price_of_a_choice_is_what_is_lost_to_the_best_candidate():
    study = chosen().study
    assert "Sums of candidates' scores" in noise_table(study)
    much, hardly_any = prices(study, [300], (0.05,))
    assert much.regret > hardly_any.regret >= 0
