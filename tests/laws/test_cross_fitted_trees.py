"""Law: cross-fitted values of trees are those of a plain loop over folds, on the pooled rows."""

from itertools import combinations

import by_hand
import numpy as np
import pytest

import fedopl
from fedopl.analysis.scored_policy import scored_policy
from fedopl.client.answers.handlers import HANDLERS
from fedopl.client.answers.valuing import estimate_values, value_personal
from fedopl.client.answers.valuing.versions import with_wider_variances
from fedopl.client.disclosure.limits import Limits
from fedopl.client.local.personal_policy import PersonalTreeTask
from fedopl.client.rows.chunks import ScoredRows
from fedopl.messages.evaluation.policy_values import Value
from fedopl.messages.trees.threshold_gains import SumNearThresholds
from fedopl.policies.trees.nodes import Branch, Leaf, branches_of, leaf_positions, leaves_of
from fedopl.results.value_tables import ALIKE, BEST_ARM, LEAF_GAIN, LEARNED, PERSONAL
from fedopl.server import policy_comparison
from fedopl.server.learn_by_fold import learn_by_fold
from fedopl.server.oracles import tree_search
from fedopl.solvers.personal_ridge import OwnSums, PersonalPath, Scaling
from fedopl.solvers.prediction_errors import outcome_noise
from fedopl.study.mixture import Minimax

CUTS = {"x0": (-0.6, 0.1, 0.7), "x1": (-0.4, 0.3), "x2": (0.0,)}
QUESTIONS = [(column, cut) for column, cuts in enumerate(CUTS.values()) for cut in cuts]
NUISANCES = fedopl.NuisancePlan(propensity="marginal")
ROWS = {"x": 110, "y": 163, "z": 240}


def logged(rng, n_rows, effect=1.0, **given):
    """A trial with three arms, the best of which depends on two features together."""
    contexts = rng.standard_normal((n_rows, 3))
    actions = rng.integers(0, 3, n_rows)
    worth = effect * np.sign(contexts[:, 0] - 0.1) * np.sign(contexts[:, 1] - 0.3) * (actions - 1)
    rewards = worth + rng.standard_normal(n_rows)
    return fedopl.LoggedData(contexts, actions, rewards, action_names="abc", **given)


@pytest.fixture
def seen(monkeypatch):
    """Each client's workspace, what it answered, and what was learned without each fold."""
    found = {"spaces": {}, "together": [], "covariances": {}, "looks": []}

    def together(setting, price):
        found["together"] = learn_by_fold(setting, price)
        return found["together"]

    def valued(space, estimate, candidates):
        found["spaces"][space.client] = space
        wider = with_wider_variances(space, estimate, candidates)
        found["covariances"][space.client] = estimate.covariances, wider.covariances
        return wider

    learn, near = tree_search.learn, HANDLERS[SumNearThresholds]

    def searched(setting, conversation):
        found["versions"], counts = learn(setting, conversation)
        return found["versions"], counts

    def looked(space, query):
        found["looks"] = query.looks(space.study)
        return near(space, query)

    monkeypatch.setattr(policy_comparison, "learn_by_fold", together)
    monkeypatch.setattr(tree_search, "learn", searched)
    monkeypatch.setattr(estimate_values, "with_wider_variances", valued)
    monkeypatch.setitem(HANDLERS, SumNearThresholds, looked)
    return found


def learned(clients, plan, **options):
    options = {"evaluation": "cross-fitted", "basis": "linear", **options}
    return fedopl.learn(clients, policy=plan, nuisances=NUISANCES, **options)


# --- a plain search, over every tree on the grid --------------------------------------------------


def best(contexts, gains, depth, doubts=None):
    """The best tree of depth two at most, and its value, for weighted scores (n_rows, n_actions).

    With caution, the root of the sum of doubts is subtracted in every leaf.
    """
    doubts = np.zeros_like(gains) if doubts is None else doubts
    totals = gains.sum(axis=0) - np.sqrt(doubts.sum(axis=0))
    found = Leaf(int(totals.argmax())), totals.max()
    for column, cut in QUESTIONS if depth else ():
        yes = contexts[:, column] <= cut
        sides = [best(contexts[own], gains[own], depth - 1, doubts[own]) for own in (yes, ~yes)]
        value = sum(value for _, value in sides)
        if value > found[1] + 1e-12:
            found = Branch(column, cut, *(node for node, _ in sides)), value
    return found


