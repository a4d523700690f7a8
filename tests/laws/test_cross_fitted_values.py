"""Law: cross-fitted values are those of the way of learning, and their intervals cover them."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import fedopl
from fedopl.client import workspace
from fedopl.client.answers.handlers import HANDLERS
from fedopl.client.answers.valuing import estimate_values, value_personal
from fedopl.client.answers.valuing.estimate_values import estimate
from fedopl.client.answers.valuing.versions import with_wider_variances
from fedopl.client.disclosure.limits import Limits
from fedopl.client.disclosure.private_draws import SEED_ALONE
from fedopl.client.door import Door
from fedopl.client.local.local_policy import local_policies_by_fold
from fedopl.client.outcome_workspace import OutcomeWorkspace
from fedopl.engines.in_process import InProcess
from fedopl.messages.evaluation.policy_values import Value
from fedopl.policies.kinds import in_message_order
from fedopl.report.page import write_report
from fedopl.results.value_tables import BEST_ARM, PERSONAL
from fedopl.server import policy_comparison
from fedopl.server.exchange.conversation import Conversation
from fedopl.server.federation import evaluate_policies
from fedopl.server.learn_by_fold import learn_by_fold
from fedopl.solvers.personal_ridge import OwnSums, Scaling, WeighedPath
from fedopl.study.plans import EvaluationPlan, NuisancePlan

pytestmark = pytest.mark.usefixtures("without_figures")

N_RUNS = 60
NUISANCES = NuisancePlan(propensity="marginal")
PLAN = EvaluationPlan(kind="cross-fitted", describe=False)
CONTEXTS = np.random.default_rng(99).standard_normal((10_000, 4))


def mean_rewards(contexts, actions, effect):
    return effect * contexts[:, 0] * (actions - 1) + 0.3 * (actions == 1)


def logged(rng, n_rows, effect, n_groups=None):
    """A trial with three arms; groups share a feature and a shock."""
    contexts = rng.standard_normal((n_rows, 4))
    actions = rng.integers(0, 3, n_rows)
    rewards = mean_rewards(contexts, actions, effect) + rng.standard_normal(n_rows)
    groups = None
    if n_groups:
        groups = np.arange(n_rows) % n_groups
        rewards += 0.7 * rng.standard_normal(n_groups)[groups]
        contexts[:, 1] = 0.6 * contexts[:, 1] + 0.8 * rng.standard_normal(n_groups)[groups]
    return fedopl.LoggedData(contexts, actions, rewards, groups=groups, action_names="abc")


@pytest.fixture
def by_fold(monkeypatch):
    """The policies that were learned without each fold, by everybody and by clients alone."""
    seen = {"together": [], "alone": []}

    def spied(kind, learn):
        def spy(*given):
            found = learn(*given)
            seen[kind] += found
            return found

        return spy

    together = spied("together", learn_by_fold)
    monkeypatch.setattr(policy_comparison, "learn_by_fold", together)
    alone = spied("alone", local_policies_by_fold)
    monkeypatch.setattr(workspace, "local_policies_by_fold", alone)
    return seen


def true_value(policies, effect):
    return np.mean([mean_rewards(CONTEXTS, p.decide(CONTEXTS), effect).mean() for p in policies])


WORLDS = {
    "an effect": (150, 1.0, None),
    "no effect": (150, 0.0, None),
    "few rows": (60, 0.3, None),
    "groups": (150, 0.3, 12),
}


@pytest.mark.parametrize(
    "world",
    [
        "few rows",
        *(pytest.param(name, marks=pytest.mark.slow_law) for name in WORLDS if name != "few rows"),
    ],
)
def test_intervals_cover_what_the_way_of_learning_is_worth(world, by_fold):
    n_rows, effect, n_groups = WORLDS[world]
    logging = np.mean([mean_rewards(CONTEXTS, np.full(10_000, a), effect).mean() for a in range(3)])
    covered = {"value": 0, "gain over logging": 0, "gain over local": 0}
    for seed in range(N_RUNS):
        rng = np.random.default_rng(seed)
        clients = {name: logged(rng, n_rows, effect, n_groups) for name in ("x", "y", "z")}
        by_fold["together"].clear()
        by_fold["alone"].clear()
        run = fedopl.learn(clients, basis="linear", evaluation=PLAN, nuisances=NUISANCES, seed=seed)
        value = true_value(by_fold["together"], effect)
        truths = {
            "value": (run.values.of("learned"), value),
            "gain over logging": (run.gains.over("logging policy"), value - logging),
            "gain over local": (
                run.gains.over("local policy"),
                value - true_value(by_fold["alone"], effect),
            ),
        }
        for name, (found, truth) in truths.items():
            low, high = found.interval()
            covered[name] += low <= truth <= high
    print(world, {name: count / N_RUNS for name, count in covered.items()})
    # Of 60 runs that cover 95 %, at least 53 do in all but one of a hundred such tests.
    assert min(covered.values()) >= 0.88 * N_RUNS


def test_every_row_is_valued_by_policies_that_its_fold_had_no_part_in(by_fold, monkeypatch):
    """As if each fold were left out by hand: learned from the others' scores, valued on its own."""
    rng = np.random.default_rng(0)
    clients = {name: logged(rng, n_rows, 1.0) for name, n_rows in (("x", 80), ("y", 140))}
    spaces = {}

    def spy(space, query):
        spaces[space.n_training] = space
        return value_personal.answer(space, query)

    monkeypatch.setitem(HANDLERS, Value, spy)
    run = fedopl.learn(clients, basis="linear", evaluation=PLAN, nuisances=NUISANCES)
    for name, data in clients.items():
        space = spaces[data.n_rows]
        whole, values = space.whole, np.empty(data.n_rows)
        for policy, rows in zip(by_fold["together"], whole.fold_slices, strict=True):
            decided = policy.decide(whole.data.contexts[rows])
            values[rows] = whole.scores[rows][np.arange(len(decided)), decided]
        assert run.values.of("learned", name).value == pytest.approx(values.mean(), rel=1e-12)
        assert run.values.of("learned", name).n_rows == data.n_rows
    for fold, learned in enumerate(by_fold["together"]):
        expected = least_squares_without(fold, spaces.values())
        # Folds have not quite the same share of the rows at all clients, and clients count by rows.
        assert (learned.decide(CONTEXTS) == expected(CONTEXTS)).mean() > 0.97


