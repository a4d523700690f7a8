"""Personal policies: what they are made of, what never leaves, and that nobody's order matters."""

import dataclasses

import numpy as np
import pytest
from lying_server import ACTIONS, N_FEATURES, LyingServer, rows, study_with
from personal_policies import differing_world, saturating_world

import fedopl
from fedopl.messages.evaluation.policy_values import Value
from fedopl.messages.message import RowSplit
from fedopl.messages.refusal import Refusal
from fedopl.policies.bent import BentPolicy
from fedopl.policies.kinds import load_policy, packed
from fedopl.policies.linear import LinearPolicy
from fedopl.report.sections.joining import joining
from fedopl.report.sections.training import who_is_in
from fedopl.results.value_tables import LOCAL, PERSONAL
from fedopl.server.aggregate.others_policies import policies_of_others
from fedopl.simulation.named_worlds import odd_world
from fedopl.solvers.personal_ridge import RIDGE_STRENGTHS

PLAN = fedopl.EvaluationPlan(share=0.25, describe=False)


def learned(world, n_rows, names=None, **options):
    data = world.all_known(n_rows)
    names = names or sorted(data)
    options = {"basis": "linear", "personal": "ridge", "evaluation": PLAN, **options}
    return fedopl.learn({name: data[name] for name in names}, **options)


@pytest.fixture(scope="module")
def odd():
    """Eight clients of which the first is odd, and what came of them."""
    world = odd_world(seed=1)
    return world, learned(world, 400)


def regret(world, client, policy):
    contexts = world.test_contexts(client, 4_000)
    worth = world.mean_rewards(client, contexts)
    taken = worth[np.arange(len(worth)), policy.decide(contexts)]
    return float((worth.max(axis=1) - taken).mean())


def test_the_client_that_differs_is_helped_and_the_others_lose_nothing(odd):
    world, run = odd
    first, *rest = world.clients
    own = {name: regret(world, name, policy) for name, policy in run.personal_policies.items()}
    shared = {name: regret(world, name, run.policy) for name in world.clients}
    assert own[first] < 0.2 * shared[first]
    assert np.mean([own[name] for name in rest]) < 1.15 * np.mean([shared[n] for n in rest]) + 0.003


def test_what_it_is_worth_is_told_beside_the_others_and_paired(odd):
    world, run = odd
    client = world.clients[0]
    gain = run.personal.over("learned", client)
    values = run.values
    difference = values.of(PERSONAL, client).value - values.of("learned", client).value
    assert np.isclose(gain.value, difference)
    assert gain.interval()[0] > 0
    assert np.isclose(run.gains.over(PERSONAL, client).value, -gain.value)
    assert np.isclose(
        run.personal.over(LOCAL, client).value,
        values.of(PERSONAL, client).value - values.of(LOCAL, client).value,
    )


def test_the_order_of_clients_changes_nothing(odd):
    world, run = odd
    other = learned(world, 400, names=[*reversed(world.clients)])
    for name, policy in run.personal_policies.items():
        assert np.array_equal(policy.numbers(), other.personal_policies[name].numbers())
    assert str(other.personal) == str(run.personal)


def test_others_policies_are_what_others_learn_without_the_client(odd):
    """From sums at the server, or from a run in which the client takes no part: the same."""
    world, run = odd
    found = policies_of_others(run.statistics, run.mixture)
    client = world.clients[0]
    rest = [name for name in run.statistics.clients if name != client]
    pooled = run.statistics.restricted(rest)
    weights = {name: run.mixture[name] for name in rest}
    assert np.array_equal(found[client], pooled.solve(weights).parameters)
    rows_scores = [run.statistics.sums[name] for name in rest]
    by_rows = dataclasses.replace(
        pooled,
        study=run.study.model_copy(update={"policy": fedopl.Linear(precision="rows")}),
    )
    total = sum(weights.values())
    gram = sum(weights[n] / total * s.grams[0] for n, s in zip(rest, rows_scores, strict=True))
    product = sum(weights[n] / total * s.products for n, s in zip(rest, rows_scores, strict=True))
    alone = np.linalg.solve(gram, product.T).T
    assert np.allclose(by_rows.solve(weights).parameters, alone, rtol=1e-9, atol=1e-12)


def test_clients_that_are_alike_have_nearly_the_shared_policy():
    world = differing_world("linear", seed=0, far=0.0)
    run = learned(world, 1_000)
    contexts = world.test_contexts(world.clients[0], 2_000)
    for policy in run.personal_policies.values():
        assert (policy.decide(contexts) == run.policy.decide(contexts)).mean() > 0.9


def test_where_effects_saturate_the_index_is_bent_and_such_a_policy_can_be_kept(tmp_path):
    world = saturating_world(seed=1)
    first = world.clients[0]
    run = learned(world, 800)
    policy = run.personal_policies[first]
    assert isinstance(policy, BentPolicy)
    assert regret(world, first, policy) < 0.25 * regret(world, first, run.policy)
    assert not any(isinstance(run.personal_policies[n], BentPolicy) for n in world.clients[1:])
    policy.save(tmp_path / "own.json")
    again = load_policy(tmp_path / "own.json")
    contexts = world.test_contexts(first, 500)
    assert np.array_equal(again.decide(contexts), policy.decide(contexts))


