"""Trees learned from logged data, by one client or by several, with rules and without."""

import numpy as np
import polars as pl
import pytest

import fedopl
from fedopl.base.errors import FederationError, FedoplError, OptionError
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.engines.in_process import InProcess
from fedopl.policies.trees.nodes import Branch, Leaf, depth_of, leaf_positions, nodes_of
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import run_study
from fedopl.study.policy_plans import Tree

ACTIONS = ("none", "some", "all")
# Every action was as likely for everybody, so that nothing is to be found about propensities.
AT_RANDOM = fedopl.NuisancePlan(propensity="marginal")


def client(n_rows, seed, n_actions=3, missing_action=None, weights=None):
    """'some' is right where x0 and x1 are both positive or both not; 'all' is never right."""
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(n_rows, 3))
    worth = np.where((contexts[:, 0] > 0) == (contexts[:, 1] > 0), 1.0, -1.0)
    allowed = [a for a in range(n_actions) if a != missing_action]
    actions = rng.choice(allowed, n_rows)
    means = np.column_stack([np.zeros(n_rows), worth, np.full(n_rows, -0.5)])
    rewards = means[np.arange(n_rows), actions] + 0.3 * rng.normal(size=n_rows)
    return fedopl.LoggedData(contexts, actions, rewards, action_names=ACTIONS, weights=weights)


@pytest.fixture(scope="module")
def clients():
    return {"north": client(1500, 1), "south": client(900, 2), "west": client(600, 3)}


def value_of(policy, seed=99):
    rng = np.random.default_rng(seed)
    contexts = rng.normal(size=(20_000, 3))
    worth = np.where((contexts[:, 0] > 0) == (contexts[:, 1] > 0), 1.0, -1.0)
    means = np.column_stack([np.zeros(len(worth)), worth, np.full(len(worth), -0.5)])
    return means[np.arange(len(worth)), policy.decide(contexts)].mean()


def learn(clients, **options):
    return fedopl.learn(
        clients, **{"evaluation": 0.25, "basis": "linear", "nuisances": AT_RANDOM, **options}
    )


@pytest.mark.parametrize("limits", ["open", "guarded"])
def test_what_no_stump_can_see_is_found_at_depth_two(clients, limits):
    one, two = (learn(clients, policy=fedopl.Tree(depth=d), limits=limits) for d in (1, 2))
    assert value_of(one.policy) < 0.1
    assert value_of(two.policy) > 0.45  # of 0.5
    assert {node.column for node in nodes_of(two.policy.root) if isinstance(node, Branch)} == {0, 1}
    assert "beats the best constant arm" in two.verdict


def test_deeper_trees_are_no_worse_on_what_they_were_learned_from(clients):
    runs = [learn(clients, policy=fedopl.Tree(depth=d), evaluation=0) for d in (2, 3, 4)]
    values = [training_value(run, clients) for run in runs]
    assert values == sorted(values)
    assert [run.tree.is_exact for run in runs] == [True, False, False]
    assert [depth_of(run.policy.root) for run in runs] == [2, 3, 4]


def training_value(run, clients):
    """By the scores that a run with the same nuisances gives: those of the cells."""
    total = 0.0
    weights = run.mixture
    for name, cells in run.tree.cells.items():
        line = run.tree.grid.line(cells, 0)
        assert line[:, 1].sum() == pytest.approx(1)
        total += weights[name] * grown_value(run, clients[name], name)
    return total


def grown_value(run, data, name):
    nuisances = fedopl.cross_fit(data)
    scores = fedopl.aipw_scores(data, nuisances).values
    return scores[np.arange(len(scores)), run.policy.decide(data.contexts)].mean()


def test_one_exchange_for_each_level(clients):
    for depth, n_levels in ((1, 1), (2, 1), (3, 2), (4, 3), (5, 4)):
        run = learn(clients, policy=fedopl.Tree(depth=depth))
        assert [r.query for r in run.rounds].count("SumCells") == n_levels


# --- rules ----------------------------------------------------------------------------------------


def test_every_leaf_has_as_many_rows_as_it_should(clients):
    plan = Tree(minimum_leaf=500)
    run = learn(clients, policy=plan, evaluation=0)
    contexts = np.vstack([data.contexts for data in clients.values()])
    leaves = leaf_positions(run.policy.root, run.policy.columns, contexts)
    assert len(np.unique(leaves)) > 1
    assert np.bincount(leaves).min() >= 500