def test_the_best_arm_is_the_one_of_the_other_folds(by_fold, monkeypatch):
    """Where folds differ in it, each row's is the arm with the best mean score in other folds."""
    rng = np.random.default_rng(5)
    clients = {name: logged(rng, n_rows, 0.0) for name, n_rows in (("x", 80), ("y", 140))}
    spaces = {}

    def spy(space, query):
        spaces[space.client] = space
        return value_personal.answer(space, query)

    monkeypatch.setitem(HANDLERS, Value, spy)
    run = fedopl.learn(clients, basis="linear", evaluation=PLAN, nuisances=NUISANCES)
    found, values, arms = 0.0, {}, set()
    sums = {
        name: [s.whole.scores[rows].sum(axis=0) for rows in s.whole.fold_slices]
        for name, s in spaces.items()
    }
    for name, space in spaces.items():
        values[name] = np.empty(space.n_training)
        for fold, rows in enumerate(space.whole.fold_slices):
            others = sum(own[k] for own in sums.values() for k in range(5) if k != fold)
            arms.add(int(others.argmax()))
            values[name][rows] = space.whole.scores[rows, others.argmax()]
        found += values[name].sum() / 220
    assert len(arms) > 1
    assert run.valued_arm == BEST_ARM
    assert run.values.of(BEST_ARM).value == pytest.approx(found, rel=1e-9)
    assert BEST_ARM not in {row.policy for row in run.improvements.rows}
    assert "the best constant arm, chosen fold by fold" in run.verdict


def test_a_guardrail_is_judged_fold_by_fold(by_fold, monkeypatch):
    """A further outcome is valued in each row by the policy that was learned without its fold."""
    rng = np.random.default_rng(0)
    clients = {}
    for name in "xy":
        data = logged(rng, 120, 1.0)
        harm = (rng.random(120) < 0.3) + 0.2 * (data.actions == 1)
        fields = (data.contexts, data.actions, data.rewards)
        clients[name] = fedopl.LoggedData(*fields, outcomes={"harm": harm}, action_names="abc")
    spaces, further = {}, {}

    def spy(space, *asked):
        (further if isinstance(space, OutcomeWorkspace) else spaces)[space.client] = space
        return estimate(space, *asked)

    monkeypatch.setattr(estimate_values, "estimate", spy)
    harm = fedopl.Guardrail(column="harm", at_most=0.5, more_than="what was done")
    options = {"basis": "linear", "evaluation": PLAN, "nuisances": NUISANCES}
    run = fedopl.learn(clients, guardrails={"harm": harm}, **options)
    for name, space in spaces.items():
        whole, scores = space.whole, further[name].whole.scores
        for kind, policies in (
            ("learned", by_fold["together"]),
            ("local policy", space.local_policies_by_fold),
        ):
            values = np.empty(120)
            for policy, rows in zip(policies, whole.fold_slices, strict=True):
                decided = policy.decide(whole.data.contexts[rows])
                values[rows] = scores[rows][np.arange(len(decided)), decided]
            found = run.outcomes.of("harm", kind, name)
            assert found.value == pytest.approx(values.mean(), rel=1e-12)
            assert found.n_rows == 120
    assert run.guardrails.of("learned")["harm"].verdict == "kept"