def grown(contexts, gains, depth):
    """The same for any depth: beyond two, as one party with all of these rows would search."""
    if depth <= 2:
        return best(contexts, gains, depth)[0]
    return fedopl.search_tree(contexts, gains, fedopl.Tree(depth=depth, cuts=CUTS)).root


def grown_without(spaces, fold, scores_of, depth):
    contexts, gains = without(spaces, fold, scores_of)
    return grown(contexts, gains, depth)


def decided(root, study, contexts):
    leaves = np.array([leaf.action for leaf in leaves_of(root)])
    return leaves[leaf_positions(root, study.columns, contexts)]


def without(spaces, fold, scores_of):
    """The other folds' rows of all clients, and their scores, weighted as clients count."""
    contexts, gains = [], []
    for space in spaces.values():
        whole, scores = space.whole, scores_of(space)
        others = whole.folds.of_row != fold
        weights = whole.data.weights_of(slice(None))[others]
        share = space.n_training / sum(own.n_training for own in spaces.values())
        contexts.append(whole.data.contexts[others])
        gains.append(scores[others] * (share * weights / weights.sum())[:, None])
    return np.vstack(contexts), np.vstack(gains)


def shared_scores(space):
    return space.scores


def valued_scores(space):
    """Those that value, with weights that nobody limited."""
    (chunk,) = space.scored.evaluated(space.unscored_chunks())
    return chunk.scores


def own_scores(space):
    (chunk,) = space.own_chunks()
    return chunk.scores


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "weighted"), [(1, False), (2, False), (2, True), (4, False)])
def test_each_fold_is_valued_by_the_best_tree_of_the_pooled_others(depth, weighted, seen):
    """Under the limits that clients have unless they say otherwise."""
    rng = np.random.default_rng(depth)
    given = {"weights": rng.integers(1, 4, max(ROWS.values())) / 2} if weighted else {}
    clients = {
        name: logged(rng, n_rows, 0.2, **{key: own[:n_rows] for key, own in given.items()})
        for name, n_rows in ROWS.items()
    }
    run = learned(clients, fedopl.Tree(depth=depth, cuts=CUTS), limits=Limits())
    assert not run.refusals
    roots = [grown_without(seen["spaces"], fold, shared_scores, depth) for fold in range(5)]
    assert len(set(roots)) > 1  # each fold matters
    total = 0.0
    for name, space in seen["spaces"].items():
        alone = [grown_without({name: space}, fold, own_scores, depth) for fold in range(5)]
        for policy, versions in (("learned", roots), ("local policy", alone)):
            value = value_by_fold(space, versions)
            assert run.values.of(policy, name).value == pytest.approx(value, rel=1e-9)
            total += (policy == "learned") * ROWS[name] / sum(ROWS.values()) * value
    assert run.values.of("learned").value == pytest.approx(total, rel=1e-9)
    assert run.values.of("learned").n_rows == sum(ROWS.values())


def test_with_caution_leaves_are_doubted_by_the_outcomes_of_the_other_folds(seen):
    rng = np.random.default_rng(2)
    clients = {"x": logged(rng, 200, 0.3)}
    learned(clients, fedopl.Tree(depth=2, cuts=CUTS, caution=2.0))
    (space,) = seen["spaces"].values()
    sums, squared = space.outcome_sums()
    (chunk,) = space.chunks()
    for fold, tree in enumerate(seen["together"]):
        contexts, gains = without(seen["spaces"], fold, shared_scores)
        others = [other for other in range(5) if other != fold]
        noise = outcome_noise(sums[others].sum(axis=0), squared[others].sum(axis=0))
        doubts = seen["versions"][fold].statistics.doubts
        assert doubts.taken.noise(["x"]) == pytest.approx(noise, rel=1e-9)
        chances = space.propensities.of(chunk)[space.whole.folds.of_row != fold]
        doubts = 2.0**2 * noise / (chances * len(chances) ** 2)
        expected = decided(best(contexts, gains, 2, doubts)[0], space.study, contexts)
        assert np.array_equal(tree.decide(contexts), expected)
    careless = [grown_without(seen["spaces"], fold, shared_scores, 2) for fold in range(5)]
    assert len({*careless, *(tree.root for tree in seen["together"])}) > 1


def value_by_fold(space, roots):
    """The mean score of all rows' decisions, by the tree for their fold."""
    whole, worth = space.whole, np.empty(space.n_training)
    for root, rows in zip(roots, whole.fold_slices, strict=True):
        decisions = decided(root, space.study, whole.data.contexts[rows])
        worth[rows] = valued_scores(space)[rows][np.arange(len(decisions)), decisions]
    return np.average(worth, weights=whole.data.weights_of(slice(None)))