def test_no_tree_has_leaves_larger_than_everybody(clients):
    with pytest.raises(FederationError, match=r"no tree keeps to the rules: lower tree\.minimum"):
        learn(clients, policy=fedopl.Tree(minimum_leaf=100_000))


def test_a_costly_question_is_not_asked(clients):
    free, dear = (learn(clients, policy=fedopl.Tree(split_cost=cost)) for cost in (0, 0.6))
    assert depth_of(free.policy.root) == 2
    assert free.policy.root != dear.policy.root
    assert isinstance(dear.policy.root, Leaf)
    assert dear.verdict.startswith("The learned policy does not demonstrably beat")


def test_a_group_gets_nothing_but_what_it_may_get(clients):
    plan = Tree(allowed=({"column": "x0", "above": 0.5, "actions": ("none",)},), minimum_leaf=10)
    run = learn(clients, policy=plan)
    rng = np.random.default_rng(5)
    contexts = rng.normal(size=(5000, 3))
    names = run.policy.names(contexts)
    assert set(names[contexts[:, 0] > 0.5]) == {"none"}
    assert "some" in names[contexts[:, 0] <= 0.5]
    assert 0.5 in run.tree.grid.cuts[0]


LABELLED = fedopl.Schema(
    action="arm",
    actions=ACTIONS,
    reward="gain",
    direction="higher",
    numeric=("x0", "x1"),
    categorical={"place": ("town", "land", "sea")},
)
GROUPS = {
    "at most": ({"column": "x0", "at_most": -0.3, "actions": ("all",)}, lambda t: t["x0"] <= -0.3),
    "above": ({"column": "x1", "above": 0.2, "actions": ("none", "all")}, lambda t: t["x1"] > 0.2),
    "first level": (
        {"column": "place", "level": "town", "actions": ("none",)},
        lambda t: t["place"] == "town",
    ),
    "another level": (
        {"column": "place", "level": "sea", "actions": ("all",)},
        lambda t: t["place"] == "sea",
    ),
}


@pytest.mark.parametrize("depth", [2, 3])
@pytest.mark.parametrize(("group", "is_member"), GROUPS.values(), ids=GROUPS)
def test_whoever_belongs_to_a_group_gets_what_it_may_get(tmp_path, group, is_member, depth):
    """On a border as well, and people who were not in the data."""
    rng = np.random.default_rng(0)
    table = {
        "x0": np.round(rng.normal(size=1200), 1),
        "x1": np.round(rng.normal(size=1200), 1),
        "place": rng.choice(["town", "land", "sea"], 1200),
        "arm": rng.choice(ACTIONS, 1200),
    }
    good = (table["x0"] > 0) == (table["x1"] > 0)
    worth = np.where(table["arm"] == "some", np.where(good, 1.0, -1.0), 0.0)
    frame = pl.DataFrame({**table, "gain": worth + 0.2 * rng.normal(size=1200)})
    frame.write_csv(tmp_path / "table.csv")
    data = fedopl.read_logged(tmp_path / "table.csv", LABELLED)
    study = fedopl.Study(
        actions=ACTIONS,
        features=data.feature_names,
        table=LABELLED,
        policy=fedopl.Tree(depth=depth, bins=8, allowed=(group,)),
    )
    door = Door("a", data, study, limits=Limits.open(), secret=SEED_ALONE)
    policy = run_study(Conversation(study, InProcess({"a": door}))).policy
    everybody = {
        "x0": np.repeat(np.linspace(-2, 2, 41), 3),
        "x1": np.tile(np.linspace(2, -2, 41), 3),
        "place": np.tile(["town", "land", "sea"], 41),
    }
    levels = [everybody["place"] == level for level in ("land", "sea")]
    contexts = np.column_stack([everybody["x0"], everybody["x1"], *levels]).astype(float)
    names = policy.names(contexts)
    members = is_member(everybody)
    assert set(names[members]) <= set(group["actions"])
    assert "some" in names[~members]


def test_groups_that_leave_nothing_to_anybody_are_an_error():
    data = client(300, 1)
    nobody = (
        {"column": "x0", "at_most": 0, "actions": ("none",)},
        {"column": "x1", "at_most": 0, "actions": ("some",)},
        {"column": "x2", "at_most": 0, "actions": ("all",)},
    )
    with pytest.raises(FederationError, match="no tree keeps to the rules"):
        learn({"a": data}, policy=fedopl.Tree(depth=1, allowed=nobody))


def test_only_allowed_columns_are_asked_about(clients):
    run = learn(clients, policy=fedopl.Tree(columns=("x2", "x1")))
    asked = {node.column for node in nodes_of(run.policy.root) if isinstance(node, Branch)}
    assert asked <= {1, 2}


