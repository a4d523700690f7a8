"""Law: where values are cross-fitted, what rests on one client is found fold by fold, too."""

import numpy as np
import pytest

import fedopl
from fedopl.client.answers.handlers import HANDLERS
from fedopl.client.answers.valuing import value_personal
from fedopl.client.disclosure.limits import Limits
from fedopl.messages.evaluation.policy_values import Value
from fedopl.results.value_tables import BEST_ARM
from fedopl.study.plans import NuisancePlan

ROWS = {"x": 120, "y": 180, "z": 240}
NUISANCES = NuisancePlan(propensity="marginal", kind="local")
OPTIONS = {"basis": "linear", "evaluation": "cross-fitted", "nuisances": NUISANCES}
TREE = fedopl.Tree(cuts={"x0": (-0.5, 0.5), "x1": (0.0,)})


def logged(rng, n_rows, effect):
    """A trial with three arms."""
    contexts = rng.standard_normal((n_rows, 2))
    actions = rng.integers(0, 3, n_rows)
    rewards = effect * contexts[:, 0] * (actions - 1) + rng.standard_normal(n_rows)
    return fedopl.LoggedData(contexts, actions, rewards, action_names="abc")


def three_clients(seed, effect=1.0):
    rng = np.random.default_rng(seed)
    signs = {"x": 1.0, "y": 1.0, "z": -1.0}
    return {name: logged(rng, n_rows, effect * signs[name]) for name, n_rows in ROWS.items()}


@pytest.fixture
def spaces(monkeypatch):
    """The rows of each client as it valued them."""
    seen = {}

    def spy(space, query):
        seen[space.client] = space
        return value_personal.answer(space, query)

    monkeypatch.setitem(HANDLERS, Value, spy)
    return seen


def outside(space, fold):
    """The contexts and scores of the rows outside one fold."""
    whole = space.whole
    rows = whole.folds.of_row != fold
    return whole.data.contexts[rows], whole.scores[rows]


def with_one(contexts):
    return np.column_stack([contexts, np.ones(len(contexts))])


def weight_of_row(space, fold):
    """Clients count by all of their rows, also where a fold of these is left out."""
    return space.n_training / len(outside(space, fold)[0])


def decided_by_squares(others, fold, contexts):
    """What least squares on the others' rows outside a fold decides."""
    terms, scores = [], []
    for space in others:
        own, outcomes = outside(space, fold)
        root = np.sqrt(weight_of_row(space, fold))
        terms.append(with_one(own) * root)
        scores.append(outcomes * root)
    solved = np.linalg.lstsq(np.vstack(terms), np.vstack(scores), rcond=None)[0]
    return (with_one(contexts) @ solved).argmax(axis=1)


def best_arm_of(others, fold):
    sums = [weight_of_row(space, fold) * outside(space, fold)[1].sum(axis=0) for space in others]
    return int(sum(sums).argmax())


@pytest.mark.parametrize(("seed", "effect"), [(0, 1.0), (1, 0.0)])
def test_each_row_is_valued_by_what_the_others_would_learn_without_its_fold(seed, effect, spaces):
    """Under the limits that clients have unless they say otherwise."""
    plan = fedopl.Linear(precision="rows")
    run = fedopl.learn(three_clients(seed, effect), policy=plan, limits=Limits(), **OPTIONS)
    assert not run.refusals
    assert len(run.reliance.left_out) == 3
    arms = {}
    for one in run.reliance.left_out:
        others = [space for name, space in spaces.items() if name != one.client]
        differences, gains = [], []
        for space in others:
            whole = space.whole
            for fold, rows in enumerate(whole.fold_slices):
                contexts, scores = whole.data.contexts[rows], whole.scores[rows]
                row = np.arange(len(scores))
                without = scores[row, decided_by_squares(others, fold, contexts)]
                together = scores[row, decided_by_squares(spaces.values(), fold, contexts)]
                arm = arms.setdefault(one.client, {}).setdefault(fold, best_arm_of(others, fold))
                differences.append(without - together)
                gains.append(without - scores[:, arm])
        n_rows = sum(map(len, gains))
        assert one.difference.n_rows == one.gain_without.n_rows == n_rows
        expected = np.concatenate(differences).mean(), np.concatenate(gains).mean()
        found = one.difference.value, one.gain_without.value
        assert found == pytest.approx(expected, rel=1e-9)
    assert max(len({*own.values()}) for own in arms.values()) > 1  # arms of folds differ, too


@pytest.mark.parametrize("policy", ["linear", TREE], ids=["linear", "tree"])
def test_it_is_what_a_run_without_the_client_learns_and_is_worth(policy):
    """With local models and the same folds, the run without it has the same scores and sums."""
    clients = three_clients(3)
    run = fedopl.learn(clients, policy=policy, **OPTIONS)
    for one in run.reliance.left_out:
        others = {name: rows for name, rows in clients.items() if name != one.client}
        again = fedopl.learn(others, policy=policy, **OPTIONS)
        gain = again.gains.over(again.valued_arm)
        assert one.best_arm == again.best_arm
        assert one.gain_without.value == pytest.approx(gain.value, rel=1e-9)
        assert one.gain_without.standard_error == pytest.approx(gain.standard_error, rel=1e-9)


def test_the_gain_is_over_the_best_arm_as_it_was_valued(spaces):
    run = fedopl.learn(three_clients(1, 0.0), **OPTIONS)
    assert run.valued_arm == BEST_ARM
    (one, *_) = run.reliance.left_out
    learned, arm = (
        [run.values.of(policy, name).value for name in sorted(ROWS) if name != one.client]
        for policy in ("learned", BEST_ARM)
    )
    rows = [n_rows for name, n_rows in sorted(ROWS.items()) if name != one.client]
    gain = np.average(np.subtract(learned, arm), weights=rows)
    assert one.gain.value == pytest.approx(gain, rel=1e-9)