def test_personal_policies_of_a_fold_rest_on_no_row_of_it(by_fold, monkeypatch):
    """Neither what all others learned, nor the client's own rows that move it."""
    rng = np.random.default_rng(4)
    clients = {name: logged(rng, n_rows, 0.5) for name, n_rows in (("x", 150), ("y", 210))}
    told = {}

    def spy(space, query):
        told[space.client] = space, query
        return value_personal.answer(space, query)

    monkeypatch.setitem(HANDLERS, Value, spy)
    plan = NuisancePlan(propensity="marginal", kind="local")
    run = fedopl.learn(clients, basis="linear", evaluation=PLAN, nuisances=plan, personal="ridge")
    for name, (space, query) in told.items():
        (other,) = (own for client, (own, _) in told.items() if client != name)
        whole, worth = space.whole, np.empty(space.n_training)
        for fold in [*range(5), None]:
            place = -1 if fold is None else fold
            expected = least_squares_without(fold, [other])(CONTEXTS)
            others = fedopl.LinearPolicy.from_numbers(query.others[place], space.study)
            assert (others.decide(CONTEXTS) == expected).mean() > 0.999
            personal = moved(space, query, fold, place)
            if fold is None:
                kept = space.personal_policy.decide(CONTEXTS)
                assert (personal.decide(CONTEXTS) == kept).mean() > 0.999
            else:
                rows = whole.fold_slices[fold]
                decided = personal.decide(whole.data.contexts[rows])
                worth[rows] = whole.scores[rows][np.arange(len(decided)), decided]
        found = run.values.of(PERSONAL, name)
        assert found.value == pytest.approx(worth.mean(), rel=1e-9)
        assert found.n_rows == len(worth)
    assert run.personal.over("learned").n_rows == 360


def moved(space, query, fold, place):
    """The others' policy moved toward the rows outside a fold, from sums made by hand."""
    whole = space.whole
    rows = np.ones(len(whole.scores), bool) if fold is None else whole.folds.of_row != fold
    terms = np.column_stack([whole.data.contexts[rows], np.ones(rows.sum())])
    scores, n = whole.scores[rows], int(rows.sum())
    means = (terms.T @ terms / n)[None], scores.T @ terms / n, np.ones(3)
    squares = ((scores - scores.mean(axis=1, keepdims=True)) ** 2).sum() / n
    scaling = Scaling(centre=query.centre[place], scale=query.scale[place])
    own = OwnSums.of(means, squares, n)
    path = WeighedPath.of(own, query.others[place], scaling, query.likelihoods[place])
    return fedopl.LinearPolicy.from_numbers(path.mean, space.study)


def test_variances_are_larger_by_how_often_versions_differ(by_fold, monkeypatch):
    told = {}

    def spy(space, found, candidates):
        told["space"], told["plain"] = space, found.covariances
        told["wider"] = with_wider_variances(space, found, candidates).covariances
        return replace(found, covariances=told["wider"])

    monkeypatch.setattr(estimate_values, "with_wider_variances", spy)
    rng = np.random.default_rng(0)
    clients = {name: logged(rng, 90, 0.3) for name in "xy"}
    run = fedopl.learn(clients, basis="linear", evaluation=PLAN, nuisances=NUISANCES)
    space, contexts = told["space"], told["space"].data.contexts
    learned = [policy.decide(contexts) for policy in by_fold["together"]]
    alone = [policy.decide(contexts) for policy in space.local_policies_by_fold]
    pairs = list(combinations(range(5), 2))
    own = np.mean([learned[a] != learned[b] for a, b in pairs])
    either = np.mean([(learned[a] != learned[b]) | (alone[a] != alone[b]) for a, b in pairs])
    assert own > 0
    units = np.eye(len(told["plain"]))
    place = in_message_order({"learned": run.policy}).index("learned")
    done, local = -2, -1  # what was done is the same in all folds
    for contrast, factor in (
        (units[place], 1 + 1.5 * own),
        (units[place] - units[done], 1 + 2 * own),
        (units[place] - units[local], 1 + 2 * either),
    ):
        found = contrast @ told["wider"] @ contrast / (contrast @ told["plain"] @ contrast)
        assert found == pytest.approx(factor)


