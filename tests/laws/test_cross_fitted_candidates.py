"""Law: the best candidate is chosen for each fold by the others, and valued as if by hand."""

from itertools import combinations

import by_hand
import numpy as np
import pytest

import fedopl
from fedopl.client.answers.valuing import estimate_values
from fedopl.client.answers.valuing.estimate_values import estimate
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disk.personal_store import kept_rule
from fedopl.messages.evaluation.policy_values import Value
from fedopl.messages.message import RowSplit
from fedopl.policies.kinds import packed
from fedopl.policies.linear import constant_policy
from fedopl.policies.policy import Policy
from fedopl.policies.trees.nodes import Branch, Leaf
from fedopl.report.page import render
from fedopl.results.files.run_folder import load_record, save_record
from fedopl.results.value_tables import BEST_CANDIDATE, PERSONAL
from fedopl.server import policy_comparison
from fedopl.server.exchange_counts import expected_exchanges, expected_trips
from fedopl.server.learn_by_fold import learn_by_fold
from fedopl.solvers.personal_choice import ChoicePath
from fedopl.solvers.personal_ridge import Strengths

pytestmark = pytest.mark.usefixtures("without_figures")

FOLDS = range(5)
# Of clients that differ, so that own rows count.
LIFTS, DIFFERING = {"x": 0.4, "y": -0.4, "z": 0.0}, 0
SAID = 2  # a world in which the best candidate is no arm
NUISANCES = fedopl.NuisancePlan(propensity="marginal")
ROWS = {"x": 110, "y": 163, "z": 140}
ACTIONS, FEATURES = ("a", "b", "c"), ("x0", "x1", "x2")


def above(x):
    return np.where(x[:, 0] > 0.4, 2, 0)


def below(x):
    return np.where(x[:, 1] > 0, 1, 0)


SLOPES = np.array([[-0.5, 0.1, 0, 0], [0, 0, 0, 0.05], [0.5, 0, 0.1, 0]])
LINE = fedopl.LinearPolicy(SLOPES, action_names=ACTIONS, feature_names=FEATURES)
TREE = fedopl.TreePolicy(Branch(0, 0.0, Leaf(0), Leaf(2)), ACTIONS, FEATURES)
# Of several kinds, which a message does not carry side by side.
CANDIDATES = {"above": above, "line": LINE, "tree": TREE, "below": below}
ARMS = {f"everybody gets {name}": place for place, name in enumerate(ACTIONS)}


def logged(rng, n_rows, lift=0.0, **given):
    """A trial with three arms of which none is much better than another, unless one is lifted."""
    contexts = rng.standard_normal((n_rows, 3))
    actions = rng.integers(0, 3, n_rows)
    rewards = 0.2 * contexts[:, 0] * (actions - 1) + 0.1 * (actions == 1)
    rewards += lift * (actions == 2) + rng.standard_normal(n_rows)
    names = {"action_names": ACTIONS, "feature_names": FEATURES}
    return fedopl.LoggedData(contexts, actions, rewards, **names, **given)


def made(seed, *, weighted=False, lift=0.0):
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 4, max(ROWS.values())) / 2
    return {
        name: logged(rng, n, lift, **({"weights": weights[:n]} if weighted else {}))
        for name, n in ROWS.items()
    }


@pytest.fixture
def spaces(monkeypatch):
    found = {}

    def spy(space, split, asked, without=None):
        found[space.client] = space
        return estimate(space, split, asked, without)

    monkeypatch.setattr(estimate_values, "estimate", spy)
    return found


def learned(clients, **options):
    """Under the limits that clients have unless they say otherwise."""
    options = {"policy": fedopl.Finite(candidates=CANDIDATES), **options}
    options |= {"evaluation": "cross-fitted", "limits": Limits(), "nuisances": NUISANCES}
    run = fedopl.learn(clients, **options)
    assert not run.refusals
    return run