def test_studies_that_do_not_ask_for_them_are_what_they_were():
    plain = study_with()
    assert "personal" not in plain.model_dump_json()
    assert study_with(personal="none").digest == plain.digest
    assert study_with(personal="ridge").digest != plain.digest


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"policy": fedopl.Tree(depth=3)}, "up to depth 2"),
        ({"policy": "neural"}, "csoaa-exact"),
        ({"policy": fedopl.Finite(caution=1.0)}, "standard errors"),
        ({"policy": fedopl.Tree(caution=1.0)}, "standard errors"),
        ({"policy": fedopl.Linear(oracle="csoaa-sgd")}, "csoaa-exact"),
        ({"evaluation": 0}, "held out"),
        ({"budget": fedopl.Budget(shares={"pill": 0.2})}, "budget"),
    ],
)
def test_where_there_can_be_none_the_study_says_why(changes, why):
    with pytest.raises(fedopl.OptionError, match=why):
        study_with(personal="ridge", **changes)


def test_under_several_splits_it_is_the_first_ones_and_worth_the_median():
    plan = fedopl.EvaluationPlan(share=0.25, describe=False, splits=3)
    world = odd_world(seed=1)
    names = world.clients[:3]
    run = learned(world, 300, names=names, evaluation=plan)
    alone = learned(world, 300, names=names)
    for name in names:
        own, first = run.personal_policies[name], alone.personal_policies[name]
        assert np.array_equal(own.numbers(), first.numbers())
        found = [
            one.values.of(PERSONAL, name).value - one.values.of("learned", name).value
            for one in run.splits
        ]
        assert np.isclose(run.personal.over("learned", name).value, np.median(found))


def test_clients_join_and_leave_and_only_the_shared_policy_is_solved_again(odd):
    world, run = odd
    *_, last = world.clients
    without = run.leave(last)
    assert not without.personal
    assert not without.personal_policies
    assert "personal policies would be now" in page_of(without)
    again = without.join({last: world.all_known(400)[last]})
    assert np.array_equal(again.policy.numbers(), run.policy.numbers())
    assert str(again.personal) == str(run.personal)
    assert again.personal_policies == run.personal_policies
    kinds = [one.query for one in again.rounds[len(run.rounds) :]]
    assert "SumContrasts" not in kinds
    assert "ValuePersonal" not in kinds


def page_of(run):
    return "".join(str(part) for part in who_is_in(run).parts)


@pytest.mark.parametrize(("asked", "says"), [("none", False), ("auto", True)])
def test_the_report_says_why_there_are_none(asked, says):
    """Where a study can have none, whoever asked; and nothing is said of one that could."""
    world = odd_world(seed=1)
    options = {"personal": asked, "policy": fedopl.Tree(caution=1.0) if says else "linear"}
    run = learned(world, 120, names=world.clients[:2], **options)
    assert not run.personal
    said = "".join(str(part) for part in joining(run).parts)
    assert ("have no personal policies: caution takes standard errors" in said) == says


def test_with_caution_the_personal_policy_has_the_doubts_of_the_shared_one(odd):
    world, plain = odd
    run = learned(world, 400, policy=fedopl.Linear(caution=1.0))
    first = world.clients[0]
    for name, policy in run.personal_policies.items():
        # Numbers count to eight digits, as those of policies that are asked about.
        np.testing.assert_allclose(policy.doubts, run.policy.doubts, rtol=1e-6, atol=1e-8)
        if not isinstance(plain.personal_policies[name], BentPolicy):
            own = plain.personal_policies[name].parameters
            np.testing.assert_allclose(policy.parameters, own, rtol=1e-6, atol=1e-8)
    assert regret(world, first, run.personal_policies[first]) < 0.25 * regret(
        world, first, run.policy
    )
    assert run.personal.over("learned", first).interval()[0] > 0


