"""Law: where values are cross-fitted, whether joining pays is judged fold by fold, too."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import fedopl
from fedopl.client.answers.handlers import HANDLERS
from fedopl.client.answers.valuing import value_personal
from fedopl.client.disclosure.limits import Limits
from fedopl.messages.evaluation.policy_values import Value
from fedopl.results.value_tables import LOCAL
from fedopl.study.mixture import ALPHAS
from fedopl.study.plans import NuisancePlan

ROWS = {"x": 150, "y": 210, "z": 270}
SIGNS = {"x": 1.0, "y": 1.0, "z": -1.0}
NUISANCES = NuisancePlan(propensity="marginal", kind="local")
OPTIONS = {"basis": "linear", "evaluation": "cross-fitted", "nuisances": NUISANCES}
PLANS = {
    "linear": fedopl.Linear(precision="rows"),
    "tree": fedopl.Tree(cuts={"x0": (-0.5, 0.0, 0.5), "x1": (0.0,)}),
}


def logged(rng, name):
    """A trial with three arms, where clients see other people and differ in what helps."""
    contexts = rng.standard_normal((ROWS[name], 2)) + 0.8 * (name == "x")
    actions = rng.integers(0, 3, ROWS[name])
    rewards = SIGNS[name] * contexts[:, 0] * (actions - 1) + rng.standard_normal(ROWS[name])
    return fedopl.LoggedData(contexts, actions, rewards, action_names="abc")


@pytest.fixture(scope="module")
def clients():
    rng = np.random.default_rng(7)
    return {name: logged(rng, name) for name in ROWS}


@pytest.fixture(scope="module", params=PLANS)
def judged(request, clients):
    """A run with its diagnosis, under the limits that clients have unless they say otherwise."""
    spaces = {}

    def spy(space, query):
        spaces[space.client] = space
        return value_personal.answer(space, query)

    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(HANDLERS, Value, spy)
        plan = PLANS[request.param]
        run = fedopl.learn(clients, policy=plan, diagnose=True, limits=Limits(), **OPTIONS)
    assert not run.refusals
    assert not run.diagnosis.unknown
    return run, spaces, request.param


def with_one(contexts):
    return np.column_stack([contexts, np.ones(len(contexts))])


def solved(spaces, signed, fold):
    """The least-squares policy for signed weights of clients, of the rows outside a fold."""
    terms, scores = [], []
    for name, sign in signed.items():
        whole = spaces[name].whole
        rows = whole.folds.of_row != fold
        root = np.sqrt(abs(sign) / rows.sum())
        terms.append(with_one(whole.data.contexts[rows]) * root)
        scores.append(np.sign(sign) * whole.scores[rows] * root)
    return np.linalg.lstsq(np.vstack(terms), np.vstack(scores), rcond=None)[0]


def values_by_fold(spaces, signed):
    """By client, what each row is worth by the policy for these weights without the row's fold."""
    policies, found = [solved(spaces, signed, fold) for fold in range(5)], {}
    for name, space in spaces.items():
        whole = space.whole
        found[name] = np.empty(space.n_training)
        for policy, rows in zip(policies, whole.fold_slices, strict=True):
            decided = (with_one(whole.data.contexts[rows]) @ policy).argmax(axis=1)
            found[name][rows] = whole.scores[rows][np.arange(len(decided)), decided]
    return found


def in_all(by_client, signed):
    return sum(sign * by_client[name].mean() for name, sign in signed.items())


def shares(names):
    return {name: ROWS[name] / sum(ROWS[own] for own in names) for name in names}


def test_coalitions_are_worth_what_runs_of_their_members_say(judged, clients):
    """With local models and the same folds, a run of the members has the same scores and sums."""
    run, _, kind = judged
    for one in run.diagnosis.coalitions.compared:
        members = {name: clients[name] for name in one.members}
        again = fedopl.learn(members, policy=PLANS[kind], **OPTIONS)
        for name in members:
            gain, found = again.gains.over(LOCAL, name), one.gains[name]
            assert found.value == pytest.approx(gain.value, abs=1e-9)
            assert found.standard_error == pytest.approx(gain.standard_error, abs=1e-9)
            assert found.n_rows == ROWS[name]


# Plain loops are of least squares.
ONLY_LINEAR = pytest.mark.parametrize("judged", ["linear"], indirect=True)


@ONLY_LINEAR
def test_data_are_worth_what_is_lost_without_them_fold_by_fold(judged):
    run, spaces, _ = judged
    together = values_by_fold(spaces, shares(ROWS))
    for name, worth in run.diagnosis.coalitions.worth_of_data.items():
        others = values_by_fold(spaces, shares([own for own in ROWS if own != name]))
        lost = in_all(together, shares(ROWS)) - in_all(others, shares(ROWS))
        assert worth.value == pytest.approx(lost, abs=1e-9)


@ONLY_LINEAR
def test_discrepancies_are_at_policies_learned_to_show_them_without_each_fold(judged):
    run, spaces, _ = judged
    for name, found in run.diagnosis.discrepancies.items():
        signed = {own: (own == name) - share for own, share in shares(ROWS).items()}
        opposite = {own: -sign for own, sign in signed.items()}
        above = in_all(values_by_fold(spaces, signed), signed)
        below = in_all(values_by_fold(spaces, opposite), opposite)
        assert found.above.value == pytest.approx(above, abs=1e-9)
        assert found.below.value == pytest.approx(below, abs=1e-9)
        assert found.gap.value == pytest.approx(above + below, abs=1e-9)


@ONLY_LINEAR
def test_paths_are_of_policies_learned_without_each_fold(judged):
    run, spaces, _ = judged
    base = shares(ROWS)
    start = values_by_fold(spaces, base)
    for name, path in run.diagnosis.paths.items():
        assert [point.alpha for point in path.points] == [0.0, *ALPHAS]
        for point in path.points:
            signed = {
                own: (1 - point.alpha) * share + point.alpha * (own == name)
                for own, share in base.items()
            }
            values = values_by_fold(spaces, {own: sign for own, sign in signed.items() if sign})
            assert point.at_target.value == pytest.approx(values[name].mean(), abs=1e-9)
            gain = in_all(values, base) - in_all(start, base)
            assert point.base_gain.value == pytest.approx(gain, abs=1e-9)


@ONLY_LINEAR
def test_classifiers_of_contexts_are_judged_on_a_fold_that_they_were_not_fitted_to(judged):
    run, spaces, _ = judged
    for name, found in run.diagnosis.classifiers.items():
        contexts, labels, weights, taken = [], [], [], {}
        for own, space in spaces.items():
            whole, share = space.whole, shares(set(ROWS) - {name}).get(own, 1.0)
            rows = whole.data.contexts[whole.folds.of_row != 0]
            contexts.append(rows)
            labels += [own == name] * len(rows)
            weights += [share / 2 / len(rows)] * len(rows)
        # The study's ridge is tiny, and so is this one's.
        model = LogisticRegression(C=1e6, tol=1e-10).fit(np.vstack(contexts), labels, weights)
        for own, space in spaces.items():
            whole = space.whole
            taken[own] = model.predict(whole.data.contexts[whole.folds.of_row == 0]).mean()
        others = shares(set(ROWS) - {name})
        bound = taken[name] - sum(share * taken[own] for own, share in others.items())
        assert found.total_variation == pytest.approx(bound, abs=0.02)