# --- what is missing ------------------------------------------------------------------------------


@pytest.mark.parametrize("unseen", ["mask", "borrow"])
def test_an_action_that_one_client_never_took(clients, unseen):
    kind = "local" if unseen == "mask" else "federated"
    some = {**clients, "west": client(600, 3, missing_action=1)}
    nuisances = fedopl.NuisancePlan(kind=kind, unseen=unseen)
    run = learn(some, policy="tree", nuisances=nuisances)
    widths = {name: cells.shape[1] for name, cells in run.tree.cells.items()}
    assert widths["north"] == 2 + 3
    assert widths["west"] == (2 + 6 if unseen == "mask" else 2 + 3)
    assert value_of(run.policy) > 0.45


def test_an_action_that_nobody_took_is_in_no_leaf(clients):
    some = {name: client(600, seed, missing_action=1) for seed, name in enumerate(clients)}
    run = learn(some, policy="tree", nuisances="local")
    assert 1 not in {leaf.action for leaf in run.policy.leaves()}


def test_a_column_with_one_value_is_not_asked_about():
    data = client(600, 1)
    contexts = data.contexts.copy()
    contexts[:, 2] = 7.0
    constant = fedopl.LoggedData(contexts, data.actions, data.rewards, action_names=ACTIONS)
    run = learn({"a": constant}, policy="tree")
    assert run.tree.grid.cuts[2] == ()
    assert run.tree.grid.n_bins[2] == 1
    assert value_of(run.policy) > 0.4


def test_weights_count():
    data = client(800, 1)
    twice = np.where(np.arange(800) < 400, 1.0, 0.0) + 1e-12
    weighted = fedopl.LoggedData(
        data.contexts, data.actions, data.rewards, action_names=ACTIONS, weights=twice
    )
    run = learn({"a": weighted}, policy="tree", evaluation=0)
    (cells,) = run.tree.cells.values()
    line = run.tree.grid.line(cells, 0)
    assert line[:, 0].sum() == 800
    assert line[:, 1].sum() == pytest.approx(1)
    bins = np.searchsorted(run.tree.grid.cuts[0], data.contexts[:, 0])
    np.testing.assert_allclose(line[:, 1], np.bincount(bins, twice, 32) / twice.sum(), atol=1e-12)


# --- one party ------------------------------------------------------------------------------------


def test_one_party_may_try_every_threshold_it_observed(clients):
    pytest.importorskip("numba")
    alone = {"north": clients["north"]}
    run = learn(alone, policy=fedopl.Tree(thresholds="observed"), evaluation=0.25)
    assert value_of(run.policy) > 0.45
    assert run.tree is None
    assert not {"CountBins", "SumCells"} & {r.query for r in run.rounds}
    assert len(run.leaves) == 3 * len(run.policy.leaves())
    finer = training_score(run.policy, clients["north"])
    on_grid = learn(alone, policy=fedopl.Tree(depth=2), evaluation=0.25)
    assert finer >= training_score(on_grid.policy, clients["north"]) - 0.02


def training_score(policy, data):
    scores = fedopl.aipw_scores(data, fedopl.cross_fit(data)).values
    return scores[np.arange(len(scores)), policy.decide(data.contexts)].mean()


def test_several_parties_may_not(clients):
    pytest.importorskip("numba")
    with pytest.raises(OptionError, match="observed thresholds are values of rows"):
        learn(clients, policy=fedopl.Tree(thresholds="observed"))
    with pytest.raises(OptionError, match=r"in its own process; this one is not\. Use the grid"):
        learn({"coast": clients}, policy=fedopl.Tree(thresholds="observed"))


def test_the_estimator_learns_trees(clients):
    data = clients["north"]
    learner = fedopl.PolicyLearner(policy=fedopl.Tree(depth=2), nuisances="local")
    learner.fit(data.contexts, np.array(ACTIONS)[data.actions], data.rewards)
    assert isinstance(learner.policy_, fedopl.TreePolicy)
    assert set(learner.predict(data.contexts)) <= set(ACTIONS)
    assert learner.get_params()["policy"].depth == 2


def test_scores_at_hand_can_be_searched_directly():
    rng = np.random.default_rng(0)
    contexts = rng.normal(size=(2000, 4))
    right = np.where(contexts[:, 1] > 0.3, 1.0, -1.0)
    scores = np.column_stack([np.zeros(2000), right + rng.normal(size=2000)])
    policy = fedopl.search_tree(contexts, scores, Tree(depth=1, bins=64))
    assert policy.root.column == 1
    assert policy.root.cut == pytest.approx(0.3, abs=0.05)
    assert (policy.root.yes, policy.root.no) == (Leaf(0), Leaf(1))
    with pytest.raises(FedoplError, match="scores: expected 2,000 rows"):
        fedopl.search_tree(contexts, scores[:9])