def codes(name, contexts):
    if name in ARMS:
        return np.full(len(contexts), ARMS[name])
    own = CANDIDATES[name]
    return own.decide(contexts) if isinstance(own, Policy) else own(contexts)


def worth(space, name):
    """Each row's score of what a candidate decides."""
    whole = space.whole
    return whole.scores[np.arange(len(whole.scores)), codes(name, whole.data.contexts)]


def rows_in(space, fold):
    return space.whole.folds.of_row == fold


def moments(space, names, rows):
    """Means, and covariances of these means, over some of the rows."""
    each = np.column_stack([worth(space, name) for name in names])[rows]
    weights = space.whole.data.weights_of(slice(None))[rows]
    means = np.average(each, axis=0, weights=weights)
    apart = (each - means) * weights[:, None]
    n = len(each)
    return means, n / (n - 1) * apart.T @ apart / weights.sum() ** 2


def in_mixture(spaces, weights, rows_of, *, caution=0.0):
    """What each candidate is judged by on these rows of all clients."""
    total, squares = 0.0, 0.0
    for name, space in spaces.items():
        means, covariances = moments(space, [*ARMS, *CANDIDATES], rows_of(space))
        total = total + weights[name] * means
        squares = squares + weights[name] ** 2 * np.diagonal(covariances)
    return dict(zip([*ARMS, *CANDIDATES], total - caution * np.sqrt(squares), strict=True))


def best(judged):
    return max(judged, key=judged.__getitem__)


def without(fold):
    return lambda space: ~rows_in(space, fold)


def all_rows(space):
    return np.ones(len(space.whole.scores), bool)


def by_count():
    return {name: n / sum(ROWS.values()) for name, n in ROWS.items()}


def check_values(run, spaces, chosen, weights):
    """The chosen one's value is that of each fold's, and a fixed one's its own on all rows."""
    total = dict.fromkeys([BEST_CANDIDATE, *ARMS, *CANDIDATES], 0.0)
    for client, space in spaces.items():
        each = {name: worth(space, name) for name in [*ARMS, *CANDIDATES]}
        each[BEST_CANDIDATE] = np.choose(space.whole.folds.of_row, [each[one] for one in chosen])
        counted = space.whole.data.weights_of(slice(None))
        for name, own in each.items():
            value = np.average(own, weights=counted)
            found = run.values.of(name, client)
            assert found.value == pytest.approx(value, rel=1e-9, abs=1e-12)
            assert found.n_rows == ROWS[client]
            total[name] += weights[client] * value
    for name, value in total.items():
        assert run.values.of(name).value == pytest.approx(value, rel=1e-9, abs=1e-12)
        if name not in (run.chosen, BEST_CANDIDATE):
            over = run.gains.over(name).value
            assert over == pytest.approx(total[BEST_CANDIDATE] - value, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("seed", "weighted", "caution"), [(0, False, 0.0), (1, True, 0.0), (2, False, 1.0)]
)
def test_each_fold_is_valued_by_the_candidate_that_is_best_in_the_others(
    seed, weighted, caution, spaces
):
    plan = fedopl.Finite(candidates=CANDIDATES, caution=caution)
    run = learned(made(seed, weighted=weighted), policy=plan)
    judged = [in_mixture(spaces, by_count(), without(k), caution=caution) for k in FOLDS]
    chosen = [best(own) for own in judged]
    assert len({*chosen}) > 1
    assert run.chosen == best(in_mixture(spaces, by_count(), all_rows, caution=caution))
    check_values(run, spaces, chosen, by_count())
    assert run.valued_as == BEST_CANDIDATE
    assert run.chosen not in {row.against for row in run.gains.rows}
    assert BEST_CANDIDATE not in {row.policy for row in run.improvements.rows}
    described = run.described.decided()[-1].sum(axis=0)
    pooled = np.concatenate([codes(run.chosen, own.data.contexts) for own in spaces.values()])
    assert described / described.sum() == pytest.approx(
        np.bincount(pooled, minlength=3) / len(pooled), abs=0.02
    )