PLANS = {
    "on a grid that is found": {"bins": 8, "refine": False},
    "between its thresholds": {"bins": 8},
    "of depth one": {"depth": 1, "bins": 8},
    "deeper": {"depth": 4, "bins": 6},
    "in short numbers": {"bins": 8, "cell_numbers": "float32"},
    "with caution": {"bins": 8, "caution": 1.0},
    "with large leaves": {"bins": 8, "minimum_leaf": 60},
}


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_tree_that_is_delivered_is_the_one_of_all_rows(plan):
    rng = np.random.default_rng(7)
    clients = {name: logged(rng, n_rows, 0.3) for name, n_rows in ROWS.items()}
    crossed = learned(clients, fedopl.Tree(**plan), limits=Limits())
    whole = learned(clients, fedopl.Tree(**plan), evaluation=0, limits=Limits())
    assert crossed.policy.root == whole.policy.root
    for name, cells in whole.tree.cells.items():
        assert np.array_equal(crossed.tree.cells[name], cells)
    assert crossed.rounds[-1].trip == whole.rounds[-1].trip


def test_thresholds_move_where_they_gain_most_without_each_fold(seen):
    """Each version's threshold is the best of those close to it, on the rows of other folds."""
    rng = np.random.default_rng(3)
    clients = {name: logged(rng, n_rows, 0.3) for name, n_rows in ROWS.items()}
    run = learned(clients, fedopl.Tree(depth=1, bins=5))
    columns, moved = run.study.columns, 0
    for fold, (tree, look) in enumerate(zip(seen["together"], seen["looks"][:-1], strict=True)):
        contexts, gains = without(seen["spaces"], fold, shared_scores)
        (question,) = branches_of(look.root)

        def worth(cut, question=question, contexts=contexts, gains=gains):
            yes = columns[question.column].values(contexts) <= cut
            return gains[yes, question.yes.action].sum() + gains[~yes, question.no.action].sum()

        most = max(worth(cut) for cut in look.near[0])
        assert worth(tree.root.cut) == pytest.approx(most, rel=1e-9)
        moved += tree.root.cut != question.cut
        assert worth(question.cut) < most + 1e-12
    assert moved > 2


def test_each_rows_arm_is_the_best_one_of_the_other_folds(seen):
    rng = np.random.default_rng(1)
    clients = {name: logged(rng, n_rows, 0.0) for name, n_rows in ROWS.items()}
    run = learned(clients, fedopl.Tree(depth=1, cuts=CUTS))
    arms = [
        Leaf(int(without(seen["spaces"], fold, shared_scores)[1].sum(0).argmax()))
        for fold in range(5)
    ]
    assert len(set(arms)) > 1
    found = sum(
        ROWS[name] / sum(ROWS.values()) * value_by_fold(space, arms)
        for name, space in seen["spaces"].items()
    )
    assert run.values.of(BEST_ARM).value == pytest.approx(found, rel=1e-9)


def test_variances_of_trees_are_larger_by_twice_how_often_versions_differ(seen):
    rng = np.random.default_rng(1)
    learned({"x": logged(rng, 200, 0.3)}, fedopl.Tree(depth=2, cuts=CUTS))
    contexts = seen["spaces"]["x"].data.contexts
    decisions = [tree.decide(contexts) for tree in seen["together"]]
    pairs = list(combinations(range(5), 2))
    apart = np.mean([decisions[one] != decisions[other] for one, other in pairs])
    plain, wider = seen["covariances"]["x"]
    assert apart > 0
    learned_one = -4  # before the best arm by fold, what was done and what is local
    factor = (wider / plain)[learned_one, learned_one]
    assert factor == pytest.approx(1 + 2 * apart)


@pytest.mark.parametrize("personal", ["none", "ridge"])
def test_a_client_of_one_group_is_in_the_tree_and_in_no_value(personal, seen):
    rng = np.random.default_rng(0)
    groups = {"one": np.zeros(150, int), "thirty": np.arange(150) % 30}
    clients = {name: logged(rng, 150, 0.3, groups=own) for name, own in groups.items()}
    plan = fedopl.Tree(depth=2, cuts=CUTS)
    run = learned(clients, plan, quorum=0.5, personal=personal)
    assert {r.query: r.refused for r in run.rounds}["SumByFold"] == {"one": "TOO_FEW_ROWS"}
    assert run.values.of("learned").n_rows == 150
    leaves = [row.estimate.n_rows for row in run.leaves if row.action == LEARNED and row.estimate]
    assert 0 < sum(leaves) <= 150
    clients_of = [sorted(one.statistics.cells) for one in seen["versions"]]
    assert clients_of == [["thirty"]] * 5 + [["one", "thirty"]]