def test_a_cautious_personal_policy_is_kept_with_its_doubts():
    study = study_with(personal="ridge", evaluation=0.5, policy=fedopl.Linear(caution=1.0))
    width = N_FEATURES + 1
    others = np.zeros((len(ACTIONS), width + width * (width + 1) // 2))
    others[1, width:] = 1.0
    server = LyingServer(rows(600, 0), study).score()
    fields = _fields(study, others, likelihoods=np.zeros(len(RIDGE_STRENGTHS)))
    assert not isinstance(server.ask(Value, **fields), Refusal)
    kept = server.door.personal_policy
    assert kept.doubts[1].any()
    assert not kept.doubts[0].any()
    contexts = server.door._space.data.contexts[:50]
    assert (kept.scores(contexts)[:, 1] < kept.linear(contexts)[:, 1]).all()


# --- a server that lies -------------------------------------------------------------------------

PERSONAL_STUDY = {"personal": "ridge", "evaluation": 0.5}


def _fields(study, others, asked=(), likelihoods=None):
    """A query that makes the personal policy the one that the server wants."""
    forced = np.full(len(RIDGE_STRENGTHS), -1e9)
    forced[0] = 0.0
    return {
        **packed(list(asked), study),
        "split": RowSplit.EVALUATION,
        "others": others[None],
        "centre": np.zeros((1, N_FEATURES + 1)),
        "scale": np.ones((1, N_FEATURES + 1)),
        "likelihoods": (forced if likelihoods is None else likelihoods)[None],
    }


def _server(limits=None, seed=0):
    """Before a client whose outcomes follow from nothing, so that it has no mind of its own."""
    data = rows(600, seed)
    noise = np.random.default_rng(seed + 1_000).standard_normal(data.n_rows)
    alike = fedopl.LoggedData(data.contexts, data.actions, noise, action_names=ACTIONS)
    return LyingServer(alike, study_with(**PERSONAL_STUDY), limits=limits).score()


def _two_that_differ_at(person):
    """Everybody gets nothing; and the same, but whoever is exactly there gets the pill."""
    nothing = np.zeros((len(ACTIONS), N_FEATURES + 1))
    nothing[0, -1] = 1e-6
    # One person beyond a half-space through it that no other reaches: its own direction. Scores
    # are tiny, so that they are as good as none, and nothing is moved or bent.
    almost = nothing.copy()
    almost[1] = [*(1e-6 * person), 1e-6 * (1 + 1e-6 - float(person @ person))]
    return nothing, almost


def _attacked(limits, n_people=25):
    """Γ(pill) − Γ(none) of people far out, by the difference of two values; and the truth."""
    found, true = [], []
    for seed in range(n_people):
        server = _server(limits, seed)
        chunk = server.door._space.whole
        held_out = chunk.rows(RowSplit.EVALUATION)
        contexts = chunk.data.contexts[held_out]
        place = int(np.argmax((contexts**2).sum(axis=1)))
        nothing, almost = _two_that_differ_at(contexts[place])
        policies = [LinearPolicy.from_numbers(one, server.study) for one in (nothing, almost)]
        decided = [one.decide(contexts) for one in policies]
        assert (decided[0] != decided[1]).sum() == 1
        fields = _fields(server.study, almost, [policies[0]])
        told = server.ask(Value, **fields).together()
        found.append(told.n_rows * (told.means[1] - told.means[0]))
        scores = chunk.scores[held_out][place]
        true.append(scores[1] - scores[0])
    return np.array(found), np.array(true)


def test_a_server_that_asks_other_questions_is_told_of_one_row():
    """The exact contract does not promise otherwise: values are exact."""
    found, true = _attacked(None, n_people=3)
    np.testing.assert_allclose(found, true, rtol=1e-6, atol=1e-6)


def test_few_are_asked_about():
    server = _server()
    others = np.zeros((len(ACTIONS), N_FEATURES + 1))
    for place in range(Value.most(server.study)):
        asked = _fields(server.study, others + 1e-9 * place)
        assert not isinstance(server.ask(Value, **asked), Refusal)
    again = server.ask(Value, **_fields(server.study, others + 1e-6))
    assert again.reason.name == "ASKED_ALREADY"


def test_no_answer_carries_the_personal_policy():
    """What the door wrote down as released has a mean for each candidate, and their covariances."""
    server = _server()
    others = np.zeros((len(ACTIONS), N_FEATURES + 1))
    likely = np.zeros(len(RIDGE_STRENGTHS))
    told = server.ask(Value, **_fields(server.study, others, likelihoods=likely))
    assert told.means.shape == (1, 1, 3)
    assert told.covariances.shape == (1, 1, 3, 3)
    assert server.door.personal_policy.numbers().any()


@pytest.mark.parametrize(
    "wrong",
    [
        {"scale": np.full((1, N_FEATURES + 1), -1.0)},
        {"scale": np.zeros((1, N_FEATURES + 1))},
        {"centre": np.ones((1, N_FEATURES + 1))},
        {"likelihoods": np.full((1, len(RIDGE_STRENGTHS)), np.nan)},
        {"others": np.full((1, len(ACTIONS), N_FEATURES + 1), 1e16)},
        {"others": np.zeros((0, len(ACTIONS), N_FEATURES + 1))},
        {"others": np.zeros((1, len(ACTIONS), N_FEATURES))},
        {"scale": np.empty((1, 0))},
        {"centre": np.empty((1, 0))},
    ],
)
def test_what_no_honest_server_sends_is_malformed(wrong):
    server = _server()
    fields = _fields(server.study, np.zeros((len(ACTIONS), N_FEATURES + 1)))
    assert server.ask(Value, **{**fields, **wrong}).reason.name == "MALFORMED"