def test_only_what_was_chosen_by_fold_has_a_larger_variance(spaces):
    run = learned(made(0))
    chosen = [best(in_mixture(spaces, by_count(), without(k))) for k in FOLDS]
    for client, space in spaces.items():
        contexts, n = space.whole.data.contexts, ROWS[client]
        apart = [
            (codes(a, contexts) != codes(b, contexts)).mean() for a, b in combinations(chosen, 2)
        ]
        for name in [*ARMS, *CANDIDATES]:
            error = worth(space, name).std(ddof=1) / np.sqrt(n)
            assert run.values.of(name, client).standard_error == pytest.approx(error, rel=1e-9)
        mine = np.choose(space.whole.folds.of_row, [worth(space, one) for one in chosen])
        wider = mine.var(ddof=1) / n * (1 + 2 * np.mean(apart))
        found = run.values.of(BEST_CANDIDATE, client).standard_error
        assert found**2 == pytest.approx(wider, rel=1e-9)
        other = next(name for name in CANDIDATES if name != run.chosen)
        wider = (mine - worth(space, other)).var(ddof=1) / n * (1 + 2 * np.mean(apart))
        found = run.gains.over(other, client).standard_error
        assert found**2 == pytest.approx(wider, rel=1e-9)


def test_where_all_folds_choose_the_same_it_is_valued_as_itself(spaces):
    rng = np.random.default_rng(0)
    clients = {}
    for name, n in ROWS.items():
        data = logged(rng, n)
        rewards = data.rewards + 2 * (data.actions == codes("tree", data.contexts))
        names = {"action_names": ACTIONS, "feature_names": FEATURES}
        clients[name] = fedopl.LoggedData(data.contexts, data.actions, rewards, **names)
    run = learned(clients)
    assert {best(in_mixture(spaces, by_count(), without(k))) for k in FOLDS} == {"tree"}
    assert run.valued_as == run.chosen == "tree"
    assert BEST_CANDIDATE not in {row.policy for row in run.values.rows}
    for client, space in spaces.items():
        apart = worth(space, "tree") - worth(space, "above")
        over = run.gains.over("above", client)
        assert over.value == pytest.approx(apart.mean(), rel=1e-9)
        error = apart.std(ddof=1) / np.sqrt(len(apart))
        assert over.standard_error == pytest.approx(error, rel=1e-9)


def test_a_run_says_whose_gains_they_are(tmp_path):
    run = learned(made(SAID))
    save_record(run, tmp_path / "run")
    again = load_record(tmp_path / "run")
    assert again.valued_as == BEST_CANDIDATE
    assert f"The best candidate of the other folds (of all rows '{run.chosen}')" in str(again)
    assert "Every candidate is valued on all rows" in str(again)
    page = render(again)
    assert "Gain of the best candidate of the other folds" in page
    assert "the best one was chosen for each fold by the others" in page
    assert "held-out" not in page
    assert "held out" not in page


def test_a_personal_choice_is_made_without_each_fold(spaces):
    rng = np.random.default_rng(DIFFERING)
    clients = {name: logged(rng, 150, lift) for name, lift in LIFTS.items()}
    run = learned(clients, personal="ridge")
    names = [*ARMS, *CANDIDATES]
    differ, careless = set(), set()
    for client, space in spaces.items():
        chosen = [own_choice(client, spaces, names, without(k)) for k in FOLDS]
        differ.add(len({*chosen}))
        by_all = [own_choice(client, spaces, names, without(k), all_rows) for k in FOLDS]
        careless.add(by_all != chosen)
        mine = np.choose(space.whole.folds.of_row, [worth(space, one) for one in chosen])
        assert run.values.of(PERSONAL, client).value == pytest.approx(mine.mean(), rel=1e-9)
        last = own_choice(client, spaces, names, all_rows)
        kept, rule = space.personal_policy, kept_rule(space.store, space.study, client)
        x = space.whole.data.contexts
        assert np.array_equal(kept.decide(x) if kept else codes(rule, x), codes(last, x))
    assert max(differ) > 1
    assert True in careless  # own rows of the fold would have chosen another one
    against = {row.against for row in run.personal.rows}
    assert run.valued_as in against


