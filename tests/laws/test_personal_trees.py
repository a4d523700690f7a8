"""Personal trees and choices: between everybody else's and the client's own, and never told."""

import numpy as np
import pytest
from lying_server import ACTIONS, LyingServer, rows, study_with
from scipy.stats import multivariate_normal

import fedopl
from fedopl.client.local.personal_policy import PersonalTreeTask
from fedopl.messages.evaluation.policy_values import Value
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import Refusal
from fedopl.policies.kinds import packed
from fedopl.policies.linear import constant_policy
from fedopl.policies.tree import TreePolicy
from fedopl.policies.trees.nodes import Branch, Leaf, as_array, leaf_positions
from fedopl.results.sums.tree_statistics import Searched
from fedopl.results.value_tables import PERSONAL
from fedopl.server.aggregate.others_choices import choice_fields
from fedopl.server.aggregate.others_leaves import leaf_fields_for_each
from fedopl.server.aggregate.setting import Setting
from fedopl.simulation.named_worlds import odd_world
from fedopl.solvers.personal_choice import ChoicePath
from fedopl.solvers.personal_ridge import RIDGE_STRENGTHS, OwnSums, PersonalPath, Scaling

PLAN = fedopl.EvaluationPlan(share=0.25, describe=False)
TREE = fedopl.Tree(depth=2, refine=False, bins=8)
FORCED = {"none": 0, "all": -1}


@pytest.fixture(scope="module")
def odd():
    """Five clients of which the first is odd, and the trees that came of them."""
    world = odd_world(seed=1)
    data = world.all_known(800)
    some = {name: data[name] for name in world.clients[:5]}
    return some, fedopl.learn(some, policy=TREE, personal="ridge", evaluation=PLAN, basis="linear")


def only(strength):
    """Likelihoods by which no other strength counts: the least, or the largest."""
    likely = np.full(len(RIDGE_STRENGTHS), -1e12)
    likely[FORCED[strength]] = 0.0
    return likely


def leaf_means(space, root):
    """Mean scores of training rows by leaf and action: what the client alone goes by."""
    chunk = space.whole
    own = chunk.training
    leaf = leaf_positions(root, space.study.columns, chunk.data.contexts[own])
    scores = chunk.scores[own]
    return np.array([scores[leaf == one].mean(axis=0) for one in (0, 1)])


def test_each_client_has_a_tree_whose_value_is_told(odd):
    some, run = odd
    assert set(run.personal_policies) == set(some)
    assert all(isinstance(policy, TreePolicy) for policy in run.personal_policies.values())
    first = next(iter(some))
    gain = run.personal.over("learned", first)
    difference = run.values.of(PERSONAL, first).value - run.values.of("learned", first).value
    assert np.isclose(gain.value, difference)
    assert gain.value > 0.1  # the odd one is helped


def test_what_leaves_are_worth_to_others_is_the_mean_over_their_rows(odd):
    """From cells at the server, or from the rows of all others: the same arithmetic."""
    some, run = odd
    client, *rest = sorted(some)
    setting = _setting(run)
    sent = leaf_fields_for_each(setting, [Searched(run.policy, run.tree)])[client]["others"][0]
    numbers = [run.tree.leaf_sums(run.policy.root)[name] for name in rest]
    weights = [run.mixture[name] for name in rest]
    shares = sum(w * own[:, 1] for w, own in zip(weights, numbers, strict=True))
    pooled = sum(w * own[:, 2:] for w, own in zip(weights, numbers, strict=True)).T / shares
    assert np.allclose(sent, pooled, rtol=1e-12)


def _setting(run):
    return Setting(study=run.study, rows=run.rows, weights=run.mixture, statistics=run.statistics)


def _server(**changes):
    study = study_with(personal="ridge", evaluation=0.5, **changes)
    return LyingServer(rows(600, 3), study).score()


SPLIT = Branch(0, 0.0, Leaf(0), Leaf(1))


def asked_about(root, study):
    """The fields of a query about this tree alone, on held-out rows."""
    tree = as_array(root)[None]
    return {"split": RowSplit.EVALUATION, **packed([], study), "trees": tree, "shared": tree}


@pytest.mark.parametrize("strength", FORCED)
def test_strength_none_is_the_others_and_all_the_clients_own(strength):
    server = _server(policy=fedopl.Tree(depth=1, refine=False))
    others = np.zeros((len(ACTIONS), 2))
    others[1, 0] = others[0, 1] = 1e-3
    likely = only(strength)
    fields = {**asked_about(SPLIT, server.study), "others": others[None]}
    told = server.ask(Value, **fields, likelihoods=likely[None])
    assert told.means.shape == (1, 1, 4)  # its value, and nothing of the tree
    space = server.door._space
    found = PersonalTreeTask(
        study=space.study,
        scored=(space.scored_rows,),
        n_rows=space.n_training,
        root=SPLIT,
        own_root=SPLIT,
        others=others,
        likelihoods=likely,
    ).solve()
    own = leaf_means(space, SPLIT)
    expected = others.T if strength == "none" else own
    contexts = space.data.contexts[:200]
    leaf = leaf_positions(SPLIT, space.study.columns, contexts)
    assert np.array_equal(found.decide(contexts), expected.argmax(axis=1)[leaf])