def least_squares_without(fold, spaces):
    """Decisions by least squares on the scores of all rows, pooled, but those of a fold."""
    contexts, scores = [], []
    for space in spaces:
        whole = space.whole
        others = whole.folds.of_row != (fold if fold is not None else -1)
        contexts.append(whole.data.contexts[others])
        scores.append(whole.scores[others])
    design = np.column_stack([np.vstack(contexts), np.ones(sum(map(len, contexts)))])
    solved = np.linalg.lstsq(design, np.vstack(scores), rcond=None)[0]
    return lambda rows: (rows @ solved[:-1] + solved[-1]).argmax(axis=1)


def test_with_two_folds_terms_are_not_chosen_by_one(draw):
    """Without each of them there is a single loss, which shows no error: nothing bends."""
    plan = NuisancePlan(folds=2)
    run = fedopl.learn({"a": draw(300)}, evaluation="cross-fitted", nuisances=plan)
    assert run.values.of("learned").n_rows == 300


def test_a_policy_that_was_learned_elsewhere_is_valued_on_all_rows(draw, tmp_path):
    policy = fedopl.learn({"elsewhere": draw(300, seed=9)}, basis="linear", evaluation=0).policy
    clients = {name: draw(120, seed=seed) for seed, name in enumerate("ab")}
    options = {"basis": None, "evaluation": "cross-fitted", "evaluates": "it"}
    study = fedopl.Study(actions=policy.action_names, features=policy.feature_names, **options)
    doors = {name: Door(name, data, study, secret=SEED_ALONE) for name, data in clients.items()}
    with pytest.raises(fedopl.OptionError, match="'best arm': tables have such a row"):
        evaluate_policies(Conversation(study, InProcess(doors)), {BEST_ARM: policy})
    record = evaluate_policies(Conversation(study, InProcess(doors)), {"it": policy})
    for name, door in doors.items():
        whole, found = door._space.whole, record.values.of("it", name)
        worth = whole.scores[np.arange(120), policy.decide(whole.data.contexts)]
        assert found.n_rows == 120
        assert found.value == pytest.approx(worth.mean(), rel=1e-12)
        assert found.standard_error == pytest.approx(worth.std(ddof=1) / np.sqrt(120), rel=1e-9)
    assert "assumes that none of the policies was learned from these rows" in str(record)
    page = " ".join(write_report(record, tmp_path / "report.html").read_text().split())
    assert "on the assumption that none of the policies was learned from them" in page
    assert "learned in the same way" not in page


def test_it_takes_no_trip_more_and_says_what_is_valued(draw, tmp_path):
    clients = {name: draw(200, seed=seed) for seed, name in enumerate("ab")}
    held_out = fedopl.learn(clients, basis="linear", evaluation=0.25)
    crossed = fedopl.learn(clients, basis="linear", evaluation="cross-fitted")
    assert crossed.rounds[-1].trip == held_out.rounds[-1].trip
    assert crossed.values.of("learned").n_rows == 400
    for run, is_crossed in ((crossed, True), (held_out, False)):
        page = write_report(run, tmp_path / "report.html").read_text()
        assert ("policies learned in the same way" in " ".join(page.split())) == is_crossed


def test_with_too_few_rows_for_the_terms_a_client_is_valued_and_not_learned_from(draw):
    clients = {"few": draw(41, seed=1, n_features=20), "many": draw(400, seed=2, n_features=20)}
    options = {"basis": "linear", "evaluation": "cross-fitted", "limits": Limits()}
    assert fedopl.learn(clients, **options).values.of("learned").n_rows == 441
    run = fedopl.learn(clients, personal="none", **options)  # nobody asks how scores lie apart
    assert not run.refusals
    assert run.without_sums == ["few"]  # 21 terms need 42 rows
    assert run.values.of("learned").n_rows == 441


def test_a_client_of_one_group_has_nothing_to_be_valued_by():
    rng = np.random.default_rng(0)
    clients = {"one group": logged(rng, 120, 1.0, 1), "twelve": logged(rng, 120, 1.0, 12)}
    run = fedopl.learn(clients, basis="linear", evaluation=PLAN, nuisances=NUISANCES, quorum=0.5)
    assert {r.query: r.refused for r in run.rounds}["SumByFold"] == {"one group": "TOO_FEW_ROWS"}
    assert run.values.of("learned").n_rows == 120


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"policy": fedopl.Linear(oracle="wap")}, "csoaa-exact"),
        ({"evaluation": {"kind": "cross-fitted", "share": 0.3}}, "hold no rows out"),
    ],
)
def test_what_cannot_be_learned_without_each_fold_is_refused(draw, options, said):
    with pytest.raises(fedopl.OptionError, match=said):
        fedopl.learn({"a": draw(100)}, basis="linear", **{"evaluation": "cross-fitted", **options})