def own_choice(client, spaces, names, rows_of, own_rows_of=None):
    """The candidate of a client's own values and others', by how likely strengths are."""
    by_client = {name: rows_of(space) for name, space in spaces.items()}
    by_client[client] = (own_rows_of or rows_of)(spaces[client])
    found = {name: moments(space, names, by_client[name]) for name, space in spaces.items()}
    weights = dict.fromkeys(spaces, 1 / len(spaces))

    def path(name):
        rest = {one: weights[one] for one in spaces if one != name}
        others = sum(w * found[one][0] for one, w in rest.items()) / sum(rest.values())
        own, covariances = found[name]
        n_rows = int(by_client[name].sum())
        return ChoicePath(own=own, covariances=covariances, n_rows=n_rows, others=others)

    others = np.mean([path(one).log_likelihoods() for one in spaces if one != client], axis=0)
    own = path(client)
    strengths = Strengths(own=own.log_likelihoods(), others=others)
    return names[int(np.argmax(own.mean(strengths.weights)))]


@pytest.mark.parametrize("share", [0.15, 0.35])
def test_within_a_budget_each_fold_has_the_candidate_that_is_best_at_the_price(share, spaces):
    run = learned(made(4, lift=0.3), budget=fedopl.Budget(shares={"c": share}))
    price, costs = run.within_budget().price, dict.fromkeys([*ARMS, *CANDIDATES], 0.0)
    for client, space in spaces.items():
        for name in costs:
            spent = (codes(name, space.whole.data.contexts) == 2).mean()
            costs[name] += by_count()[client] * spent
    assert run.within_budget().candidate == run.chosen
    assert costs[run.chosen] <= share
    assert price > 0
    chosen = []
    for fold in FOLDS:
        judged = in_mixture(spaces, by_count(), without(fold))
        chosen.append(best({name: judged[name] - price * costs[name] for name in costs}))
    assert len({*chosen}) > 1
    check_values(run, spaces, chosen, by_count())
    for name, place in zip(run.curve.names, range(len(run.curve.names)), strict=True):
        mixed = sum(by_count()[one] * told.costs[place] for one, told in run.curve.clients.items())
        assert mixed == pytest.approx(costs[name], abs=1e-12)
    assert "by values and spending on all rows" in str(run)


def test_the_client_that_loses_most_is_found_without_each_fold(spaces):
    run = learned(made(5), mixture="minimax")
    names = [*ARMS, *CANDIDATES]

    def climbed(rows_of):
        """The largest regret of any client, as small as steps of the ascent can make it."""
        means = {name: moments(space, names, rows_of(space))[0] for name, space in spaces.items()}

        def best_for(weights):
            return int(np.argmax(sum(weights[name] * means[name] for name in sorted(means))))

        def values(place):
            return {name: own[place] for name, own in means.items()}

        return names[by_hand.ascent(by_count(), best_for, values, 15)[1]]

    chosen = [climbed(without(k)) for k in FOLDS]
    assert run.chosen == climbed(all_rows)
    assert len({*chosen}) > 1
    check_values(run, spaces, chosen, run.mixture)