@pytest.mark.parametrize("thresholds", ["grid", "observed"])
def test_rows_without_any_score_do_not_move_a_threshold(thresholds):
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    contexts, scores = rng.normal(size=(300, 2)), rng.normal(size=(300, 2))
    plan = Tree(depth=1, bins=4, thresholds=thresholds)
    alone = fedopl.search_tree(contexts, scores, plan, refine=False)
    more = np.concatenate([contexts, np.full((500, 2), 9.0)])
    unknown = np.concatenate([scores, np.full((500, 2), np.nan)])
    assert fedopl.search_tree(more, unknown, plan, refine=False).root == alone.root


NOT_SEARCHED = {
    "names": ({"feature_names": ["a"]}, "expected one for each column"),
    "a column": ({"plan": Tree(columns=("nope",))}, "there is no column 'nope'"),
    "cuts": ({"plan": Tree(cuts={"nope": (1,)})}, "there is no column 'nope'"),
    "a group": (
        {"plan": Tree(allowed=({"column": "nope", "above": 1, "actions": ("0",)},))},
        "tree.allowed: there is no column 'nope'",
    ),
    "actions": (
        {"plan": Tree(allowed=({"column": "x0", "above": 1, "actions": ("9",)},))},
        "'9' are not actions",
    ),
    "leaves": ({"plan": Tree(minimum_leaf=999)}, "no tree keeps to the rules"),
    "weights": ({"weights": [-1.0] * 50}, "weights"),
    "fewer weights": ({"weights": [1.0]}, "weights: expected 50 rows"),
    "scores": ({"scores": np.full((50, 2), np.nan)}, "expected rows with a feature and a score"),
    "no rows": ({"contexts": np.empty((0, 2)), "scores": np.empty((0, 2))}, "expected rows"),
    "no features": ({"contexts": np.empty((50, 0))}, "expected rows with a feature"),
    "missing": ({"contexts": np.full((50, 2), np.nan)}, "contexts: missing or infinite"),
}


@pytest.mark.parametrize(("options", "message"), NOT_SEARCHED.values(), ids=NOT_SEARCHED)
def test_a_search_that_makes_no_sense_is_refused_in_words(options, message):
    rng = np.random.default_rng(0)
    given = {"contexts": rng.normal(size=(50, 2)), "scores": rng.normal(size=(50, 2)), **options}
    with pytest.raises(FedoplError, match=message):
        fedopl.search_tree(**given)


def test_a_second_look_close_to_the_thresholds_found_comes_nearer_to_the_truth():
    rng = np.random.default_rng(1)
    contexts = rng.normal(size=(5000, 3))
    right = np.where((contexts[:, 0] > 0.337) == (contexts[:, 2] > -0.212), 1.0, -1.0)
    scores = np.column_stack([np.zeros(5000), right + 0.3 * rng.normal(size=5000)])

    def cuts_and_value(**options):
        policy = fedopl.search_tree(contexts, scores, **options)
        cuts = [node.cut for node in nodes_of(policy.root) if isinstance(node, Branch)]
        return cuts, scores[np.arange(5000), policy.decide(contexts)].sum()

    _, worth_less = cuts_and_value(plan=Tree(bins=8), refine=False)
    finer, worth_more = cuts_and_value(plan=Tree(bins=8))
    assert worth_more > 1.02 * worth_less
    for cut in finer:
        assert min(abs(cut - 0.337), abs(cut + 0.212)) < 0.02
    named = Tree(cuts={"x0": (0.0, 0.3), "x1": (0.0,), "x2": (-0.2, 0.5)})
    assert cuts_and_value(plan=named) == cuts_and_value(plan=named, refine=False)
    assert set(cuts_and_value(plan=named)[0]) == {0.3, -0.2}


# --- what comes of it -----------------------------------------------------------------------------


def test_leaves_tell_who_ends_there_and_what_each_action_is_worth(clients):
    run = learn(clients, policy="tree", evaluation=0.25)
    leaves = run.policy.leaves()
    assert len(run.leaves) == 3 * len(leaves)
    assert sum(row.share for row in run.leaves[::3]) == pytest.approx(1)
    for row in run.leaves:
        assert row.estimate.standard_error > 0
        if row.action == "all":
            assert abs(row.estimate.value + 0.5) < 6 * row.estimate.standard_error
    learned = sum(
        row.share * row.estimate.value
        for row in run.leaves
        if row.action == ACTIONS[leaves[row.leaf].action]
    )
    assert learned == pytest.approx(run.values.of("learned").value, abs=0.02)