# --- weights that are found -----------------------------------------------------------------------


def test_weights_for_the_client_that_loses_most_are_found_without_each_fold(seen):
    """As if each fold were left out by hand, in the ascent and in the search of every step."""
    rng = np.random.default_rng(4)
    clients = {
        name: logged(rng, n_rows, -1.0 if name == "x" else 1.0) for name, n_rows in ROWS.items()
    }
    plan = fedopl.Tree(depth=2, cuts=CUTS)
    run = learned(clients, plan, mixture=Minimax(steps=6), limits=Limits())
    spaces, weights = seen["spaces"], []
    for version, fold in enumerate([*range(5), None]):
        found, root = ascent_by_hand(spaces, fold, 6)
        weights.append(found)
        tree = run.policy if fold is None else seen["together"][version]
        for space in spaces.values():
            contexts = space.whole.data.contexts
            assert np.array_equal(tree.decide(contexts), decided(root, space.study, contexts))
    assert run.mixture == pytest.approx(weights[-1], rel=1e-9)
    assert any(own != pytest.approx(weights[-1], abs=0.01) for own in weights[:-1])
    total = 0.0
    for name, space in spaces.items():
        roots = [tree.root for tree in seen["together"]]
        value = value_by_fold(space, roots)
        assert run.values.of("learned", name).value == pytest.approx(value, rel=1e-9)
        total += run.mixture[name] * value
    assert run.values.of("learned").value == pytest.approx(total, rel=1e-9)
    arms = [Leaf(best_arm_by_hand(spaces, fold, weights[fold])) for fold in range(5)]
    assert len(set(arms)) > 1
    arm = sum(run.mixture[name] * value_by_fold(space, arms) for name, space in spaces.items())
    assert run.values.of(BEST_ARM).value == pytest.approx(arm, rel=1e-9)


def best_arm_by_hand(spaces, fold, weights):
    """The action with the largest mean score in the mixture, without the rows of a fold."""
    rows = {name: rows_by_hand(space, fold, space.scores)()[0] for name, space in spaces.items()}
    return int(sum(weights[name] * own.scores.mean(axis=0) for name, own in rows.items()).argmax())


def ascent_by_hand(spaces, fold, n_steps):
    """The weights whose tree leaves the least largest regret, and the tree; each row counts one."""
    rows = {name: rows_by_hand(space, fold, space.scores)()[0] for name, space in spaces.items()}
    study = next(iter(spaces.values())).study

    def tree_for(weights):
        contexts = np.vstack([own.contexts for own in rows.values()])
        gains = [weights[name] / len(own.scores) * own.scores for name, own in rows.items()]
        return best(contexts, np.vstack(gains), 2)[0]

    def values(root):
        return {
            name: own.scores[np.arange(len(own.scores)), decided(root, study, own.contexts)].mean()
            for name, own in rows.items()
        }

    start = {name: ROWS[name] / sum(ROWS.values()) for name in rows}
    return by_hand.ascent(start, tree_for, values, n_steps)


# --- leaves ---------------------------------------------------------------------------------------