def test_a_question_names_folds_and_policies_that_there_are():
    options = {"actions": ACTIONS, "features": FEATURES, "policy": "finite"}
    held_out = fedopl.Study(**options, evaluation=0.25)
    by_fold = fedopl.Study(**options, evaluation="cross-fitted")

    def can_be(study, split, versions=None, n_policies=2, **more):
        policies = packed([constant_policy("a", ACTIONS, FEATURES)] * n_policies, study)
        more |= {} if versions is None else {"versions": np.array(versions, float)}
        return Value(split=split, **policies, **more).is_plausible(study)

    versions = [[0, 1, 0, 0, 1], [1] * 5, [0] * 5]
    assert can_be(by_fold, RowSplit.EACH_FOLD, versions)
    assert can_be(held_out, RowSplit.EVALUATION)
    assert can_be(by_fold, RowSplit.TRAINING, without=4)
    assert not can_be(held_out, RowSplit.EACH_FOLD, versions)
    assert not can_be(held_out, RowSplit.TRAINING, without=4)
    assert not can_be(by_fold, RowSplit.EACH_FOLD)
    assert not can_be(by_fold, RowSplit.TRAINING, versions)
    assert not can_be(by_fold, RowSplit.EACH_FOLD, versions, without=4)
    for wrong in ([[0, 1, 0, 0, 2]], [[0, 1, 0, 0, -1]], [[0, 1, 0, 0, 0.5]], [[0] * 5]):
        assert not can_be(by_fold, RowSplit.EACH_FOLD, wrong), wrong
    assert not can_be(by_fold, RowSplit.EACH_FOLD, [[0, 1, 0, 1]])
    for fold in (-2, 5):
        assert not can_be(by_fold, RowSplit.TRAINING, without=fold)
    assert not can_be(by_fold, RowSplit.EACH_FOLD, [[0, 1, 0, 1, 0]] * 100)


def test_no_trip_more_is_needed_than_with_rows_held_out(spaces):
    clients = made(0)
    options = {"policy": fedopl.Finite(candidates=CANDIDATES), "nuisances": NUISANCES}
    held_out = fedopl.learn(clients, **options)
    run = learned(clients)
    trips = [{one.trip for one in own.rounds} for own in (held_out, run)]
    assert len(trips[0]) == len(trips[1]) == expected_trips(run.study, len(ROWS))
    assert len(run.rounds) == expected_exchanges(run.study, len(ROWS))


@pytest.mark.slow_law
@pytest.mark.parametrize("lift", [0.0, 0.2])
def test_intervals_cover_what_the_way_of_choosing_gains(lift, monkeypatch):
    chosen = []

    def spy(setting, price):
        found = learn_by_fold(setting, price)
        chosen[:] = found
        return found

    monkeypatch.setattr(policy_comparison, "learn_by_fold", spy)
    x = np.random.default_rng(99).standard_normal((20_000, 3))
    truths = {name: true_value(x, codes(name, x), lift) for name in [*ARMS, *CANDIDATES]}
    past = np.mean([truths[name] for name in ARMS])
    covered, n_runs = {"value": 0, "over the past": 0, "over the first": 0}, 100
    for seed in range(n_runs):
        run = learned(made(seed, lift=lift))
        truth = np.mean([truths[name] for name in chosen])
        found = {
            "value": (run.values.of(run.valued_as), truth),
            "over the past": (run.gains.over("logging policy"), truth - past),
        }
        other = next(name for name in CANDIDATES if name != run.chosen)
        found["over the first"] = run.gains.over(other), truth - truths[other]
        for name, (told, true) in found.items():
            low, high = told.interval()
            covered[name] += low <= true <= high
    print(lift, covered)
    assert min(covered.values()) >= 0.89 * n_runs


