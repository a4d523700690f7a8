"""Laws: row order and action names change nothing; a row's reward never meets its own nuisance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedopl
from fedopl.client.disclosure.ledger import MemoryLedger
from fedopl.client.disk.store import MemoryStore
from fedopl.client.door import Door
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study


@st.composite
def logged(draw, grouped=False):
    """Logged data of any small size, with an action or two that may be rare."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, n_features = draw(st.integers(8, 60)), draw(st.integers(1, 6))
    n_actions = draw(st.integers(2, 4))
    fields = {
        "contexts": rng.standard_normal((n_rows, n_features)),
        "actions": np.append(rng.integers(0, n_actions, n_rows - 4), [0, 0, 1, 1]),
        "rewards": rng.standard_normal(n_rows) * draw(st.sampled_from([1e-3, 1.0, 1e6])),
    }
    if draw(st.booleans()):
        fields["weights"] = rng.uniform(0.5, 2, n_rows)
    if grouped:
        fields["groups"] = rng.integers(0, n_rows // 2, n_rows)
    return fields, [f"a{action}" for action in range(n_actions)]


def scores_of(fields, names, **options):
    data = fedopl.LoggedData(**fields, action_names=names)
    nuisances = fedopl.cross_fit(data, **{"propensity": "marginal", **options})
    return nuisances, fedopl.aipw_scores(data, nuisances).values


def assert_same(left, right):
    scale = np.nanmax(np.abs(left), initial=1e-300)
    np.testing.assert_allclose(left, right, rtol=1e-7, atol=1e-7 * scale)


@given(logged() | logged(grouped=True), st.randoms(use_true_random=False))
@pytest.mark.parametrize("outcome", ["ridge", "ols"])
def test_the_order_of_rows_changes_nothing(outcome, drawn, random):
    fields, names = drawn
    order = list(range(len(fields["rewards"])))
    random.shuffle(order)
    nuisances, values = scores_of(fields, names, outcome=outcome)
    shuffled, moved = scores_of(
        {name: column[order] for name, column in fields.items()}, names, outcome=outcome
    )
    np.testing.assert_array_equal(shuffled.folds, nuisances.folds[order])
    assert_same(values[order], moved)


@given(logged() | logged(grouped=True), st.randoms(use_true_random=False))
def test_what_actions_are_called_changes_nothing(drawn, random):
    fields, names = drawn
    new_code = list(range(len(names)))
    random.shuffle(new_code)
    nuisances, values = scores_of(fields, names)
    renamed = {**fields, "actions": np.array(new_code)[fields["actions"]]}
    again, moved = scores_of(renamed, [f"renamed {name}" for name in names])
    np.testing.assert_array_equal(again.folds, nuisances.folds)
    assert_same(values, moved[:, new_code])


@given(logged() | logged(grouped=True), st.data())
@pytest.mark.parametrize("outcome", ["ridge", "ols"])
def test_a_rows_own_reward_never_enters_its_own_nuisance(outcome, drawn, data):
    fields, names = drawn
    row = data.draw(st.integers(0, len(fields["rewards"]) - 1))
    nuisances, _ = scores_of(fields, names, outcome=outcome)
    rewards = fields["rewards"].copy()
    rewards[row] += 1e3 * (1 + np.abs(rewards).max())
    perturbed, _ = scores_of({**fields, "rewards": rewards}, names, outcome=outcome)
    np.testing.assert_array_equal(perturbed.folds, nuisances.folds)
    mates = nuisances.folds == nuisances.folds[row]
    tolerance = 1e-9 * np.abs(fields["rewards"]).max()
    np.testing.assert_allclose(
        perturbed.outcome_means[mates], nuisances.outcome_means[mates], atol=tolerance, rtol=0
    )
    others = ~mates & np.isfinite(nuisances.outcome_means[:, fields["actions"][row]])
    if others.any():
        moved = perturbed.outcome_means - nuisances.outcome_means
        assert np.abs(moved[others, fields["actions"][row]]).max() > 100 * tolerance


def test_a_door_opened_anew_for_every_question_answers_with_the_same_bytes():
    """What is too small to be released is struck out of answers, and of nothing that is kept."""
    study = fedopl.Study(
        actions=("a0", "a1", "a2"),
        features=("x0", "x1", "x2"),
        policy=fedopl.Linear(oracle="csoaa-exact"),
        nuisances=fedopl.NuisancePlan(propensity="marginal", folds=2),
    )

    def opening(turn):
        rng = np.random.default_rng(turn)
        contexts, actions = rng.standard_normal((80, 3)), rng.integers(0, 3, 80)
        rewards = actions * contexts[:, 0] + rng.standard_normal(80)
        data = fedopl.LoggedData(contexts, actions, rewards, action_names=list(study.actions))
        store, ledger = MemoryStore(), MemoryLedger()
        return lambda: Door(f"c{turn}", data, study, store=store, ledger=ledger, secret="any")

    class Anew:
        def __init__(self, is_kept):
            doors = {f"c{turn}": opening(turn) for turn in range(4)}
            self.kept = {name: opened() for name, opened in doors.items()}
            self.doors = {
                name: (lambda name=name: self.kept[name]) if is_kept else opened
                for name, opened in doors.items()
            }

        clients = ("c0", "c1", "c2", "c3")

        def exchange(self, queries):
            for name, query in queries.items():
                answer = self.doors[name]().handle(query)
                answers[-1].append(answer)
                yield name, answer

    answers = []
    for is_kept in (True, False):
        answers.append([])
        run_study(Conversation(study, Anew(is_kept)))
    assert answers[0] == answers[1]