def test_a_leaf_has_what_the_trees_of_the_other_folds_decide_for_its_rows(seen, monkeypatch):
    """Not what its own action is worth there: the rows of a leaf helped to find it."""
    told = {}

    def spy(space, query):
        answer = value_personal.answer(space, query)
        if query.is_of_leaves:
            told[space.client] = answer
        return answer

    monkeypatch.setitem(HANDLERS, Value, spy)
    rng = np.random.default_rng(6)
    clients = {}
    for name, n_rows in ROWS.items():
        weights = rng.integers(1, 4, n_rows) / 2
        clients[name] = logged(rng, n_rows, 0.2, weights=weights)
    run = learned(clients, fedopl.Tree(depth=2, cuts=CUTS), limits=Limits())
    spaces, leaves = seen["spaces"], leaves_of(run.policy.root)
    roots = [grown_without(spaces, fold, shared_scores, 2) for fold in range(5)]
    sums = np.zeros((len(leaves), 4))  # the share of people, then these times the three numbers
    for name, space in spaces.items():
        whole, weight = space.whole, space.whole.data.weights_of(slice(None))
        contexts, rows = whole.data.contexts, np.arange(len(weight))
        each = np.stack([decided(root, space.study, contexts) for root in roots])
        chosen = each[whole.folds.of_row, rows]
        leaf = leaf_positions(run.policy.root, space.study.columns, contexts)
        scores, own = (
            valued_scores(space)[rows, chosen],
            np.array([one.action for one in leaves])[leaf],
        )
        numbers = np.column_stack([scores, scores - whole.data.rewards, chosen == own])
        for place in range(len(leaves)):
            inside, w = leaf == place, weight[leaf == place]
            share = w.sum() / weight.sum() * ROWS[name] / sum(ROWS.values())
            means = w @ numbers[inside] / w.sum()
            sums[place] += share * np.array([1, *means])
            spread = w**2 @ (numbers[inside] - means) ** 2 / w.sum() ** 2
            spread *= inside.sum() / (inside.sum() - 1)
            pairs = [(a[inside] != b[inside]).mean() for a, b in combinations(each, 2)]
            expected = spread * (1 + 2 * np.mean(pairs))
            variances = np.diagonal(told[name].covariances[place, 0])
            assert variances == pytest.approx(expected, rel=1e-9)
    assert len(leaves) > 2
    assert 0 < sums[:, 3].sum() < 1  # some rows are decided about otherwise
    found = {(row.leaf, row.action): row for row in run.leaves}
    for place, (share, *totals) in enumerate(sums):
        for name, total in zip((LEARNED, LEAF_GAIN, ALIKE), totals, strict=True):
            assert found[place, name].share == pytest.approx(share, rel=1e-9)
            assert found[place, name].estimate.value == pytest.approx(total / share, rel=1e-9)
    whole = sum(row.share * row.estimate.value for row in run.leaves if row.action == LEARNED)
    assert whole == pytest.approx(run.values.of("learned").value, rel=1e-9)


def test_values_of_leaves_say_no_more_than_there_is():
    """With no effect at all, what leaves gain over what was done is nothing, on average."""
    gains = {"across folds": [], "of the action": []}
    for seed in range(30):
        rng = np.random.default_rng(seed)
        clients = {"x": logged(rng, 200, 0.0)}
        nuisances = fedopl.NuisancePlan(propensity="marginal", kind="local")
        options = {"nuisances": nuisances, "basis": "linear", "personal": "none"}
        run = fedopl.learn(
            clients, policy=fedopl.Tree(depth=2, cuts=CUTS), evaluation="cross-fitted", **options
        )
        gains["across folds"] += [
            row.share * row.estimate.value for row in run.leaves if row.action == LEAF_GAIN
        ]
        cells = run.tree.leaf_sums(run.policy.root)["x"]
        places = [2 + leaf.action for leaf in leaves_of(run.policy.root)]
        gains["of the action"].append(cells[np.arange(len(cells)), places].sum())
    assert abs(sum(gains["across folds"]) / 30) < 0.06
    assert sum(gains["of the action"]) / 30 > 0.15


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_people_are_ranked_by_what_actions_are_worth_in_leaves_to_all(weighted, seen):
    """On the rows that the tree was learned from, as people are by linear scores."""
    rng = np.random.default_rng(6)
    clients = {}
    for name, n_rows in ROWS.items():
        given = {"weights": rng.integers(1, 4, n_rows) / 2} if weighted else {}
        clients[name] = logged(rng, n_rows, 0.5, **given)
    run = learned(clients, fedopl.Tree(depth=2, cuts=CUTS), limits=Limits())
    contexts, gains = without(seen["spaces"], None, shared_scores)
    leaf = leaf_positions(run.policy.root, run.study.columns, contexts)
    _, ones = without(seen["spaces"], None, lambda space: np.ones_like(space.scores))
    means = [gains[leaf == one].sum(axis=0) / ones[leaf == one].sum(axis=0) for one in {*leaf}]
    worth = scored_policy(run).worth(contexts)
    assert len(means) > 2
    np.testing.assert_allclose(worth, np.array(means)[leaf], rtol=1e-9)
    assert np.array_equal(worth.argmax(axis=1), run.policy.decide(contexts))