@pytest.mark.slow_law
@pytest.mark.parametrize("k", [2, 6, 12])
@pytest.mark.parametrize("lead", [0.0, 0.1, 0.2])
@pytest.mark.parametrize("alike", [0.0, 0.5])
def test_the_rule_for_variances_holds_for_ways_of_choosing(k, lead, alike):
    """Made-up scores of k candidates: one has a lead, and they share a part of their variance."""
    rng, worth = np.random.default_rng(1), np.r_[lead, np.zeros(k - 1)]
    n, n_draws, fold = 200, 2000, np.arange(200) % 5
    covered, too_much = np.zeros(2), np.zeros(2)
    for _ in range(n_draws):
        shared = np.sqrt(alike) * rng.standard_normal((n, 1))
        scores = shared + np.sqrt(1 - alike) * rng.standard_normal((n, k)) + worth
        past = shared[:, 0] + np.sqrt(1 - alike) * rng.standard_normal(n)
        totals = np.array([scores[fold == one].sum(axis=0) for one in FOLDS])
        chosen = (totals.sum(axis=0) - totals).argmax(axis=1)
        wider = 1 + 2 * np.mean([a != b for a, b in combinations(chosen, 2)])
        mine, truth = scores[np.arange(n), chosen[fold]], worth[chosen].mean()
        for place, (other, theirs) in enumerate(((past, 0.0), (scores[:, 0], lead))):
            gain, error = mine - other, np.sqrt(wider * (mine - other).var(ddof=1) / n)
            apart = gain.mean() - (truth - theirs)
            covered[place] += abs(apart) <= 1.972 * error + 1e-12
            too_much[place] += apart > 1.972 * error + 1e-12
    print(k, lead, alike, covered / n_draws, too_much / n_draws)
    assert (covered >= 0.925 * n_draws).all()
    assert (too_much <= 0.07 * n_draws).all()


def true_value(x, decided, lift):
    return (0.2 * x[:, 0] * (decided - 1) + 0.1 * (decided == 1) + lift * (decided == 2)).mean()


def by_folds(spaces, weights, names=tuple(ROWS)):
    """What each fold chooses by the other folds of these clients."""
    own = {name: spaces[name] for name in names}
    total = sum(weights[name] for name in names)
    shares = {name: weights[name] / total for name in names}
    return [best(in_mixture(own, shares, without(k))) for k in FOLDS]


def worth_by_fold(space, chosen):
    return np.choose(space.whole.folds.of_row, [worth(space, one) for one in chosen])


def test_what_rests_on_a_client_is_what_the_others_would_choose_for_each_fold(spaces):
    """No policy more travels for it: each choice is one of the candidates."""
    differ = 0
    run = learned(made(SAID))
    now = by_folds(spaces, by_count())
    assert len(run.reliance.left_out) == 3
    for one in run.reliance.left_out:
        others = [name for name in ROWS if name != one.client]
        then = by_folds(spaces, by_count(), others)
        differ += then != now
        apart = [worth_by_fold(spaces[n], then) - worth_by_fold(spaces[n], now) for n in others]
        found = one.difference
        assert found.value == pytest.approx(np.concatenate(apart).mean(), rel=1e-9, abs=1e-12)
    assert differ


def test_joining_is_judged_by_what_members_would_choose_for_each_fold(spaces):
    rng = np.random.default_rng(DIFFERING)
    clients = {name: logged(rng, 150, lift) for name, lift in LIFTS.items()}
    run = learned(clients, diagnose=True)
    assert run.diagnosis.coalitions is not None
    assert not set(run.diagnosis.unknown) - {"models"}
    names, weights = [*ARMS, *CANDIDATES], dict.fromkeys(LIFTS, 1 / 3)
    for name, found in run.diagnosis.discrepancies.items():
        signed = {one: (one == name) - weight for one, weight in weights.items()}
        chosen = []
        for k in FOLDS:
            means = {one: moments(spaces[one], names, without(k)(spaces[one]))[0] for one in signed}
            chosen.append(names[int(sum(s * means[one] for one, s in signed.items()).argmax())])
        each = {one: worth_by_fold(spaces[one], chosen).mean() for one in signed}
        expected = sum(s * each[one] for one, s in signed.items())
        assert found.above.value == pytest.approx(expected, rel=1e-9)