def test_a_saved_run_comes_back_with_its_tree_its_leaves_and_any_mixture(clients, tmp_path):
    run = learn(clients, policy="tree", limits="guarded")
    run.save(tmp_path)
    again = fedopl.load_run(tmp_path)
    assert again.policy.root == run.policy.root
    assert again.leaves == run.leaves
    assert again.tree.grid.cuts == run.tree.grid.cuts
    assert again.resolve("uniform").content() == run.resolve("uniform").content()


def test_a_deep_tree_cannot_be_grown_again_without_asking(clients):
    run = learn(clients, policy=fedopl.Tree(depth=3))
    with pytest.raises(OptionError, match="trees of depth 1 and 2 on a grid"):
        run.resolve("uniform")


def test_trees_can_be_candidates(clients):
    tree = learn(clients, policy="tree", seed=4).policy
    run = learn(clients, policy=fedopl.Finite(candidates={"the tree": tree}))
    assert run.chosen == "the tree"
    assert run.policy.root == tree.root


def test_a_tree_is_for_a_tree_policy(clients):
    for name in ("depth", "thresholds", "bins"):
        with pytest.raises(OptionError, match=rf"study: policy\.linear\.{name}: Extra inputs"):
            learn(clients, policy={"kind": "linear", name: 2})
    for name in ("oracle", "features", "precision"):
        with pytest.raises(OptionError, match=rf"study: policy\.tree\.{name}: Extra inputs"):
            learn(clients, policy={"kind": "tree", name: "x"})
    with pytest.raises(FedoplError, match="depth"):
        learn(clients, policy=fedopl.Tree(depth=0))


@pytest.mark.parametrize("limits", ["open", "guarded"])
def test_what_all_actions_have_in_common_does_not_matter(clients, limits):
    raised = {
        name: fedopl.LoggedData(d.contexts, d.actions, d.rewards + 1000, action_names=ACTIONS)
        for name, d in clients.items()
    }
    plain, moved = (learn(rows, policy="tree", limits=limits) for rows in (clients, raised))
    assert moved.policy.root == plain.policy.root


def test_leaves_are_weighed_by_the_mixture_and_by_who_ends_in_them(clients):
    """Together they give the value of a constant arm, though levels differ between clients."""
    lifted = {
        name: fedopl.LoggedData(
            d.contexts + 0.5 * turn, d.actions, d.rewards + 10 * turn, action_names=ACTIONS
        )
        for turn, (name, d) in enumerate(clients.items())
    }
    mixture = {"north": 0.1, "south": 0.2, "west": 0.7}
    run = learn(lifted, policy="tree", mixture=mixture, evaluation=0.25)
    for action in ACTIONS:
        own = [row for row in run.leaves if row.action == action]
        assert len(own) > 1
        added_up = sum(row.share * row.estimate.value for row in own)
        # The value of the arm on held-out rows, as leaves are; the table has that of all rows.
        arm = run.gains.over(f"everybody gets {action}").value
        value = run.values.of("learned").value - arm
        assert added_up == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize("limits", ["guarded", "open"])
def test_cells_of_seven_digits_find_the_same_tree(limits):
    rng = np.random.default_rng(0)
    contexts, actions = rng.normal(size=(2000, 3)), np.arange(2000) % 2
    rewards = actions * (contexts[:, 0] > 0.2) * (contexts[:, 1] < 0.4) + rng.normal(size=2000)
    clients = {"a": fedopl.LoggedData(contexts, actions, rewards)}
    found = {
        kind: learn(
            clients, policy=fedopl.Tree(bins=8, cell_numbers=kind), limits=limits, evaluation=0.25
        )
        for kind in ("float64", "float32")
    }
    long, short = found["float64"].tree, found["float32"].tree
    assert str(found["float64"].policy) == str(found["float32"].policy)
    assert short.cells["a"].dtype == np.float64
    off = np.abs(short.cells["a"] - long.cells["a"])
    assert 0 < off.max() <= np.abs(long.cells["a"]).max() * 2.0**-24
    sent = {kind: sum(r.bytes_received for r in run.rounds) for kind, run in found.items()}
    assert sent["float64"] - sent["float32"] == 4 * long.cells["a"].size