# --- personal trees -------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "weighted"), [("local", False), ("federated", True)])
def test_personal_trees_of_a_fold_rest_on_no_row_of_it(kind, weighted, seen, monkeypatch):
    """Neither the shared tree, nor what its leaves are worth to others, nor the client's rows."""
    rng, told = np.random.default_rng(8), {}

    def spy(space, query):
        if not query.is_of_leaves:
            told[space.client] = query
        return value_personal.answer(space, query)

    monkeypatch.setitem(HANDLERS, Value, spy)
    clients = {}
    for name, n_rows in ROWS.items():
        weights = rng.integers(1, 4, n_rows) / 2 if weighted else None
        clients[name] = logged(rng, n_rows, -1 if name == "x" else 0.5, weights=weights)
    plan = fedopl.Tree(depth=2, cuts=CUTS)
    nuisances = fedopl.NuisancePlan(propensity="marginal", kind=kind)
    run = fedopl.learn(
        clients,
        policy=plan,
        nuisances=nuisances,
        evaluation="cross-fitted",
        basis="linear",
        personal="ridge",
        limits=Limits(),
    )
    spaces, worth = seen["spaces"], {name: [] for name in ROWS}
    moved = 0
    for version, fold in enumerate([*range(5), None]):
        root = grown_without(spaces, fold, shared_scores, 2)
        sums = {name: sums_by_hand(space, fold, root) for name, space in spaces.items()}
        others = {name: others_by_hand(sums, name) for name in spaces}
        curves = {
            name: PersonalPath.of(sums[name], others[name], Scaling.none(len(leaves_of(root))))
            for name in spaces
        }
        for name, space in spaces.items():
            query, contexts = told[name], space.whole.data.contexts
            assert query.roots(space.study)[version] == root
            sent = query.others[version][:, : len(leaves_of(root))]
            assert np.allclose(sent, others[name], rtol=1e-9)
            likely = [curves[other].log_likelihoods() for other in spaces if other != name]
            assert np.allclose(query.likelihoods[version], np.mean(likely, axis=0), atol=1e-6)
            sources = [shared_scores(space)] + [own_scores(space)] * (kind == "federated")
            found = PersonalTreeTask(
                study=space.study,
                scored=[rows_by_hand(space, fold, scores) for scores in sources],
                n_rows=int((space.whole.folds.of_row != fold).sum()),
                root=root,
                own_root=grown_without({name: space}, fold, own_scores, 2),
                others=others[name],
                likelihoods=np.mean(likely, axis=0),
            ).solve()
            if fold is None:
                assert np.array_equal(
                    space.personal_policy.decide(contexts), found.decide(contexts)
                )
            else:
                worth[name].append(found.root)
                moved += found.root != root
    assert moved > 5
    assert max(len(set(roots)) for roots in worth.values()) > 1
    for name, space in spaces.items():
        value = value_by_fold(space, worth[name])
        assert run.values.of(PERSONAL, name).value == pytest.approx(value, rel=1e-9)
        assert run.values.of(PERSONAL, name).n_rows == ROWS[name]


def rows_by_hand(space, fold, scores):
    """The rows outside a fold, or all, with these scores."""
    data, others = space.whole.data, space.whole.folds.of_row != fold
    weights = data.weights_of(slice(None))[others]
    rows = ScoredRows(contexts=data.contexts[others], scores=scores[others], weights=weights)
    return lambda: [rows]


def sums_by_hand(space, fold, root):
    """Shares of weight, and of mean scores, of the leaves of a tree, without the rows of a fold."""
    (rows,) = rows_by_hand(space, fold, space.scores)()
    leaf = leaf_positions(root, space.study.columns, rows.contexts)
    shares = rows.weights / rows.weights.sum()
    apart = ((rows.scores - rows.scores.mean(axis=1, keepdims=True)) ** 2).sum(axis=1)
    return OwnSums(
        gram=np.diag([shares[leaf == one].sum() for one in range(len(leaves_of(root)))]),
        products=np.column_stack(
            [shares[leaf == one] @ rows.scores[leaf == one] for one in range(len(leaves_of(root)))]
        ),
        known=np.ones(3, bool),
        squares=float(shares @ apart),
        n_rows=len(leaf),
    )


def others_by_hand(sums, name):
    """Mean scores by action and leaf over all other clients, which count by their rows."""
    rest = {other: ROWS[other] for other in sums if other != name}
    products = sum(rows * sums[other].products for other, rows in rest.items())
    return products / sum(rows * np.diag(sums[other].gram) for other, rows in rest.items())