def test_a_personal_leaf_holds_only_what_its_people_may_get():
    group = {"column": "x0", "above": 0.0, "actions": (ACTIONS[0],)}
    server = _server(policy=fedopl.Tree(depth=1, refine=False, allowed=(group,)))
    others = np.zeros((len(ACTIONS), 2))
    others[1] = 1.0
    fields = {**asked_about(SPLIT, server.study), "others": others[None]}
    assert not isinstance(server.ask(Value, **fields, likelihoods=only("none")[None]), Refusal)
    contexts = server.door._space.data.contexts[:200]
    decided = server.door.personal_policy.decide(contexts)
    assert (decided[contexts[:, 0] > 0] == 0).all()
    assert (decided[contexts[:, 0] <= 0] == 1).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"others": np.zeros((1, len(ACTIONS), 1))},
        {"shared": np.full((1, 1, 4), 7.0)},
        {"shared": as_array(Leaf(0))[None]},
        {"likelihoods": np.full((1, len(RIDGE_STRENGTHS)), np.nan)},
    ],
)
def test_a_tree_that_no_honest_server_sends_is_malformed(wrong):
    server = _server(policy=fedopl.Tree(depth=1))
    fields = asked_about(SPLIT, server.study)
    fields |= {"others": np.zeros((1, len(ACTIONS), 2)), "likelihoods": only("none")[None]}
    assert server.ask(Value, **{**fields, **wrong}).reason.name == "MALFORMED"


# --- choices among candidates -------------------------------------------------------------------


@pytest.mark.parametrize("strength", FORCED)
def test_the_choice_is_the_others_or_the_clients_own_and_is_worth_what_it_is(strength):
    server = _server(policy="finite")
    arms = [constant_policy(a, ACTIONS, server.study.features) for a in ACTIONS]
    chunk = server.door._space.whole
    own = chunk.scores[chunk.training].mean(axis=0)
    others = np.zeros(len(ACTIONS))
    worst = int(own.argmin())
    others[worst] = 1e-6
    fields = {
        **packed(arms, server.study),
        "split": RowSplit.EVALUATION,
        "others": others[None, None],
    }
    told = server.ask(Value, **fields, likelihoods=only(strength)[None]).together()
    chosen = worst if strength == "none" else int(own.argmax())
    assert told.means[len(arms)] == told.means[chosen]
    kept = server.door.personal_policy
    assert (kept.decide(chunk.data.contexts[:9]) == chosen).all()


def test_a_choice_is_worth_what_its_candidate_is_rules_in_code_among_them():
    world = odd_world(seed=1)
    data = world.all_known(800)
    some = {name: data[name] for name in world.clients[:4]}
    rule = {"by x0": lambda contexts: (contexts[:, 0] > 0).astype(int)}
    run = fedopl.learn(
        some, policy=fedopl.Finite(candidates=rule), personal="ridge", evaluation=PLAN
    )
    for name in some:
        lost = {row.against: row.estimate.value for row in run.gains if row.client == name}
        own = lost.pop(PERSONAL)
        assert own in (0.0, *lost.values())


def test_pooled_arithmetic_of_choices():
    rng = np.random.default_rng(0)
    told = {}
    for name in "abc":
        values = rng.standard_normal((500, 3))
        covariances = np.cov(values.T) / 500
        told[name] = _Told(values.mean(axis=0), covariances, 500)
    weights = {"a": 0.5, "b": 0.25, "c": 0.25}
    fields = choice_fields(3, told, weights)
    pooled = (told["b"].means + told["c"].means) / 2
    assert np.allclose(fields["a"]["others"][0], pooled, rtol=1e-14)


class _Told:
    def __init__(self, means, covariances, n_rows):
        self.means, self.covariances, self.n_rows = means, covariances, n_rows


def test_the_likelihood_of_a_choice_is_that_of_a_normal_with_both_variances():
    """log N(d; 0, (1/n + r)·S) less log N(d; 0, S/n), on the contrasts of three candidates."""
    rng = np.random.default_rng(1)
    rows_ = rng.standard_normal((400, 3)) @ rng.standard_normal((3, 3))
    spread, n = np.cov(rows_.T), 400
    own, others = rows_.mean(axis=0), np.array([0.1, 0.0, -0.1])
    path = ChoicePath(own=own, covariances=spread / n, n_rows=n, others=others)
    contrast = np.array([[1, -1, 0], [0, 1, -1]])
    apart, own_spread = contrast @ (own - others), contrast @ spread @ contrast.T
    none = multivariate_normal(cov=own_spread / n).logpdf(apart)
    expected = [
        multivariate_normal(cov=(1 / n + r) * own_spread).logpdf(apart) - none
        for r in RIDGE_STRENGTHS
    ]
    assert np.allclose(path.log_likelihoods(), expected, atol=1e-8)
    assert np.array_equal(path.at(0.0), others)
    assert np.allclose(path.at(np.inf), own)
    assert path.log_likelihoods()[0] == 0


def test_candidates_that_decide_alike_say_nothing():
    path = ChoicePath(own=np.ones(3), covariances=np.ones((3, 3)), n_rows=9, others=np.zeros(3))
    assert not path.log_likelihoods().any()


def test_leaves_are_shrunk_as_terms_are():
    """A leaf of n rows is at n·r/(1 + n·r) of the way from the others' value to its own."""
    shares, own, others = (
        np.array([0.2, 0.8]),
        np.array([[1.0, 2.0], [-1.0, -2.0]]),
        np.zeros((2, 2)),
    )
    sums = OwnSums(
        gram=np.diag(shares), products=own * shares, known=np.ones(2, bool), squares=9.0, n_rows=100
    )
    path = PersonalPath.of(sums, others, Scaling.none(2))
    n = 100 * shares
    assert np.allclose(path.at(0.5), own * (n * 0.5 / (1 + n * 0.5)))
    assert np.array_equal(path.at(0.0), others)
    assert np.allclose(path.at(np.inf), own)
